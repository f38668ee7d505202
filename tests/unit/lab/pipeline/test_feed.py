"""The feed of the soak: a record says by its number what it has to be, and where it has to go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from gridstat.model.plausibility import TimeBounds, is_plausible_time
from lab.pipeline.feed import REASONS, STEP_NS, UNKNOWN_ID, RecorderRun, reasons, samples

if TYPE_CHECKING:
    from gridstat.core.samples import Samples

COUNT = 70_000
RUNS = [RecorderRun(0, 10**18), RecorderRun(1_234, 10**18)]
DELAY_NS = 2_000_000_000


def judged(fed: Samples) -> list[str]:
    """One by one, as the pipeline does it by whole columns."""
    seen: set[tuple[int, int, int]] = set()
    found = []
    for row in fed:
        identity = int(row["variable_id"]), int(row["created_ns"]), int(row["sequence"])
        times_ns = int(row["created_ns"]), int(row["received_ns"])
        if identity[0] == UNKNOWN_ID:
            found.append("unknown_stream")
        elif not is_plausible_time(*times_ns, TimeBounds()):
            found.append("implausible_time")
        elif not np.isfinite(row["value"].view(np.float64)):
            found.append("not_finite")
        else:
            found.append("duplicate" if identity in seen else "")
            seen.add(identity)
    return found


@pytest.mark.parametrize("run", RUNS)
def test_the_number_of_a_record_tells_where_it_goes(run: RecorderRun) -> None:
    fed = samples(run, run.first, COUNT, run.began_ns)
    numbers = np.arange(run.first, run.first + COUNT)
    expected = reasons(numbers, fed["sequence"].astype(np.int64)).tolist()
    assert judged(fed) == expected
    assert set(expected) == {"", *REASONS}


def test_events_are_the_same_however_they_are_cut() -> None:
    run = RecorderRun(500, 10**18)
    whole = samples(run, 500, 1_000, run.began_ns)
    parts = [samples(run, first, 100, run.began_ns) for first in range(500, 1_500, 100)]
    assert np.array_equal(whole, np.concatenate(parts))


def test_a_record_in_the_place_of_another_is_noticed() -> None:
    run = RecorderRun(0, 10**18)
    sequence = samples(run, 0, 1_000, run.began_ns)["sequence"].astype(np.int64)
    lost = np.delete(sequence, 500)
    found = reasons(np.arange(len(lost)), lost)
    assert "?" not in found[:500]
    assert set(found[500:].tolist()) == {"?"}


def test_only_a_variable_without_alarms_is_later_than_windows_wait() -> None:
    run = RecorderRun(0, 10**18)
    fed = samples(run, 0, COUNT, run.began_ns)
    late_ns = run.began_ns + np.arange(COUNT) * STEP_NS - fed["created_ns"].astype(np.int64)
    is_copy = fed["sequence"] != np.arange(COUNT) % 65_536
    too_late = set(fed["variable_id"][(late_ns >= DELAY_NS) & ~is_copy].tolist())
    assert too_late - {UNKNOWN_ID} == {8}
