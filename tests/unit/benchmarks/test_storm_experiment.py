"""A neighbour of the experiment `storm` that is at rest too early fails the run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from benchmarks.experiments.experiment import Options
from benchmarks.experiments.storm import BOUNDS, Storms, idle_share

if TYPE_CHECKING:
    from benchmarks.cloud_rig import CloudRig

GRANTS_S = 0.02


class Role:
    """A process of end-points that answers at once, except for the grants that are measured."""

    def __init__(self, newest_ns: int) -> None:
        self._newest_ns = newest_ns

    def ask(self, question: dict[str, Any], *, within_s: float = 0.0) -> dict[str, Any]:
        del within_s
        if question["do"] == "matched":
            return {"matched": 1, "newest_ns": self._newest_ns}
        time.sleep(GRANTS_S)
        return {"granted": 1, "refused": {}, "took_ms": [1.0]}

    def begin(self, question: dict[str, Any]) -> None:
        self._done = len(question["questions"])

    def finish(self, *, within_s: float) -> dict[str, Any]:
        del within_s
        return {"done": self._done, "ended_ns": 0}


class Rig:
    """A rig whose stranger has its newest match at a given time."""

    def __init__(self, newest_ns: int) -> None:
        self._newest_ns = newest_ns

    def end_points(self, _: dict[str, list[str]]) -> Role:
        return Role(self._newest_ns)


def beside_many_variables(newest_ns: int) -> float:
    storms = Storms(cast("CloudRig", Rig(newest_ns)), Options({"lone": 1}))
    return storms.beside_many_variables(1).idle_share


def test_variables_that_are_matched_too_early_are_no_neighbour() -> None:
    early_ns = time.monotonic_ns()
    assert beside_many_variables(early_ns) > BOUNDS["idle_share"]


def test_variables_that_are_still_matched_at_the_end_are_one() -> None:
    late_ns = time.monotonic_ns() + 10**12
    assert beside_many_variables(late_ns) == 0.0


@pytest.mark.parametrize(
    ("until_ns", "share"), [(100, 1.0), (0, 1.0), (150, 0.5), (200, 0.0), (900, 0.0)]
)
def test_the_idle_share_is_the_part_of_the_run_after_the_work(until_ns: int, share: float) -> None:
    assert idle_share(100, 200, until_ns) == share
