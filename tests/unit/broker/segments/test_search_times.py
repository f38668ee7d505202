"""Search time of contracts between clouds, told and charged by a leaf broker."""

from __future__ import annotations

from msgspec import structs

from gridstat.broker.requests.search_times import SEARCH_BURST_NS, SEARCH_FREE_NS, SEARCH_PARTS
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.net.command.segment_messages import (
    AskContract,
    ContractEnded,
    ContractRefused,
    NotReserved,
    Reserve,
    Reserved,
)
from tests.unit.broker.segments.family import ENTRIES, EXITS, FAR, Family, family, quality
from tests.unit.broker.stand_ins import CENTRE, subscribe

NO = RefusedOutcome(code=1036, reason="too slow")
MUCH_US = (SEARCH_BURST_NS + SEARCH_FREE_NS) // 1_000 + 50_000


def refuse(cloud: Family, asked: AskContract, search_us: int) -> None:
    cloud.say(
        ContractRefused(
            term=7, contract=asked.contract, generation=0, refused=NO, search_us=search_us
        )
    )
    cloud.settle()


def searched_ms(cloud: Family) -> float:
    found = cloud.broker.survey()["requests"]["search_ms"]
    assert isinstance(found, float)
    return found


def test_who_asked_waits_once_brokers_above_have_searched_too_long_for_it() -> None:
    cloud = family()
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    refuse(cloud, cloud.last(AskContract), MUCH_US)
    assert searched_ms(cloud) == MUCH_US / 1_000
    cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.settle()
    assert len(cloud.heard(AskContract)) == 1
    cloud.advance(SEARCH_PARTS * 50_000_000)
    cloud.settle()
    assert len(cloud.heard(AskContract)) == 2


def test_a_grant_is_charged_once_however_often_it_is_sent() -> None:
    cloud = family()
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    asked = cloud.last(AskContract)
    cloud.reserve(asked.contract, entries=ENTRIES[:1], subscriber=asked.subscriber)
    cloud.commit(asked.contract)
    granted = cloud.granted(asked, generation=0)
    before_ms = searched_ms(cloud)
    for search_us in (3_000, 0, 0):
        cloud.say(structs.replace(granted, search_us=search_us))
        cloud.settle()
    assert searched_ms(cloud) == before_ms + 3


def test_an_end_is_charged_too() -> None:
    cloud = family()
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    asked = cloud.last(AskContract)
    cloud.say(ContractEnded(term=7, contract=asked.contract, refused=NO, search_us=2_000))
    cloud.settle()
    assert searched_ms(cloud) == 2


def reserve(cloud: Family, search_us: int, latency_us: int) -> None:
    cloud.say(
        Reserve(
            term=7,
            contract="c9#1",
            generation=0,
            variable=FAR,
            granted=quality(1, latency_us),
            entries=ENTRIES[:1],
            exits=EXITS[1:2],
            round=search_us,
            search_us=search_us,
        )
    )
    cloud.settle()


def test_the_parent_is_told_what_the_searches_for_a_segment_have_taken() -> None:
    cloud = family()
    reserve(cloud, search_us=100_000, latency_us=1)
    assert 0 < cloud.last(NotReserved).search_us < 5_000
    reserve(cloud, search_us=0, latency_us=100_000)
    assert 0 < cloud.last(Reserved).search_us < 5_000
    assert searched_ms(cloud) == 0, "the subscriber pays, in its own cloud"
