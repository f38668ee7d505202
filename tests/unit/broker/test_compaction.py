"""Compaction of a journal: only when a snapshot is shorter, and not at every start."""

from __future__ import annotations

from gridstat.broker.records.operations import SNAPSHOT_MARK, NumbersReached, encode
from gridstat.broker.settings import BrokerSettings
from gridstat.broker.tree.tree_settings import TreeSettings
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CLOUD, PMU
from tests.unit.broker.tree.family import QosNode

AFTER = 20
NAMES = [f"{PMU}/{number}" for number in range(2 * AFTER)]
HISTORY = [encode(NumbersReached(variable_id=1))] * (5 * AFTER)
"""Operations that leave next to nothing."""


def large() -> Conversation:
    """A cloud whose snapshot alone is longer than what a journal may hold before the first."""
    cloud = pair(settings=BrokerSettings(CLOUD, snapshot_after=AFTER))
    for name in NAMES:
        cloud.publish(name, "c1/e0")
    cloud.journal[:] = [SNAPSHOT_MARK, *cloud.broker.snapshot()]
    return cloud


def restart(cloud: Conversation) -> None:
    cloud.kill_broker()
    cloud.start()


def test_a_short_journal_is_not_compacted_and_a_large_snapshot_only_when_it_has_doubled() -> None:
    cloud = pair(settings=BrokerSettings(CLOUD, snapshot_after=AFTER))
    cloud.publish(NAMES[0], "c1/e0")
    assert SNAPSHOT_MARK not in cloud.journal
    cloud = large()
    before = list(cloud.journal)
    restart(cloud)
    for number in range(2 * AFTER):
        cloud.publish(f"{PMU}/later{number}", "c1/e0")
    assert cloud.journal[: len(before)] == before


def test_a_start_after_a_large_snapshot_does_not_write_another() -> None:
    cloud = large()
    before = list(cloud.journal)
    for _ in range(3):
        restart(cloud)
    assert cloud.journal[: len(before)] == before


def test_a_start_after_a_large_snapshot_does_not_write_another_above_clouds_either() -> None:
    node = QosNode(TreeSettings("root"), ["c1", "c2"], ())
    node.start()
    before = [SNAPSHOT_MARK, *node.broker.snapshot()]
    node.journal[:] = before
    node.settings = TreeSettings("root", snapshot_after=len(before) - 1)
    node.kill()
    node.start()
    assert node.journal[: len(before)] == before


def test_a_journal_that_has_outgrown_its_snapshot_is_compacted_after_a_start_too() -> None:
    cloud = large()
    size = len(cloud.journal)
    cloud.journal += HISTORY * 3
    restart(cloud)
    assert cloud.journal[0] == SNAPSHOT_MARK
    assert len(cloud.journal) < size + AFTER


def test_a_broker_whose_first_term_is_not_written_keeps_its_journal_s_identity() -> None:
    """A snapshot that is due then is not a new journal."""
    cloud = pair(settings=BrokerSettings(CLOUD, snapshot_after=AFTER))
    identity = cloud.broker.registry.journal
    cloud.journal += HISTORY
    cloud.kill_broker()
    cloud.is_disk_full = True
    cloud.start()
    cloud.is_disk_full = False
    cloud.advance(cloud.settings.retry_after_ns)
    assert identity != ""
    assert cloud.broker.registry.journal == identity
