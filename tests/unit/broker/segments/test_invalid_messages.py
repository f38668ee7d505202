"""Invalid messages of a parent: the cloud continues, and the parent receives the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from gridstat.broker.segments.segment_paths import current_pieces
from gridstat.broker.tables.detection import Detection
from gridstat.model.errors import LayoutError, Refused, VariableExists
from gridstat.model.flooding import FloodTerm
from gridstat.model.rate_law import Period
from gridstat.net.command.messages import Message
from gridstat.net.command.segment_messages import (
    AskContract,
    ContractGranted,
    EndContract,
    NotReserved,
    PathSegment,
    Reserved,
    SegmentedPath,
)
from gridstat.net.command.tree_messages import (
    FloodedVariable,
    FloodingRefused,
    ReserveFlooding,
    TreeJoined,
)
from tests.unit.broker.conversation import refusal
from tests.unit.broker.segments.family import (
    ENTRIES,
    EXITS,
    FAR,
    ROOT,
    Family,
    family,
    quality,
)
from tests.unit.broker.stand_ins import CENTRE, VOLTAGE, subscribe

if TYPE_CHECKING:
    from gridstat.model.status import StatusVariable

CROSSING = "c9#1"
SLOWER = replace(FAR, period=Period(1, 30))


@pytest.fixture
def cloud() -> Family:
    return family()


def flood(cloud: Family, variable: StatusVariable) -> None:
    flooded = FloodedVariable(variable=variable, generation=1, terms={0: FloodTerm(0, 1)})
    cloud.say(ReserveFlooding(term=7, flooded=flooded))
    cloud.settle()


def is_understood(word: Message) -> bool:
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(word), type=Message)
    except msgspec.ValidationError:
        return False
    return True


@pytest.mark.parametrize(("depth", "is_depth"), [(-1, False), (0, True), (255, True), (256, False)])
def test_a_depth_that_no_channel_can_have_is_not_heard(depth: int, *, is_depth: bool) -> None:
    joined = TreeJoined(term=7, depth=depth, above=("root",))
    assert is_understood(joined) is is_depth


def test_a_path_of_nothing_is_not_heard() -> None:
    piece = PathSegment(owner="c2", routers=("c2/a",), channel_ids=(), latency_us=1)
    path = SegmentedPath(entry=0, exit=0, latency_us=1, pieces=(piece,))
    told = Reserved(term=7, contract=CROSSING, generation=0, paths=(path,))
    assert is_understood(told)
    nowhere = msgspec.structs.replace(piece, routers=())
    for pieces in ((), (nowhere,)):
        broken = msgspec.structs.replace(path, pieces=pieces)
        assert not is_understood(msgspec.structs.replace(told, paths=(broken,)))


def test_a_held_segment_that_is_asked_for_without_gates_is_refused(cloud: Family) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    cloud.reserve(CROSSING, granted=quality(1))
    assert cloud.last(NotReserved).refused.code == LayoutError.code


def test_a_held_segment_that_is_asked_for_never_is_refused(cloud: Family) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS, granted=quality(2, every=0))
    assert cloud.last(NotReserved).refused.code == LayoutError.code


def test_a_segment_with_the_identifier_of_another_that_floods_is_refused(cloud: Family) -> None:
    flood(cloud, FAR)
    cloud.reserve(CROSSING, variable=SLOWER, entries=ENTRIES[:1], exits=EXITS[1:])
    assert cloud.last(NotReserved).refused.code == VariableExists.code


def test_a_flood_with_the_identifier_of_another_that_crosses_is_refused(cloud: Family) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES[:1], exits=EXITS[1:])
    flood(cloud, SLOWER)
    assert cloud.last(FloodingRefused).refused.code == VariableExists.code


def test_a_flood_with_the_identifier_of_a_variable_of_this_cloud_is_refused(cloud: Family) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    flood(cloud, replace(FAR, variable_id=voltage.variable_id))
    assert cloud.last(FloodingRefused).refused.code == VariableExists.code


def test_a_flood_with_the_identifier_of_another_that_floods_is_refused(cloud: Family) -> None:
    flood(cloud, FAR)
    flood(cloud, replace(SLOWER, name="c2/south/pmu/other"))
    assert cloud.last(FloodingRefused).refused.code == VariableExists.code


def test_a_message_that_the_broker_fails_over_ends_the_session_and_nothing_else(
    cloud: Family,
) -> None:
    cloud.may_fail = True
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    asked = cloud.last(AskContract)
    cloud.reserve(asked.contract, entries=ENTRIES[:1], subscriber=asked.subscriber)
    cloud.commit(asked.contract)
    granted = cloud.granted(asked, generation=0)
    nothing = msgspec.structs.replace(granted.paths[0], pieces=())
    cloud.say(msgspec.structs.replace(granted, paths=(nothing,)))
    assert (cloud.closed[-1].peer, cloud.closed[-1].code) == (ROOT, Refused.code)
    assert cloud.notes[-1].word == "message_failed"
    cloud.lose_parent()
    cloud.join()
    cloud.say(granted)
    assert cloud.answers[CENTRE, cloud.request_id]


def ways_apart(cloud: Family) -> list[ContractGranted]:
    """Grants of what was asked last: without a channel between two clouds, or within one."""
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    asked = cloud.last(AskContract)
    cloud.reserve(asked.contract, entries=ENTRIES[:1], subscriber=CENTRE)
    word = cloud.granted(asked, generation=0)
    (path,) = word.paths
    far, over, here = path.pieces
    torn = msgspec.structs.replace(far, channel_ids=())
    return [
        msgspec.structs.replace(word, paths=(msgspec.structs.replace(path, pieces=pieces),))
        for pieces in ((far, here), (torn, over, here))
    ]


@pytest.mark.parametrize("at", [0, 1])
def test_a_grant_of_paths_that_are_none_is_refused_and_given_back(cloud: Family, at: int) -> None:
    word = ways_apart(cloud)[at]
    cloud.say(word)
    cloud.settle()
    assert refusal(cloud.answers[CENTRE, cloud.request_id]).code == LayoutError.code
    assert cloud.last(EndContract).contract == word.contract


def test_a_contract_keeps_its_paths_when_it_is_granted_some_that_are_none(cloud: Family) -> None:
    word = ways_apart(cloud)[0]
    cloud.grant(cloud.last(AskContract))
    (found,) = cloud.broker.registry.tree.asked.values()
    before = found.granted
    assert before is not None
    cloud.say(msgspec.structs.replace(word, generation=1))
    assert found.granted == before
    assert cloud.notes[-1].word == "grant_refused"


def test_paths_that_are_none_in_an_old_journal_are_shown_as_they_are(cloud: Family) -> None:
    word = ways_apart(cloud)[0]
    (path,) = word.paths
    alone = msgspec.structs.replace(path.pieces[0], routers=("c2/e",), channel_ids=())
    path = msgspec.structs.replace(path, pieces=(alone, path.pieces[-1]))
    (found,) = cloud.broker.registry.subscriptions.values()
    detection = Detection(cloud.broker.registry, cloud.settings.probes)
    assert current_pieces(path, found.record, detection) == path.pieces
