"""A leaf broker keeps a demand for sealed channels in its segments, and at its end-points."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from gridstat.model.errors import SecurityNotSatisfiable
from gridstat.model.qos import ModalQos, QosRequest, demands_sealing
from gridstat.net.command.endpoint_messages import ChangeSubscription, GrantedOutcome
from gridstat.net.command.segment_messages import (
    AskContract,
    EndContract,
    NotReserved,
    Reserve,
    Reserved,
)
from gridstat.net.command.tree_messages import OpenBorder
from tests.unit.broker.conversation import refusal
from tests.unit.broker.segments.family import (
    ENTRIES,
    EXITS,
    FAR,
    IN,
    OUT_TWO,
    Family,
    border,
    family,
    quality,
)
from tests.unit.broker.stand_ins import CENTRE, PMU, ring, subscribe

SEALED = QosRequest(security="hop")
VOLTAGE = f"{PMU}/v"


def reserve(cloud: Family, **facts: object) -> None:
    """Demand a sealed segment through the cloud, from its first entry to its second exit."""
    demand = Reserve(
        term=cloud.parent_term,
        contract="c9#1",
        generation=0,
        variable=FAR,
        granted=quality(),
        entries=ENTRIES[:1],
        exits=EXITS[1:],
        is_sealed=True,
    )
    cloud.say(structs.replace(demand, **facts))
    cloud.settle()


def reopen(cloud: Family, number: int, start: str, end: str) -> None:
    """Open a channel between clouds again, without sealing."""
    found = border(number, start, end)
    plain = structs.replace(found, channel=replace(found.channel, security="none"))
    cloud.say(OpenBorder(term=cloud.parent_term, channels=(plain,)))
    cloud.settle()


def started(plain: set[tuple[str, str]]) -> Family:
    """Cloud in which these channels are not sealed."""
    routers, channels = ring()
    marked = [
        replace(found, security="none") if (found.from_router, found.to_router) in plain else found
        for found in channels
    ]
    cloud = Family(topology=(routers, marked))
    cloud.start()
    cloud.join()
    return cloud


def test_a_sealed_segment_is_confirmed_and_kept_over_a_restart() -> None:
    cloud = family()
    reserve(cloud)
    assert cloud.last(Reserved).is_sealed
    (record,) = cloud.broker.registry.segments()
    assert demands_sealing(record.qos)
    cloud.kill_broker()
    cloud.start()
    cloud.join()
    cloud.words.clear()
    reserve(cloud)
    assert cloud.last(Reserved).is_sealed
    (record,) = cloud.broker.registry.segments()
    assert demands_sealing(record.qos)


def test_a_segment_without_the_demand_is_another_one_and_is_not_confirmed() -> None:
    cloud = family()
    reserve(cloud)
    reserve(cloud, is_sealed=False)
    assert not cloud.last(Reserved).is_sealed
    (record,) = cloud.broker.registry.segments()
    assert not demands_sealing(record.qos)


def test_a_sealed_segment_leads_around_a_plain_channel() -> None:
    cloud = started({("c1/i0", "c1/i1")})
    reserve(cloud)
    (path,) = cloud.last(Reserved).paths
    assert len(path.pieces[0].routers) > 2


def test_a_sealed_segment_without_a_sealed_path_is_refused_with_the_channel() -> None:
    _, channels = ring()
    to_second = {(one.from_router, one.to_router) for one in channels if one.to_router == "c1/i1"}
    cloud = started(to_second)
    reserve(cloud)
    refused = cloud.last(NotReserved).refused
    assert refused.code == SecurityNotSatisfiable.code
    assert refused.reason.startswith("channel c1/i0→c1/i1 is not sealed")
    assert refused.hint


def test_a_gate_that_is_not_sealed_is_refused_by_name() -> None:
    for number, ends in ((IN, ("c2/b", "c1/i0")), (OUT_TWO, ("c1/i1", "c3/b"))):
        cloud = family()
        reopen(cloud, number, *ends)
        reserve(cloud)
        refused = cloud.last(NotReserved).refused
        assert refused.code == SecurityNotSatisfiable.code
        assert refused.reason == f"channel {ends[0]}→{ends[1]} is not sealed"


def test_the_channels_of_a_publisher_must_be_sealed() -> None:
    cloud = Family()
    cloud.routers["c1/e0"].endpoint_security = "none"
    cloud.start()
    cloud.join()
    cloud.attach(PMU, "c1/e0", data_port=0, security="none")
    variable = cloud.publish(VOLTAGE, "c1/e0")
    reserve(cloud, variable=variable, entries=(), exits=EXITS[:1], reader="c2/desk")
    refused = cloud.last(NotReserved).refused
    assert refused.code == SecurityNotSatisfiable.code
    assert refused.reason == f"the channels between {PMU} and c1/e0 are not sealed"


def test_the_channels_of_a_subscriber_must_be_sealed_before_anything_is_requested() -> None:
    cloud = Family()
    cloud.routers["c1/e2"].endpoint_security = "none"
    cloud.start()
    cloud.join()
    cloud.attach(CENTRE, "c1/e2", security="none")
    refused = refusal(cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name, SEALED)))
    assert refused.code == SecurityNotSatisfiable.code
    assert not cloud.heard(AskContract)


def test_a_grant_that_confirms_nothing_is_refused_and_given_back() -> None:
    cloud = family()
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name, SEALED))
    asked = cloud.last(AskContract)
    assert demands_sealing(asked.qos)
    cloud.grant(asked)
    refused = refusal(cloud.answers[CENTRE, cloud.request_id])
    assert refused.code == SecurityNotSatisfiable.code
    assert "do not confirm sealed channels" in refused.reason
    assert "upgrade" in refused.hint
    assert cloud.last(EndContract).contract == asked.contract


def test_a_grant_that_confirms_the_demand_is_taken() -> None:
    cloud = family()
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name, SEALED))
    asked = cloud.last(AskContract)
    reserve(
        cloud,
        contract=asked.contract,
        entries=ENTRIES[:1],
        exits=(),
        subscriber=CENTRE,
        reader=CENTRE,
    )
    cloud.commit(asked.contract)
    cloud.say(structs.replace(cloud.granted(asked, generation=0), is_sealed=True))
    cloud.settle()
    assert cloud.only(GrantedOutcome, cloud.answers[CENTRE, cloud.request_id]).subscription_id


def test_a_change_that_is_not_confirmed_is_refused_and_the_former_quality_restored() -> None:
    cloud = family()
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.grant(cloud.last(AskContract))
    granted = cloud.only(GrantedOutcome, cloud.answers[CENTRE, cloud.request_id])
    change = ChangeSubscription(subscription_id=granted.subscription_id, qos=ModalQos({0: SEALED}))
    cloud.ask(CENTRE, "c1/e2", change)
    asked = cloud.last(AskContract)
    assert demands_sealing(asked.qos)
    cloud.grant(asked)
    assert refusal(cloud.answers[CENTRE, cloud.request_id]).code == SecurityNotSatisfiable.code
    again = cloud.last(AskContract)
    assert again.generation > asked.generation
    assert not demands_sealing(again.qos)
