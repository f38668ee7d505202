"""A broker's file that was edited: what led over the lost finds another way, or ends in time."""

from __future__ import annotations

import pytest

from gridstat.net.command.endpoint_messages import Detach, DoneOutcome, GrantedOutcome, Unpublished
from gridstat.net.command.machine import Persisted
from gridstat.net.command.messages import ChannelStateChanged
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, subscribe


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    return found


def drop_channel(cloud: Conversation, channel_id: int) -> None:
    cloud.channels_given = [one for one in cloud.channels_given if one.channel_id != channel_id]


def drop_router(cloud: Conversation, name: str) -> None:
    cloud.routers_given = [one for one in cloud.routers_given if one.name != name]
    cloud.channels_given = [
        one for one in cloud.channels_given if name not in {one.from_router, one.to_router}
    ]
    del cloud.routers[name]


def restart(cloud: Conversation) -> None:
    cloud.kill_broker()
    cloud.start()


@pytest.mark.parametrize("which", ["before", "after"])
def test_a_contract_that_had_moved_survives_the_loss_of_either_channel(
    cloud: Conversation, which: str
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    before = granted.paths[0].channel_ids[0]
    (receiver,) = [one.to_router for one in cloud.channels_given if one.channel_id == before]
    cloud.hear(receiver, ChannelStateChanged(channel_id=before, is_up=False))
    cloud.settle()
    moved = cloud.broker.registry.subscriptions[granted.subscription_id].record
    after = moved.paths[0].channel_ids[0]
    assert after != before
    lost = {"before": before, "after": after}[which]

    drop_channel(cloud, lost)
    restart(cloud)

    (path,) = cloud.broker.registry.subscriptions[granted.subscription_id].record.paths
    assert lost not in path.channel_ids
    assert cloud.broker.registry.homeless == {}
    assert cloud.differing() == []


def test_an_end_point_works_by_its_other_edge_when_the_file_has_lost_one(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    used = granted.paths[0].routers[-1]
    (other,) = {"c1/e2", "c1/e3"} - {used}
    drop_router(cloud, used)
    restart(cloud)

    (path,) = cloud.broker.registry.subscriptions[granted.subscription_id].record.paths
    assert path.routers[-1] == other
    cloud.only(GrantedOutcome, cloud.ask(CENTRE, other, subscribe(VOLTAGE)))
    cloud.only(DoneOutcome, cloud.ask(CENTRE, other, Detach()))


def test_new_subscriptions_begin_at_the_edge_that_the_publisher_has_left(
    cloud: Conversation,
) -> None:
    drop_router(cloud, "c1/e0")
    restart(cloud)
    assert cloud.subscribe(CENTRE, "c1/e2", VOLTAGE).paths[0].routers[0] == "c1/e1"
    cloud.only(DoneOutcome, cloud.ask(PMU, "c1/e1", Detach()))


def test_a_contract_without_a_way_waits_for_routers_and_ends_with_the_grace_time(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.channels_given = []
    restart(cloud)
    assert list(cloud.broker.registry.homeless) == [granted.subscription_id]

    cloud.advance(cloud.settings.grace_ns)

    assert cloud.broker.registry.homeless == {}
    assert any(isinstance(notice, Unpublished) for notice in cloud.notices[CENTRE])


def test_a_full_disk_leaves_a_contract_homeless_until_it_can_move_in(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    drop_router(cloud, granted.paths[0].routers[1])
    cloud.kill_broker()
    cloud.is_journal_held = True
    cloud.carry_out(cloud.broker.start(cloud.now_ns))
    term = cloud.held_persists.popleft()
    cloud.journal.extend(term.operations)
    cloud.tell(Persisted(term.token))  # The term has begun; now the contract is to move in.
    cloud.fail_first_write()
    assert list(cloud.broker.registry.homeless) == [granted.subscription_id]

    cloud.is_journal_held = False
    for name in sorted(cloud.routers):
        cloud.connect(name)
    cloud.settle()

    assert granted.subscription_id in cloud.broker.registry.subscriptions
    assert cloud.broker.registry.homeless == {}
