"""Failures of channels, routers and the broker: moves of contracts, and notices."""

from __future__ import annotations

import pytest

from gridstat.broker import recovery
from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    ContractChanged,
    GrantedOutcome,
    ReportLedger,
    Unpublished,
    Unsubscribe,
)
from gridstat.net.command.messages import ChannelStateChanged
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, subscribe


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    return found


def channel(cloud: Conversation, number: int) -> EventChannel:
    return next(found for found in cloud.channels_given if found.channel_id == number)


def cut(cloud: Conversation, number: int) -> None:
    message = ChannelStateChanged(channel_id=number, is_up=False, silent_ms=100)
    cloud.hear(channel(cloud, number).to_router, message)
    cloud.settle()


def heal(cloud: Conversation, number: int) -> None:
    message = ChannelStateChanged(channel_id=number, is_up=True)
    cloud.hear(channel(cloud, number).to_router, message)
    cloud.settle()


def kill(cloud: Conversation, name: str) -> None:
    """Kill a router: end its session, and make it silent for its neighbours."""
    cloud.disconnect(name)
    for found in cloud.channels_given:
        if found.from_router == name:
            cut(cloud, found.channel_id)


def told(cloud: Conversation) -> list[GrantedOutcome]:
    """Return the changes of its contract that the subscriber received, each once."""
    found: list[GrantedOutcome] = []
    for notice in cloud.notices.get(CENTRE, []):
        if isinstance(notice, ContractChanged) and notice.granted not in found:
            found.append(notice.granted)
    return found


def words(cloud: Conversation) -> list[str]:
    return [note.word for note in cloud.notes]


@pytest.mark.feature("S0-114")
def test_a_dead_channel_is_noted_and_its_paths_move_make_before_break(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    (path,) = granted.paths
    dead = path.channel_ids[0]

    cut(cloud, dead)

    (now,) = told(cloud)
    assert dead not in now.paths[0].channel_ids
    assert now.degraded == ()
    assert now.paths_down == ()
    assert "channel_down" in words(cloud)
    for router in now.paths[0].routers:  # Both are up for a moment.
        assert cloud.path_orders(router)
    cloud.advance(NS_PER_S)
    cloud.settle()
    assert dead not in {order.channel_id for order in cloud.path_orders(path.routers[0])}
    assert cloud.differing() == []


@pytest.mark.feature("S0-114")
def test_without_another_way_the_path_stays_and_resumes_by_itself() -> None:
    routers = [Router("c1/a", RouterRole.EDGE), Router("c1/b", RouterRole.EDGE)]
    channels = [EventChannel(ChannelId(1), "c1/a", "c1/b")]
    cloud = Conversation((routers, channels)).start()
    cloud.attach(PMU, "c1/a", data_port=0)
    cloud.attach(CENTRE, "c1/b")
    cloud.publish(VOLTAGE, "c1/a")
    cloud.subscribe(CENTRE, "c1/b", VOLTAGE)
    before = {name: router.table.digest for name, router in cloud.routers.items()}

    cut(cloud, 1)
    (now,) = told(cloud)
    assert now.degraded == ("path 1 is down: nothing is received from channel c1/a→c1/b",)
    assert now.paths_down == ("path 1",)
    heal(cloud, 1)

    assert told(cloud)[-1].degraded == ()
    assert told(cloud)[-1].paths_down == ()
    assert words(cloud)[-1] == "channel_up"
    assert {name: router.table.digest for name, router in cloud.routers.items()} == before


def test_a_subscriber_that_has_a_path_for_broken_is_told_by_a_new_broker_that_it_works() -> None:
    routers = [Router("c1/a", RouterRole.EDGE), Router("c1/b", RouterRole.EDGE)]
    channels = [EventChannel(ChannelId(1), "c1/a", "c1/b")]
    cloud = Conversation((routers, channels)).start()
    cloud.attach(PMU, "c1/a", data_port=0)
    cloud.attach(CENTRE, "c1/b")
    cloud.publish(VOLTAGE, "c1/a")
    number = cloud.subscribe(CENTRE, "c1/b", VOLTAGE).subscription_id
    report = ReportLedger(entries=(), impaired=(number, number + 1))
    cut(cloud, 1)
    assert told(cloud)[-1].paths_down == ("path 1",)
    cloud.ask(CENTRE, "c1/b", report)
    assert len(told(cloud)) == 1  # It is right.
    cloud.kill_broker()
    cloud.start()  # The channel is up again by now, so there is no report of it.
    cloud.ask(PMU, "c1/a", report)
    assert len(told(cloud)) == 1  # It is none of its own.
    cloud.ask(CENTRE, "c1/b", report)
    assert [each.paths_down for each in told(cloud)] == [("path 1",), ()]


def test_notices_of_contracts_are_numbered_within_the_term_of_the_broker(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    dead = granted.paths[0].channel_ids[0]
    cut(cloud, dead)
    first = [each for each in cloud.notices[CENTRE] if isinstance(each, ContractChanged)]
    now = first[-1].granted.paths[0].channel_ids[0]
    cut(cloud, now)
    heal(cloud, now)
    found = [each for each in cloud.notices[CENTRE] if isinstance(each, ContractChanged)]
    orders = [each.order for each in found]
    assert {term for term, _ in orders} == {cloud.broker.registry.term}
    assert len({repr(each) for each in found}) == len(set(orders)) > 1  # The same by each edge.
    assert max(orders) > first[-1].order > (0, 0)


def test_answers_are_numbered_together_with_notices_at_their_decision(
    cloud: Conversation,
) -> None:
    """A channel fails after a change was decided, and is reported before the change is answered."""
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    for router in cloud.routers.values():
        router.is_silent = True
    qos = ModalQos({0: QosRequest(every=2, redundancy=2)})
    change = ChangeSubscription(subscription_id=granted.subscription_id, qos=qos)
    asked = cloud.send(CENTRE, "c1/e2", change)
    held = cloud.broker.registry.subscriptions[granted.subscription_id].record
    for number in {path.channel_ids[0] for path in held.paths}:
        for each in cloud.channels_given:
            if each.from_router == channel(cloud, number).from_router:
                cut(cloud, each.channel_id)
    assert (CENTRE, asked) not in cloud.answers
    notices = [each for each in cloud.notices[CENTRE] if isinstance(each, ContractChanged)]
    for name, router in cloud.routers.items():
        router.is_silent = False
        cloud.confirm(name)
    cloud.advance(2 * cloud.settings.confirm_within_ns)
    changed = cloud.only(GrantedOutcome, cloud.answers[CENTRE, asked])
    assert notices[0].granted.paths_down
    assert (0, 0) < granted.order < changed.order < notices[0].order


def test_a_replacement_stays_disjoint_from_the_other_path(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    dead = granted.paths[0].channel_ids[0]

    cut(cloud, dead)

    now = told(cloud)[-1]
    used = [number for path in now.paths for number in path.channel_ids]
    assert dead not in used
    assert len(used) == len(set(used))


def test_nothing_moves_back_when_a_channel_returns(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    dead = granted.paths[0].channel_ids[0]
    for _ in range(5):  # A flapping channel moves a contract once.
        cut(cloud, dead)
        heal(cloud, dead)
        cloud.advance(NS_PER_S)
    record = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert record.generation == 1


def test_only_the_receiver_of_a_channel_can_call_it_silent(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    dead = granted.paths[0].channel_ids[0]
    message = ChannelStateChanged(channel_id=dead, is_up=False)
    for name in sorted(set(cloud.routers) - {channel(cloud, dead).to_router}):
        cloud.hear(name, message)
    cloud.hear("c1/e0", ChannelStateChanged(channel_id=12_345, is_up=False))
    assert told(cloud) == []
    assert "channel_down" not in words(cloud)


def test_a_lost_session_alone_is_no_dead_router(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.disconnect(granted.paths[0].routers[1])
    cloud.advance(60 * NS_PER_S)
    assert told(cloud) == []
    record = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert record.generation == 0


def test_a_router_that_is_away_for_long_gets_no_new_paths(cloud: Conversation) -> None:
    cloud.disconnect("c1/i0")
    cloud.advance(60 * NS_PER_S)
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    assert "c1/i0" not in granted.paths[0].routers
    cloud.connect("c1/i0")
    cloud.settle()
    both = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    assert any("c1/i0" in path.routers for path in both.paths)


def test_a_dead_router_is_avoided_by_all_that_went_through_it(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    dead = granted.paths[0].routers[1]
    kill(cloud, dead)
    assert "router_down" in words(cloud)
    now = told(cloud)[-1]
    assert dead not in now.paths[0].routers
    cloud.advance(NS_PER_S)
    cloud.settle()
    assert [name for name in cloud.differing() if name != dead] == []


def test_an_edge_that_was_thought_dead_and_returns_has_its_end_points_still(
    cloud: Conversation,
) -> None:
    cloud.lose(PMU, "c1/e1")
    cloud.disconnect("c1/e0")
    number = next(one.channel_id for one in cloud.channels_given if one.from_router == "c1/e0")
    cut(cloud, number)
    assert not cloud.broker.registry.endpoints[PMU].is_up

    heal(cloud, number)
    cloud.connect("c1/e0")
    cloud.advance(10 * cloud.settings.grace_ns)
    assert cloud.broker.registry.endpoints[PMU].is_up


def test_a_dead_edge_is_left_for_the_other_one(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    dead = granted.paths[0].routers[0]
    kill(cloud, dead)
    assert dead not in told(cloud)[-1].paths[0].routers


@pytest.mark.feature("S0-116", "S0-117")
def test_a_crashed_router_is_rebuilt_and_its_neighbours_find_its_new_ports(
    cloud: Conversation,
) -> None:
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    router = cloud.routers["c1/i0"]
    before = router.table.digest
    cloud.disconnect("c1/i0")
    router.crash()
    cloud.connect("c1/i0")
    cloud.settle()

    assert router.accepted[-1].do_first_time
    assert router.table.digest == before
    neighbour = cloud.routers["c1/e0"].table.channels[1]
    assert neighbour.data_port == router.port
    assert cloud.differing() == []


@pytest.mark.feature("S0-115", "S0-117")
def test_a_router_that_only_lost_its_session_gets_what_it_missed(cloud: Conversation) -> None:
    first = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    cloud.disconnect("c1/i0")
    changes = len(cloud.routers["c1/i0"].changes)
    cloud.connect("c1/i0")
    cloud.settle()
    router = cloud.routers["c1/i0"]
    assert not router.accepted[-1].do_first_time
    assert len(router.changes) == changes  # The digests agree: no further message.

    cloud.disconnect("c1/i0")
    cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(first.subscription_id,)))
    assert router.table.paths  # It goes on with its present table.
    cloud.connect("c1/i0")
    cloud.settle()
    assert not router.table.paths
    assert cloud.differing() == []


def test_a_restarted_broker_finds_all_digests_equal_and_sends_nothing(
    cloud: Conversation,
) -> None:
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    cloud.ask(CENTRE, "c1/e2", subscribe("c1/**"))
    before = {name: len(router.changes) for name, router in cloud.routers.items()}

    cloud.kill_broker()
    cloud.start()

    assert {name: len(router.changes) for name, router in cloud.routers.items()} == before
    assert not any(router.accepted[-1].do_first_time for router in cloud.routers.values())
    assert cloud.differing() == []


def test_a_band_that_alone_was_changed_outlives_a_restart_and_then_a_failure(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    wider = ModalQos({0: QosRequest(redundancy=2, redundancy_worst=1)})
    change = ChangeSubscription(subscription_id=granted.subscription_id, qos=wider)
    (changed,) = cloud.ask(CENTRE, "c1/e2", change)
    assert isinstance(changed, GrantedOutcome)
    assert changed.paths == granted.paths

    cloud.kill_broker()
    cloud.start()
    cut(cloud, changed.paths[0].channel_ids[0])

    record = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert changed.paths[0].channel_ids not in [path.channel_ids for path in record.paths]
    assert record.qos == wider


def test_many_contracts_move_in_batches_the_most_urgent_first(cloud: Conversation) -> None:
    names = [cloud.publish(f"{PMU}/v{number}", "c1/e0").name for number in range(200)]
    for number, name in enumerate(names):
        cloud.send(CENTRE, "c1/e2", subscribe(name, QosRequest(priority=1 + number % 6)))
    cloud.settle()
    through = sorted(cloud.broker.registry.through_router)
    dead = next(name for name in through if name.startswith("c1/i"))
    going = set(cloud.broker.registry.through_router[dead])
    assert len(going) > cloud.settings.replan_at_once

    cloud.disconnect(dead)
    number = next(found.channel_id for found in cloud.channels_given if found.from_router == dead)
    message = ChannelStateChanged(channel_id=number, is_up=False)
    cloud.hear(channel(cloud, number).to_router, message)
    cloud.fire(recovery.REPLAN_TIMER)
    records = cloud.broker.registry.subscriptions
    moved = [found for found in going if records[found].record.generation == 1]
    assert len(moved) == cloud.settings.replan_at_once
    first = max(records[found].record.granted[0].priority for found in moved)
    rest = min(records[found].record.granted[0].priority for found in going - set(moved))
    assert first <= rest

    cloud.advance(NS_PER_S)
    cloud.settle()
    assert dead not in cloud.broker.registry.through_router


def test_contracts_that_nothing_can_mend_cost_no_search_and_resume(
    cloud: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [cloud.publish(f"{PMU}/v{number}", "c1/e0").name for number in range(20)]
    cloud.ask(CENTRE, "c1/e2", subscribe(*names))
    searched: list[object] = []
    replace_path = cloud.broker.reservations.replace_path

    def replace(*asked: object) -> object:
        searched.append(asked)
        return replace_path(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(cloud.broker.reservations, "replace_path", replace)
    ends = [channel.channel_id for channel in cloud.channels_given if is_at_an_end(channel)]
    for number in ends:
        cut(cloud, number)
    cloud.advance(NS_PER_S)
    impaired = [one for one in cloud.broker.registry.subscriptions.values() if one.troubles]
    assert len(impaired) == len(names)
    searched.clear()
    cloud.lose(CENTRE, "c1/e2", "c1/e3")
    cloud.attach(CENTRE, "c1/e2", "c1/e3", first_time=False)
    cloud.advance(NS_PER_S)
    assert searched == [], "nothing leads to the subscriber's edges"

    for number in ends:
        heal(cloud, number)
    cloud.advance(NS_PER_S)
    assert not [one for one in cloud.broker.registry.subscriptions.values() if one.troubles]


def is_at_an_end(channel: EventChannel) -> bool:
    """Return whether a channel leads to one of the subscriber's edges."""
    return channel.to_router in {"c1/e2", "c1/e3"}


def test_the_contracts_of_an_end_point_that_moves_are_put_in_order_once(
    cloud: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [cloud.publish(f"{PMU}/v{number}", "c1/e0").name for number in range(100)]
    for first in (0, 50):
        cloud.ask(CENTRE, "c1/e2", subscribe(*names[first : first + 50]))
    kill(cloud, "c1/e2")
    kill(cloud, "c1/e3")
    ordered: list[int] = []

    def heapify(queue: list[tuple[int, int]]) -> None:
        ordered.append(len(queue))
        queue.sort()

    monkeypatch.setattr(recovery, "heapify", heapify)
    cloud.lose(PMU, "c1/e0")
    cloud.attach(PMU, "c1/e0", first_time=False, data_port=0)
    cloud.advance(NS_PER_S)
    assert len(names) in ordered
    assert len(ordered) < 10


def test_an_end_point_that_attaches_elsewhere_is_served_there() -> None:
    cloud = Conversation().start()
    cloud.attach(PMU, "c1/e0", data_port=0)
    cloud.attach(CENTRE, "c1/e2")
    cloud.publish(VOLTAGE, "c1/e0")
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    kill(cloud, "c1/e2")
    kill(cloud, "c1/e0")
    assert cloud.broker.registry.subscriptions[granted.subscription_id].troubles

    cloud.attach(CENTRE, "c1/e3", first_time=False)
    cloud.attach(PMU, "c1/e1", first_time=False, data_port=0)
    cloud.advance(NS_PER_S)

    record = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert (record.paths[0].routers[0], record.paths[0].routers[-1]) == ("c1/e1", "c1/e3")
    assert cloud.broker.registry.subscriptions[granted.subscription_id].troubles == ()


def test_a_full_disk_leaves_the_old_paths_and_they_are_moved_later(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    dead = granted.paths[0].channel_ids[0]
    cloud.is_disk_full = True
    cut(cloud, dead)
    record = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert record.generation == 0

    cloud.is_disk_full = False
    cloud.advance(2 * cloud.settings.retry_after_ns)
    cloud.settle()
    moved = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert dead not in moved.paths[0].channel_ids


def test_a_contract_whose_router_the_file_has_lost_finds_another_way(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    lost = granted.paths[0].routers[1]
    cloud.routers_given = [found for found in cloud.routers_given if found.name != lost]
    cloud.channels_given = [
        found for found in cloud.channels_given if lost not in {found.from_router, found.to_router}
    ]
    del cloud.routers[lost]
    cloud.kill_broker()
    cloud.start()

    record = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert lost not in record.paths[0].routers
    assert cloud.differing() == []


def test_a_contract_that_the_edited_file_leaves_no_way_ends(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.channels_given = []
    cloud.kill_broker()
    cloud.start()
    cloud.advance(cloud.settings.grace_ns)
    assert cloud.broker.registry.subscriptions == {}
    notices = [notice for notice in cloud.notices[CENTRE] if isinstance(notice, Unpublished)]
    assert notices[0].subscription_id == granted.subscription_id
