"""Make before break, also by a broker that is killed between the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gridstat.broker.effects.contract_effects import RETIRING_MAX
from gridstat.broker.records.operations import Moved, Retired, encode
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import ChangePublication, ChangeSubscription
from gridstat.net.command.messages import ChannelStateChanged, RemoveChannel, RemoveRouter
from tests.unit.broker.clouds import numbers
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.operators.test_operator_commands import code
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

BYTE = 0xFF


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    return found


def generations(cloud: Conversation, router: str) -> set[int]:
    return {order.path_id >> 8 & BYTE for order in cloud.path_orders(router)}


def move_without(cloud: Conversation) -> tuple[int, str, str]:
    """Move a contract to a disconnected router; return its number, the old and the new router."""
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    (path,) = granted.paths
    old = path.routers[1]
    new = next(name for name in ("c1/i0", "c1/i1") if name != old)
    cloud.disconnect(new)
    ways = f"c1/e0→{old}", f"c1/e1→{old}"
    into = [each.channel_id for each in cloud.channels_given if each.label in ways]
    for channel_id in sorted(into, key=path.channel_ids.__contains__):  # Its own at the end.
        cut = ChannelStateChanged(channel_id=channel_id, is_up=False, silent_ms=100)
        cloud.hear(old, cut)
    cloud.settle()
    found = cloud.broker.registry.subscriptions[granted.subscription_id]
    assert found.record.paths[0].routers[1] == new
    return granted.subscription_id, old, new


def is_restored(cloud: Conversation, *, is_compact: bool) -> None:
    if is_compact:
        cloud.journal[:] = cloud.broker.snapshot()
    cloud.kill_broker()


@pytest.mark.parametrize("is_compact", [False, True], ids=["journal", "snapshot"])
def test_a_broker_that_is_killed_in_a_move_keeps_the_old_path_until_the_new_one_is_up(
    cloud: Conversation, *, is_compact: bool
) -> None:
    number, old, new = move_without(cloud)
    assert generations(cloud, old) == {0}

    is_restored(cloud, is_compact=is_compact)
    cloud.start(without=new)
    cloud.advance(3 * cloud.settings.confirm_within_ns)

    assert generations(cloud, old) == {0}
    assert generations(cloud, "c1/e2") == {0, 1}
    assert cloud.broker.registry.subscriptions[number].retiring

    cloud.connect(new)
    cloud.settle()
    cloud.advance(NS_PER_S)
    assert generations(cloud, old) == set()
    assert generations(cloud, "c1/e2") == generations(cloud, new) == {1}
    assert not cloud.broker.registry.subscriptions[number].retiring
    assert cloud.differing() == []


def test_a_declared_delay_does_not_keep_old_paths_for_it_passes_before_the_first_router() -> None:
    cloud = pair()
    cloud.publish(VOLTAGE, "c1/e0", delay_ms=1_500)
    number, old, new = move_without(cloud)
    cloud.connect(new)
    cloud.settle()
    assert generations(cloud, old) == {0}
    cloud.advance(NS_PER_S)
    assert generations(cloud, old) == set()
    assert not cloud.broker.registry.subscriptions[number].retiring


@pytest.mark.parametrize("is_compact", [False, True], ids=["journal", "snapshot"])
def test_old_paths_are_charged_after_a_start_too_and_given_back_when_they_retire(
    cloud: Conversation, *, is_compact: bool
) -> None:
    move_without(cloud)
    before = numbers(cloud.broker.reservations.resources)

    is_restored(cloud, is_compact=is_compact)

    assert numbers(cloud.broker.reservations.resources) == before
    cloud.start()
    cloud.advance(NS_PER_S)
    after = numbers(cloud.broker.reservations.resources)
    assert after != before
    is_restored(cloud, is_compact=is_compact)
    assert numbers(cloud.broker.reservations.resources) == after


def test_what_has_retired_stays_so_after_a_start(cloud: Conversation) -> None:
    number, _, new = move_without(cloud)
    cloud.connect(new)
    cloud.settle()
    cloud.advance(NS_PER_S)
    written = [cloud.broker.decode(each) for each in cloud.journal]
    assert Retired(subscription_id=number, generation=1) in written

    cloud.kill_broker()

    assert not cloud.broker.registry.subscriptions[number].retiring
    assert cloud.differing() == []


def test_a_full_disk_lets_the_old_paths_stay_a_little_longer(cloud: Conversation) -> None:
    number, old, new = move_without(cloud)
    cloud.connect(new)
    cloud.settle()
    cloud.is_disk_full = True
    cloud.advance(NS_PER_S)
    assert generations(cloud, old) == {0}
    assert cloud.broker.registry.subscriptions[number].retiring

    cloud.is_disk_full = False
    cloud.advance(3 * NS_PER_S)
    cloud.settle()
    assert generations(cloud, old) == set()
    assert cloud.differing() == []


def test_a_change_of_period_and_a_move_in_it_survive_a_snapshot(cloud: Conversation) -> None:
    number, _, new = move_without(cloud)
    period = cloud.broker.registry.publications[VOLTAGE].variable.period
    assert period is not None
    slower = type(period)(period.seconds, period.per_seconds // 2)
    cloud.ask(PMU, "c1/e0", ChangePublication(name=VOLTAGE, period=slower))
    qos = ModalQos({0: QosRequest(every=3)})
    cloud.send(CENTRE, "c1/e2", ChangeSubscription(subscription_id=number, qos=qos))
    cloud.settle()
    before = [
        (each.replaced, each.is_held)
        for each in cloud.broker.registry.subscriptions[number].retiring
    ]
    assert [is_held for _, is_held in before] == [False, True, False]
    ordered = {name: cloud.broker.tables[name].wanted.digest for name in cloud.routers}

    is_restored(cloud, is_compact=True)

    found = cloud.broker.registry.subscriptions[number]
    assert [(each.replaced, each.is_held) for each in found.retiring] == before
    assert {name: cloud.broker.tables[name].wanted.digest for name in cloud.routers} == ordered
    cloud.start(without=new)
    cloud.connect(new)
    cloud.advance(60 * NS_PER_S)
    assert not found.retiring
    assert cloud.differing() == []


def test_a_contract_that_moves_for_ever_has_bounded_generations_on_the_routers(
    cloud: Conversation,
) -> None:
    number = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE).subscription_id
    for router in cloud.routers.values():
        router.is_silent = True
    for at in range(RETIRING_MAX + 8):
        qos = ModalQos({0: QosRequest(every=2 + at % 2)})
        cloud.send(CENTRE, "c1/e2", ChangeSubscription(subscription_id=number, qos=qos))
        cloud.advance(cloud.settings.confirm_within_ns)
    found = cloud.broker.registry.subscriptions[number]
    assert found.record.generation == RETIRING_MAX + 8
    assert len(found.retiring) == RETIRING_MAX

    for name, router in cloud.routers.items():
        router.is_silent = False
        cloud.confirm(name)
    cloud.advance(2 * cloud.settings.confirm_within_ns)
    assert not found.retiring
    assert generations(cloud, "c1/e2") == {found.record.generation}
    assert cloud.differing() == []


def without_retirements(cloud: Conversation) -> Iterator[bytes]:
    """Yield the journal as an old release wrote it: without retirements and their marks."""
    for operation in map(cloud.broker.decode, cloud.journal):
        if isinstance(operation, Moved):
            yield encode(replace(operation, until_retired=False))
        elif not isinstance(operation, Retired):
            yield encode(operation)


def moved_of_old(cloud: Conversation) -> tuple[int, str, str]:
    number, old, new = move_without(cloud)
    cloud.connect(new)
    cloud.settle()
    cloud.advance(NS_PER_S)
    assert any(isinstance(cloud.broker.decode(each), Moved) for each in cloud.journal)
    return number, old, new


def test_a_journal_from_before_retirements_were_written_ends_in_the_same_paths(
    cloud: Conversation,
) -> None:
    number, _, _ = moved_of_old(cloud)
    before = numbers(cloud.broker.reservations.resources)
    cloud.journal[:] = without_retirements(cloud)

    cloud.kill_broker()
    assert numbers(cloud.broker.reservations.resources) == before
    cloud.start()
    cloud.advance(NS_PER_S)

    assert not cloud.broker.registry.subscriptions[number].retiring
    assert cloud.differing() == []
    assert generations(cloud, "c1/e2") == {1}


def test_a_journal_from_before_retirements_were_written_may_remove_what_a_move_had_left(
    cloud: Conversation,
) -> None:
    number, old, _ = moved_of_old(cloud)
    for channel in cloud.channels_given:
        start, end = channel.from_router, channel.to_router
        if old in (start, end):
            assert code(cloud, RemoveChannel(request_id=1, from_router=start, to_router=end)) == 0
    assert code(cloud, RemoveRouter(request_id=2, name=old)) == 0
    cloud.journal[:] = without_retirements(cloud)

    cloud.kill_broker()
    cloud.start()

    assert old not in cloud.broker.registry.routers
    assert not cloud.broker.registry.subscriptions[number].retiring
    assert generations(cloud, "c1/e2") == {1}
