"""Identity of a cloud's journal for its parent: a new journal is not taken for a lost one."""

from __future__ import annotations

from gridstat.net.command.tree_messages import JoinTree
from tests.unit.broker.segments.family import Family


def joined(cloud: Family) -> str:
    cloud.kill_broker()
    cloud.start()
    cloud.join()
    return cloud.last(JoinTree).journal


def test_a_journal_has_one_identity_through_restarts_and_snapshots() -> None:
    cloud = Family()
    cloud.start()
    cloud.join()
    first = cloud.last(JoinTree).journal
    assert first
    assert joined(cloud) == first
    cloud.journal = cloud.broker.snapshot()
    assert joined(cloud) == first


def test_a_journal_that_is_begun_anew_is_another() -> None:
    cloud = Family()
    cloud.start()
    cloud.join()
    first = cloud.last(JoinTree).journal
    cloud.journal = []
    assert joined(cloud) not in {"", first}
