"""A broker's file that was edited: what led over the lost finds another way, or ends in time."""

from __future__ import annotations

import pytest

from gridstat.model.errors import NoSuchSubscription, RedundancyNotSatisfiable
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    Detach,
    DoneOutcome,
    GrantedOutcome,
    Matched,
    Unpublish,
    Unpublished,
    Unsubscribe,
)
from gridstat.net.command.machine import Persisted
from gridstat.net.command.messages import ChannelStateChanged
from tests.unit.broker.conversation import Conversation, pair, refusal
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
    assert cloud.broker.registry.unplaced == {}
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
    assert list(cloud.broker.registry.unplaced) == [granted.subscription_id]

    cloud.advance(cloud.settings.grace_ns)

    assert cloud.broker.registry.unplaced == {}
    assert any(isinstance(notice, Unpublished) for notice in cloud.notices[CENTRE])


def test_a_full_disk_leaves_a_contract_unplaced_until_it_can_move_in(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    drop_router(cloud, granted.paths[0].routers[1])
    cloud.kill_broker()
    cloud.is_journal_held = True
    cloud.carry_out(cloud.broker.start(cloud.now_ns))
    term = cloud.held_persists.popleft()
    cloud.journal.extend(term.operations)
    cloud.tell(Persisted(term.token))  # The term has begun; now the contract is to move in.
    cloud.fail_first_write()
    assert list(cloud.broker.registry.unplaced) == [granted.subscription_id]

    cloud.is_journal_held = False
    for name in sorted(cloud.routers):
        cloud.connect(name)
    cloud.settle()

    assert granted.subscription_id in cloud.broker.registry.subscriptions
    assert cloud.broker.registry.unplaced == {}


def make_unplaced(cloud: Conversation, name: str = VOLTAGE) -> int:
    """A contract of the centre's that has no way, since the file has no channels any more."""
    if name == VOLTAGE:
        number = cloud.subscribe(CENTRE, "c1/e2", name).subscription_id
    else:
        cloud.ask(CENTRE, "c1/e2", subscribe(name))
        (number,) = {
            notice.granted.subscription_id
            for notice in cloud.notices[CENTRE]
            if isinstance(notice, Matched)
        }
    cloud.channels_given = []
    restart(cloud)
    assert list(cloud.broker.registry.unplaced) == [number]
    return number


def test_an_unplaced_contract_is_unsubscribed_by_its_owner_for_good(cloud: Conversation) -> None:
    given = cloud.channels_given
    number = make_unplaced(cloud)

    not_its_owner = cloud.ask(PMU, "c1/e0", Unsubscribe(subscription_ids=(number,)))
    assert refusal(not_its_owner).code == NoSuchSubscription.code
    answer = cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(number,)))
    assert answer == (DoneOutcome(),)
    assert cloud.broker.registry.unplaced == {}

    cloud.channels_given = given  # Its way is back, and no contract needs it any more.
    restart(cloud)
    assert number not in cloud.broker.registry.subscriptions
    assert cloud.broker.registry.unplaced == {}
    assert cloud.differing() == []


def test_a_full_disk_keeps_an_unplaced_contract_that_was_to_end(cloud: Conversation) -> None:
    number = make_unplaced(cloud)
    cloud.is_journal_held = True
    cloud.send(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(number,)))
    assert cloud.broker.registry.unplaced == {}
    cloud.fail_first_write()
    assert list(cloud.broker.registry.unplaced) == [number]


def test_all_that_a_subscriber_ends_at_once_includes_the_unplaced(cloud: Conversation) -> None:
    make_unplaced(cloud)
    assert cloud.ask(CENTRE, "c1/e2", Unsubscribe()) == (DoneOutcome(),)
    assert cloud.broker.registry.unplaced == {}


def test_a_pattern_ends_with_the_unplaced_that_it_has_caught(cloud: Conversation) -> None:
    make_unplaced(cloud, "c1/**")
    (pattern_id,) = cloud.broker.registry.patterns
    answer = cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(pattern_id,)))
    assert answer == (DoneOutcome(),)
    assert cloud.broker.registry.unplaced == {}


def test_a_subscriber_that_leaves_takes_its_unplaced_contracts_along(cloud: Conversation) -> None:
    given = cloud.channels_given
    make_unplaced(cloud)
    cloud.only(DoneOutcome, cloud.ask(CENTRE, "c1/e2", Detach()))
    assert cloud.broker.registry.unplaced == {}
    cloud.channels_given = given
    cloud.attach(CENTRE, "c1/e2")
    restart(cloud)
    assert cloud.broker.registry.subscriptions == {}


def test_an_unplaced_contract_ends_with_its_variable_and_its_subscriber_is_told(
    cloud: Conversation,
) -> None:
    number = make_unplaced(cloud)
    cloud.only(DoneOutcome, cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,))))
    assert cloud.broker.registry.unplaced == {}
    assert Unpublished(subscription_id=number, name=VOLTAGE) in cloud.notices[CENTRE]


def test_a_change_of_an_unplaced_contract_is_refused_and_says_why(cloud: Conversation) -> None:
    given = cloud.channels_given
    number = make_unplaced(cloud)
    before = cloud.broker.registry.unplaced[number]
    command = ChangeSubscription(subscription_id=number, qos=ModalQos({0: QosRequest(every=3)}))

    refused = refusal(cloud.ask(CENTRE, "c1/e2", command))

    assert refused.code == RedundancyNotSatisfiable.code
    assert "has no path at the moment" in refused.reason
    assert cloud.broker.registry.unplaced[number] == before
    cloud.channels_given = given
    restart(cloud)
    changed = cloud.only(GrantedOutcome, cloud.ask(CENTRE, "c1/e2", command))
    assert changed.granted[0].every == 3
