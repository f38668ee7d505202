"""Division of a process' descriptors among its listeners."""

from __future__ import annotations

import resource

import pytest

from gridstat.console.daemons.descriptors import KEPT, plan_descriptors, raise_descriptor_limit


def test_a_large_limit_restricts_nothing_and_nothing_is_said() -> None:
    plan = plan_descriptors(65_536, [1_024])
    assert plan.complaint == ""
    assert plan.tables[0].sessions_max == 10_000
    assert plan.tables[0].admission.pending_max == 256


@pytest.mark.parametrize("limit", [128, 256, 1_024, 4_096, 20_000])
@pytest.mark.parametrize("listeners", [1, 2])
def test_all_connections_together_stay_below_the_limit(limit: int, listeners: int) -> None:
    plan = plan_descriptors(limit, [100] * listeners)
    taken = sum(table.sessions_max + table.admission.pending_max for table in plan.tables)
    assert taken + KEPT <= limit


def test_a_limit_too_small_for_the_end_points_is_named_with_what_is_needed() -> None:
    plan = plan_descriptors(256, [1_024])
    assert "the limit of open files is 256, and this configuration needs 1,344" in plan.complaint
    assert "room for 144 sessions of 1,024" in plan.complaint
    assert "48 pending connections" in plan.complaint


def test_what_a_complaint_asks_for_is_enough() -> None:
    assert plan_descriptors(1_344, [1_024]).complaint == ""
    assert plan_descriptors(1_343, [1_024]).complaint != ""
    assert plan_descriptors(64 + 2 * 1_024, [5, 5]).complaint == ""
    assert plan_descriptors(64 + 2 * 1_024 - 1, [5, 5]).complaint != ""


def test_a_file_with_more_end_points_than_usual_gets_them() -> None:
    assert plan_descriptors(1_048_576, [60_000]).tables[0].sessions_max == 60_000


def test_the_limit_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] - 1, before[1]))
        assert raise_descriptor_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
