"""Remembered choices of paths: few searches, and a cost that does not grow with the contracts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.capacity import path_cache
from gridstat.broker.capacity.allocator import Allocator
from gridstat.model import paths
from gridstat.model.cloud import Router
from gridstat.model.paths.budget import STEPS_PER_S_MAX
from gridstat.model.qos import QosRequest
from tests.unit.broker.clouds import (
    DIAMOND,
    LADDER,
    LINE,
    ask,
    cloud,
    grant,
    refuse,
    variable,
    wide_enough,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from gridstat.broker.capacity.allocation import AllocationRequest

ENDS = ("e0 e1", "e2 e3")
TWICE = QosRequest(redundancy=2)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of every search that is really made."""
    made: list[dict[str, Any]] = []
    search = paths.disjoint_paths

    def counted(*arguments: Any, **options: Any) -> Any:
        made.append(options)
        return search(*arguments, **options)

    monkeypatch.setattr(path_cache, "disjoint_paths", counted)
    return made


def test_the_same_question_is_searched_once(searches: list[dict[str, Any]]) -> None:
    allocator = Allocator(cloud(LADDER))
    for number in range(1, 50):
        grant(allocator, ask(number, variable(number), ENDS, TWICE))
    assert len(searches) == 1


def test_a_variable_that_is_carried_there_already_needs_no_search(
    searches: list[dict[str, Any]],
) -> None:
    allocator = Allocator(cloud(LADDER))
    grant(allocator, ask(1, variable(1), ENDS, TWICE))
    grant(allocator, ask(2, variable(1), ENDS, TWICE))
    assert len(searches) == 1


def test_a_change_of_the_topology_forgets_the_choices(searches: list[dict[str, Any]]) -> None:
    allocator = Allocator(cloud(DIAMOND))
    first = grant(allocator, ask(1, variable(1), ("a", "d")))
    allocator.resources.mark_router(first.paths[0].routers[1], is_up=False)
    second = grant(allocator, ask(2, variable(2), ("a", "d")))
    assert len(searches) == 2
    assert second.paths[0].routers[1] != first.paths[0].routers[1]


def test_a_remembered_choice_that_is_full_is_not_taken(searches: list[dict[str, Any]]) -> None:
    allocator = Allocator(cloud(DIAMOND, bandwidth=wide_enough(68 * 60)))
    taken = [grant(allocator, ask(n, variable(n), ("a", "d"))).paths[0] for n in range(1, 5)]
    assert sorted(path.routers[1] for path in taken) == ["b", "b", "c", "c"]
    # One for each of the two ways: the full one is left out when the third asks.
    assert len(searches) == 2


def test_all_searches_of_a_request_share_a_budget(searches: list[dict[str, Any]]) -> None:
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += 0.03
        return now_s

    allocator = Allocator(cloud(LINE, bandwidth=100), clock=clock, budget_s=0.1)
    refuse(allocator, ask(1, variable(1), ("a", "c"), QosRequest(redundancy=4)))
    refuse(allocator, ask(2, variable(1), ("a", "c"), QosRequest(every_worst=2)))
    budgets = [options["budget_s"] for options in searches]
    assert max(budgets) <= 0.1
    assert min(budgets) >= 0.0
    assert sum(budgets) < 2 * path_cache.SEARCHES_PER_REQUEST * 0.1


def slow(number: int) -> AllocationRequest:
    """A request that no path is fast enough for, and each has another variable."""
    return ask(number, variable(number), ENDS, QosRequest(redundancy=2, latency_us=400))


def test_a_refusal_for_latency_is_remembered_until_a_latency_changes(
    searches: list[dict[str, Any]],
) -> None:
    allocator = Allocator(cloud(LADDER))
    refused = refuse(allocator, slow(1))
    made = len(searches)
    for number in range(2, 50):
        assert refuse(allocator, slow(number)).reason == refused.reason
    assert len(searches) == made
    # So much load on the way that its routers are predicted to take longer.
    for number in range(50, 54):
        grant(allocator, ask(number, variable(number, 50_000), ENDS, TWICE))
    searches.clear()
    refuse(allocator, slow(54))
    assert searches


def test_a_refusal_without_a_verdict_is_remembered_until_the_topology_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def without_verdict(*arguments: Any, **options: Any) -> paths.NotFound:
        asked.append(1)
        options["whole"].charge(1)
        return paths.NotFound("budget")

    monkeypatch.setattr(path_cache, "disjoint_paths", without_verdict)
    allocator = Allocator(cloud(LADDER))
    for number in range(1, 20):
        assert "time limit" in refuse(allocator, ask(number, variable(number), ENDS, TWICE)).reason
    made = len(asked)
    assert made <= 2
    allocator.resources.add_router(Router("late"))
    refuse(allocator, ask(20, variable(20), ENDS, TWICE))
    assert len(asked) > made


def test_no_verdict_in_less_than_the_whole_time_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    def without_verdict(*arguments: Any, **options: Any) -> paths.NotFound:
        asked.append(options["budget_s"])
        options["whole"].charge(STEPS_PER_S_MAX)
        return paths.NotFound("budget")

    monkeypatch.setattr(path_cache, "disjoint_paths", without_verdict)
    allocator = Allocator(cloud(LADDER))
    allocator.begin_turn()
    refuse(allocator, ask(1, variable(1), ENDS, TWICE))
    made = len(asked)
    for _ in range(2):
        refuse(allocator, ask(2, variable(2), ENDS, QosRequest(redundancy=3)))
    assert set(asked[made:]) == {0.0}
    assert len(asked) - made >= 2


def test_all_contracts_of_a_turn_share_a_budget_and_the_turn_tells_what_was_spent(
    searches: list[dict[str, Any]],
) -> None:
    allocator = Allocator(cloud(LADDER))
    allocator.begin_turn()
    grant(allocator, ask(1, variable(1), ENDS, TWICE))
    took_ns = allocator.end_turn()
    assert 0 < took_ns < 1_000_000
    assert allocator.end_turn() == 0
    grant(allocator, ask(2, variable(2), ENDS, TWICE))
    assert allocator.end_turn() == 0, "nobody's turn"


def test_a_turn_without_time_still_grants_what_a_plain_flow_finds(
    searches: list[dict[str, Any]],
) -> None:
    allocator = Allocator(cloud(LADDER), budget_s=0.0)
    allocator.begin_turn()
    grant(allocator, ask(1, variable(1), ENDS, TWICE))
    assert searches[0]["budget_s"] == 0.0


def calls_of(action: Callable[[], object]) -> int:
    """Return how many functions some work calls: a cost that does not depend on the machine."""
    count = 0

    def counting(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(counting)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def test_the_cost_of_a_subscription_does_not_grow_with_the_others() -> None:
    allocator = Allocator(cloud(LADDER, bandwidth=10**9, queue_events_max=100_000))
    number = 0

    def subscribe() -> None:
        nonlocal number
        number += 1
        grant(allocator, ask(number, variable(number), ENDS, TWICE))

    for _ in range(10):
        subscribe()
    early = min(calls_of(subscribe) for _ in range(10))
    for _ in range(1_500):
        subscribe()
    late = min(calls_of(subscribe) for _ in range(10))
    assert late <= early * 1.1
    assert late < 1_500
