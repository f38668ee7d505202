"""Stretches whose routers or channels the broker's file has lost, until they have found a place."""

from __future__ import annotations

from gridstat.net.command.stretch_messages import Release, Released
from gridstat.net.command.tree_messages import TreeJoined
from tests.unit.broker.stretches.family import ENTRIES, EXITS, Family, family

CONTRACT = "c9#1"


def restarted(*, is_committed: bool = True) -> Family:
    """A cloud without a channel that a stretch leads over, restarted; no router has reported."""
    cloud = family()
    cloud.reserve(CONTRACT, entries=ENTRIES[:1], exits=EXITS[1:2])
    if is_committed:
        cloud.commit(CONTRACT)
    (found,) = cloud.broker.registry.subscriptions.values()
    lost = found.record.paths[0].channel_ids[0]
    cloud.channels_given = [one for one in cloud.channels_given if one.channel_id != lost]
    cloud.kill_broker()
    assert list(cloud.broker.registry.homeless) == [found.record.subscription_id]
    return cloud


def test_a_stretch_that_could_not_move_in_is_found_and_released() -> None:
    """It finds a place at the start, and the disk does not take that."""
    cloud = restarted()
    cloud.is_journal_held = True
    cloud.carry_out(cloud.broker.start(cloud.now_ns))
    cloud.write(1)
    cloud.is_disk_full = True
    cloud.write()
    cloud.is_disk_full = cloud.is_journal_held = False
    (number,) = cloud.broker.registry.homeless
    assert cloud.broker.registry.tree.stretch(CONTRACT, 0) == number
    cloud.call_parent()
    cloud.say(TreeJoined(term=7, depth=1, above=("root",)))
    cloud.say(Release(term=7, contract=CONTRACT, generation=0, round=1))
    cloud.advance(cloud.settings.release_after_ns)
    assert cloud.last(Released).round == 1
    assert not cloud.broker.registry.homeless
    assert not cloud.broker.reservations.holds(number)
