"""Segments whose routers or channels the broker's file has lost, until they have found a place."""

from __future__ import annotations

from gridstat.broker.placement import PLACEMENT_TIMER
from gridstat.model.errors import StillInUse
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import ChangePublication
from gridstat.net.command.machine import Received
from gridstat.net.command.operator_messages import AddChannel
from gridstat.net.command.segment_messages import (
    NotReserved,
    Release,
    Released,
    Reserved,
    SegmentBroken,
    SegmentRestored,
    SegmentsHeld,
    SegmentUp,
)
from gridstat.net.command.tree_messages import CloseBorder, TreeJoined
from tests.unit.broker.conversation import refusal
from tests.unit.broker.segments.family import ENTRIES, EXITS, IN, Family, family
from tests.unit.broker.stand_ins import PMU, VOLTAGE

CONTRACT = "c9#1"


def without_channels(cloud: Family) -> Family:
    """Its file names none any more, so nothing that leads from router to router has a place."""
    given, cloud.channels_given = cloud.channels_given, []
    cloud.kill_broker()
    assert CONTRACT in cloud.broker.registry.tree.segments
    cloud.channels_given = given
    cloud.words.clear()
    cloud.start()
    cloud.join()
    assert cloud.broker.registry.unplaced
    return cloud


def unplaced(*, is_committed: bool = True) -> Family:
    cloud = family()
    cloud.reserve(CONTRACT, entries=ENTRIES[:1], exits=EXITS[1:2])
    if is_committed:
        cloud.commit(CONTRACT)
    return without_channels(cloud)


def restarted() -> Family:
    """A cloud without a channel that a segment leads over, restarted; no router has reported."""
    cloud = family()
    cloud.reserve(CONTRACT, entries=ENTRIES[:1], exits=EXITS[1:2])
    cloud.commit(CONTRACT)
    (found,) = cloud.broker.registry.subscriptions.values()
    lost = found.record.paths[0].channel_ids[0]
    cloud.channels_given = [one for one in cloud.channels_given if one.channel_id != lost]
    cloud.kill_broker()
    assert list(cloud.broker.registry.unplaced) == [found.record.subscription_id]
    return cloud


def test_a_segment_that_could_not_move_in_is_found_and_released() -> None:
    """It finds a place at the start, and the disk does not take that."""
    cloud = restarted()
    cloud.is_journal_held = True
    cloud.carry_out(cloud.broker.start(cloud.now_ns))
    cloud.write(1)
    cloud.is_disk_full = True
    cloud.write()
    cloud.is_disk_full = cloud.is_journal_held = False
    (number,) = cloud.broker.registry.unplaced
    assert cloud.broker.registry.tree.segment(CONTRACT, 0) == number
    cloud.call_parent()
    cloud.say(TreeJoined(term=7, depth=1, above=("root",)))
    cloud.say(Release(term=7, contract=CONTRACT, generation=0, round=1))
    cloud.advance(cloud.settings.release_after_ns)
    assert cloud.last(Released).round == 1
    assert not cloud.broker.registry.unplaced
    assert not cloud.broker.reservations.holds(number)


def test_the_parent_hears_of_an_unplaced_segment_as_held_and_broken() -> None:
    cloud = unplaced()
    (held,) = cloud.last(SegmentsHeld).held
    assert (held.contract, held.is_committed) == (CONTRACT, True)
    assert cloud.last(SegmentBroken).contract == CONTRACT


def test_an_unplaced_segment_is_told_as_mended_when_it_has_a_place() -> None:
    cloud = unplaced()
    for channel in cloud.channels_given:
        cloud.tell(Received("operator/c1/alice", AddChannel(request_id=1, channel=channel)))
    cloud.settle()
    assert cloud.heard(SegmentRestored) == []
    cloud.fire(PLACEMENT_TIMER)
    cloud.settle()
    assert not cloud.broker.registry.unplaced
    assert cloud.last(SegmentRestored).contract == CONTRACT
    assert cloud.last(Reserved).is_moved


def test_an_unplaced_segment_is_not_said_to_be_reserved_or_up() -> None:
    cloud = unplaced(is_committed=False)
    cloud.reserve(CONTRACT, entries=ENTRIES[:1], exits=EXITS[1:2])
    assert cloud.last(NotReserved).contract == CONTRACT
    assert cloud.heard(Reserved) == []


def test_an_unplaced_segment_that_is_committed_is_told_as_broken() -> None:
    cloud = unplaced(is_committed=False)
    assert cloud.heard(SegmentBroken) == []
    cloud.commit(CONTRACT)
    assert cloud.last(SegmentBroken).contract == CONTRACT
    assert cloud.heard(SegmentUp) == []


def test_a_channel_by_which_an_unplaced_segment_enters_is_kept() -> None:
    cloud = unplaced()
    cloud.say(CloseBorder(term=7, channel_id=IN))
    cloud.settle()
    assert IN in cloud.broker.registry.tree.borders
    cloud.release(CONTRACT)
    assert IN not in cloud.broker.registry.tree.borders


def test_a_period_does_not_change_while_an_unplaced_segment_takes_it_elsewhere() -> None:
    cloud = family()
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.reserve(CONTRACT, variable=voltage, exits=EXITS[:1])
    cloud.commit(CONTRACT)
    without_channels(cloud)
    change = ChangePublication(name=VOLTAGE, period=Period(1, 30), phase_ns=0)
    assert refusal(cloud.ask(PMU, "c1/e0", change)).code == StillInUse.code
