"""Requests of a parent to a cloud: reserve, commit and release segments of contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gridstat.model.errors import (
    ChannelFull,
    GridStatError,
    LayoutError,
    NoSuchChannel,
    NoSuchSubscription,
    NoSuchVariable,
    NotAttached,
    StillInUse,
    VariableExists,
)
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    PublishedOutcome,
    Unpublish,
)
from gridstat.net.command.segment_messages import (
    Gate,
    LookedUp,
    Lookup,
    NotReserved,
    Release,
    Released,
    Reserved,
    SegmentBroken,
    SegmentUp,
)
from gridstat.net.command.tree_messages import OpenBorder
from tests.unit.broker.conversation import refusal
from tests.unit.broker.segments.family import (
    ENTRIES,
    EXITS,
    FAR,
    IN,
    IN_TWO,
    OUT,
    OUT_TWO,
    Family,
    border,
    family,
    quality,
)
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, publish, subscribe, variable

if TYPE_CHECKING:
    from gridstat.broker.records.operations import Subscribed

CROSSING = "c9#1"


@pytest.fixture
def cloud() -> Family:
    return family()


def loads(cloud: Family) -> list[object]:
    """Return all exact charges."""
    resources = cloud.broker.reservations.resources
    return [
        *((name, account.events.value) for name, account in sorted(resources.routers.items())),
        *((number, found.bytes.value) for number, found in sorted(resources.channels.items())),
    ]


def hops(cloud: Family, router: str) -> set[tuple[int, int]]:
    """The variables and channels of a router's paths."""
    return {(order.variable_id, order.channel_id) for order in cloud.path_orders(router)}


@pytest.mark.feature("S0-55")
def test_a_reserved_segment_is_held_and_no_router_hears_of_it(cloud: Family) -> None:
    before = loads(cloud)
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)

    reserved = cloud.last(Reserved)
    assert {(path.entry, path.exit) for path in reserved.paths} == {(IN, OUT), (IN_TWO, OUT_TWO)}
    assert all(path.pieces[0].owner == "c1" for path in reserved.paths)
    assert loads(cloud) != before
    assert hops(cloud, "c1/i0") == set()


@pytest.mark.feature("S0-55")
def test_a_committed_segment_leads_from_its_entries_out_by_its_exits(cloud: Family) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    cloud.commit(CROSSING)

    assert cloud.last(SegmentUp).degraded == ()
    assert hops(cloud, "c1/i0") == {(FAR.variable_id, OUT)}
    assert hops(cloud, "c1/i1") == {(FAR.variable_id, OUT_TWO)}
    assert cloud.differing() == []


def test_latencies_are_told_without_what_the_end_points_take(cloud: Family) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES[:1], exits=EXITS[1:])
    (path,) = cloud.last(Reserved).paths
    resources = cloud.broker.reservations.resources
    (piece,) = path.pieces
    assert path.latency_us == piece.latency_us
    whole_us = resources.path_us(piece.routers, piece.channel_ids)
    assert path.latency_us == whole_us - resources.ends_us


@pytest.mark.feature("S0-56")
def test_a_released_segment_leaves_nothing_behind(cloud: Family) -> None:
    before = loads(cloud)
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    cloud.commit(CROSSING)
    cloud.release(CROSSING)

    assert cloud.last(Released).contract == CROSSING
    assert loads(cloud) == before
    assert hops(cloud, "c1/i0") == set()
    assert cloud.broker.registry.tree.segments == {}
    assert cloud.broker.registry.foreign == {}
    assert cloud.heard(SegmentBroken) == []


def test_the_start_of_a_contract_begins_at_its_publisher(cloud: Family) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.reserve("c2#4", variable=voltage, exits=EXITS)
    cloud.commit("c2#4")

    starts = {path.pieces[0].routers[0] for path in cloud.last(Reserved).paths}
    assert starts == {"c1/e0", "c1/e1"}
    assert (voltage.variable_id, OUT) in hops(cloud, "c1/i0")
    assert (voltage.variable_id, OUT_TWO) in hops(cloud, "c1/i1")


@pytest.mark.feature("S0-58")
def test_a_look_up_tells_the_variable_and_how_far_it_is_from_the_borders(cloud: Family) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.say(Lookup(term=7, lookup=3, name=VOLTAGE))
    cloud.say(Lookup(term=7, lookup=4, name=FAR.name))

    found, missing = cloud.heard(LookedUp)
    assert found.variable == voltage
    assert {near.router for near in found.starts} == {"c1/i0", "c1/i1"}
    assert missing.refused is not None
    assert missing.refused.code == NoSuchVariable.code


@pytest.mark.parametrize("word", ["reserve", "commit", "release"])
def test_what_is_said_twice_is_done_once_and_answered_twice_alike(cloud: Family, word: str) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    if word != "reserve":
        cloud.commit(CROSSING)
    if word == "release":
        cloud.release(CROSSING)
    answer, before = cloud.words[-1], loads(cloud)

    if word == "reserve":
        cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    elif word == "commit":
        cloud.commit(CROSSING)
    else:
        cloud.release(CROSSING)
    assert cloud.words[-1] == answer
    assert loads(cloud) == before


@pytest.mark.feature("S0-56")
def test_a_refused_reservation_leaves_accounts_as_they_were() -> None:
    cloud = family(bandwidth_bytes_per_s=1_000)
    before = loads(cloud)
    cloud.reserve(CROSSING, entries=ENTRIES[:1], exits=EXITS[1:])

    refused = cloud.last(NotReserved)
    assert refused.refused.code == ChannelFull.code
    assert refused.refused.bottleneck.startswith("channel c1/")
    assert refused.limit == "CHANNEL"
    assert loads(cloud) == before
    assert cloud.broker.registry.tree.segments == {}


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"entries": (Gate(router="c1/i0", channel_id=99),), "exits": EXITS[:1]}, NoSuchChannel),
        ({"entries": (Gate(router="c1/i1", channel_id=IN),), "exits": EXITS[:1]}, NoSuchChannel),
        ({"exits": EXITS[:1]}, NoSuchVariable),
        ({"entries": ENTRIES[:1], "subscriber": CENTRE}, NoSuchSubscription),
        ({"entries": (ENTRIES[0], ENTRIES[0]), "exits": EXITS}, LayoutError),
        ({"entries": ENTRIES, "exits": EXITS[:1]}, LayoutError),
    ],
)
def test_what_is_not_here_is_not_reserved(
    cloud: Family, facts: dict[str, Any], kind: type[GridStatError]
) -> None:
    before = loads(cloud)
    cloud.reserve(CROSSING, **facts)
    assert cloud.last(NotReserved).refused.code == kind.code
    assert loads(cloud) == before


def test_an_identifier_that_is_another_variable_here_is_refused(cloud: Family) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    other = variable(FAR.name)
    clash = type(other)(voltage.variable_id, other.name, other.value_type, period=other.period)
    cloud.reserve(CROSSING, variable=clash, entries=ENTRIES[:1], exits=EXITS[1:])
    assert cloud.last(NotReserved).refused.code == VariableExists.code


def test_a_variable_that_passes_through_is_not_found_by_our_own_end_points(cloud: Family) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    cloud.commit(CROSSING)
    assert list(cloud.broker.registry.matching("**")) == []
    assert FAR.name not in cloud.broker.registry.publications


def test_contracts_of_one_variable_share_the_step_out_of_the_cloud(cloud: Family) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    alone = loads(cloud)
    cloud.reserve("c8#1", entries=ENTRIES, exits=EXITS)
    assert loads(cloud) == alone


def test_a_slower_stream_is_charged_at_its_border_as_often_as_it_comes(cloud: Family) -> None:
    entry = cloud.broker.reservations.resources.router("c1/i0")
    before = entry.events.value
    cloud.reserve(CROSSING, entries=ENTRIES[:1], exits=EXITS[:1], granted=quality(every=60))
    assert entry.events.value == before + 2  # One event a second in, and one out.


def test_a_withdrawn_variable_ends_its_segments_and_the_parent_hears_that_it_is_over(
    cloud: Family,
) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.reserve("c2#4", variable=voltage, exits=EXITS)
    cloud.commit("c2#4")
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))

    broken = cloud.last(SegmentBroken)
    assert (broken.contract, broken.is_over) == ("c2#4", True)
    cloud.release("c2#4")
    assert cloud.last(Released).contract == "c2#4"


def test_a_commit_of_what_is_gone_is_told_as_broken(cloud: Family) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.reserve("c2#4", variable=voltage, exits=EXITS)
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    cloud.commit("c2#4")
    assert cloud.last(SegmentBroken).contract == "c2#4"


def test_a_reservation_that_the_disk_does_not_take_is_refused_and_leaves_nothing(
    cloud: Family,
) -> None:
    before = loads(cloud)
    cloud.is_disk_full = True
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    assert cloud.last(NotReserved).contract == CROSSING
    assert loads(cloud) == before
    cloud.is_disk_full = False
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    assert cloud.last(Reserved).contract == CROSSING


def test_a_reservation_is_not_told_before_it_is_durable(cloud: Family) -> None:
    cloud.is_journal_held = True
    for _ in range(2):
        cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    assert cloud.heard(Reserved) == []
    cloud.is_journal_held = False
    cloud.write()
    assert len(cloud.heard(Reserved)) == 2


def record_of(cloud: Family, contract: str, generation: int = 0) -> Subscribed:
    registry = cloud.broker.registry
    return registry.subscriptions[registry.tree.segment(contract, generation)].record


def test_the_number_of_a_segment_is_nobodys_subscription(cloud: Family) -> None:
    cloud.ask(PMU, "c1/e0", publish(variable(VOLTAGE)))
    cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    held = cloud.broker.registry.endpoints[CENTRE]
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    assert cloud.broker.registry.contracts_of(held) == held.subscriptions


def test_a_released_segment_is_carried_on_while_events_may_be_on_their_way(cloud: Family) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    cloud.commit(CROSSING)
    for _ in range(2):
        cloud.say(Release(term=7, contract=CROSSING, generation=0))
    cloud.advance(cloud.settings.release_after_ns - 1)
    assert hops(cloud, "c1/i0") == {(FAR.variable_id, OUT)}
    assert cloud.heard(Released) == []
    cloud.advance(1)
    cloud.settle()
    assert hops(cloud, "c1/i0") == set()
    assert len(cloud.heard(Released)) == 1


def test_a_period_that_other_clouds_know_is_not_changed_under_their_feet(cloud: Family) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.reserve("c2#4", variable=voltage, exits=EXITS[:1])
    outcomes = cloud.ask(PMU, "c1/e0", ChangePublication(name=VOLTAGE, period=Period(1, 30)))
    assert refusal(outcomes).code == StillInUse.code
    cloud.release("c2#4")
    outcomes = cloud.ask(PMU, "c1/e0", ChangePublication(name=VOLTAGE, period=Period(1, 30)))
    assert isinstance(outcomes[0], PublishedOutcome)


def test_a_variable_that_enters_a_router_by_two_channels_is_charged_for_both(
    cloud: Family,
) -> None:
    other = (1 << 31) + 9
    cloud.say(OpenBorder(term=7, channels=(border(other, "c4/b", "c1/i0"),)))
    entry = cloud.broker.reservations.resources.router("c1/i0")
    cloud.reserve(CROSSING, entries=ENTRIES[:1], exits=EXITS[:1])
    before = entry.events.value
    second = (Gate(router="c1/i0", channel_id=other),)
    cloud.reserve("c8#1", entries=second, exits=EXITS[:1])
    assert entry.events.value == before + 60  # Out of the cloud they share a step.
    cloud.release("c8#1")
    assert entry.events.value == before


def test_a_publisher_that_is_only_away_is_not_told_as_gone(cloud: Family) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    registry = cloud.broker.registry
    for edge in ("c1/e0", "c1/e1"):
        registry.remove_attachment(registry.endpoints[PMU], edge)
    cloud.say(Lookup(term=7, lookup=3, name=VOLTAGE))
    found = cloud.last(LookedUp)
    assert found.refused is not None
    assert found.refused.code == NotAttached.code


def test_what_is_asked_for_again_while_it_is_carried_on_is_reserved_anew(cloud: Family) -> None:
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    cloud.commit(CROSSING)
    cloud.say(Release(term=7, contract=CROSSING, generation=0))
    cloud.reserve(CROSSING, entries=ENTRIES, exits=EXITS)
    assert [type(word) for word in cloud.words[-2:]] == [Released, Reserved]
    cloud.advance(2 * cloud.settings.release_after_ns)
    assert record_of(cloud, CROSSING).is_reserved
    cloud.commit(CROSSING)
    assert hops(cloud, "c1/i0") == {(FAR.variable_id, OUT)}
