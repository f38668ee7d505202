"""The law of a faulty link, in Python and in C: the same fates, and the rates that were asked."""

from __future__ import annotations

import math
import subprocess
from collections import Counter
from dataclasses import fields
from itertools import groupby, islice

import numpy as np
import numpy.typing as npt
import pytest

from lab.relay import Direction, Fate, LinkFaults, fates
from lab.relay.program import relay_path

MANY = 200_000
SIGMAS = 5.0
"""Seeds are fixed, so a sound law passes for ever; a wrong rate of a few per cent does not."""

SETTINGS = [
    LinkFaults(),
    LinkFaults(loss=0.05, seed=1),
    LinkFaults(loss=0.08, burst_min=3, burst_max=5, seed=2),
    LinkFaults(loss=1.0, burst_min=2, burst_max=2, seed=3),
    LinkFaults(delay_ms=8.0, jitter_ms=4.0, duplicate=0.1, reorder=0.2, corrupt=0.01, seed=4),
    LinkFaults(delay_ms=0.1, jitter_ms=0.3, loss=1 / 3, seed=2**64 - 1),
]


def table_in_c(faults: LinkFaults, direction: Direction, count: int) -> npt.NDArray[np.uint64]:
    side = str(int(direction is Direction.BACKWARD))
    command = [str(relay_path()), "fates", str(count), side, *faults.arguments()]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
    return np.array(told.split(), dtype=np.uint64).reshape(count, 7)


def column_in_c(name: str, faults: LinkFaults, count: int = MANY) -> npt.NDArray[np.int64]:
    at = [field.name for field in fields(Fate)].index(name)
    return table_in_c(faults, Direction.FORWARD, count)[:, at].astype(np.int64)


def fates_in_c(faults: LinkFaults, direction: Direction, count: int) -> list[Fate]:
    rows = table_in_c(faults, direction, count).tolist()
    return [Fate(*map(bool, row[:4]), *row[4:]) for row in rows]


def assert_rate(found: int, probability: float, count: int = MANY) -> None:
    sigma = math.sqrt(count * probability * (1 - probability))
    assert abs(found - count * probability) <= SIGMAS * sigma


@pytest.mark.parametrize("faults", SETTINGS)
@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.BACKWARD])
def test_the_law_in_c_is_the_law(faults: LinkFaults, direction: Direction) -> None:
    expected = list(islice(fates(faults, direction), 2_000))
    assert fates_in_c(faults, direction, 2_000) == expected


def test_a_seed_fixes_the_fate_of_every_frame() -> None:
    faults = LinkFaults(loss=0.3, jitter_ms=5.0, seed=7)
    forward = fates_in_c(faults, Direction.FORWARD, 1_000)
    assert fates_in_c(faults, Direction.FORWARD, 1_000) == forward
    other = LinkFaults(loss=0.3, jitter_ms=5.0, seed=8)
    assert fates_in_c(other, Direction.FORWARD, 1_000) != forward
    assert fates_in_c(faults, Direction.BACKWARD, 1_000) != forward


def test_jitter_does_not_change_which_frames_are_lost() -> None:
    plain = fates_in_c(LinkFaults(loss=0.1, seed=7), Direction.FORWARD, 1_000)
    jittery = LinkFaults(loss=0.1, jitter_ms=9.0, duplicate=0.5, reorder=0.5, seed=7)
    shaken = fates_in_c(jittery, Direction.FORWARD, 1_000)
    assert [fate.is_lost for fate in shaken] == [fate.is_lost for fate in plain]


@pytest.mark.feature("S3-92")
@pytest.mark.parametrize("loss", [0.01, 0.05, 0.5])
def test_independent_loss_is_as_frequent_as_asked(loss: float) -> None:
    assert_rate(int(column_in_c("is_lost", LinkFaults(loss=loss, seed=11)).sum()), loss)


@pytest.mark.feature("S3-92")
@pytest.mark.parametrize("name", ["duplicate", "reorder", "corrupt"])
def test_other_faults_are_as_frequent_as_asked(name: str) -> None:
    columns = {"duplicate": "is_duplicated", "reorder": "is_held", "corrupt": "is_corrupted"}
    faults = LinkFaults(**{name: 0.03}, seed=12)  # type: ignore[arg-type]
    counted = {fault: int(column_in_c(at, faults).sum()) for fault, at in columns.items()}
    assert_rate(counted.pop(name), 0.03)
    assert set(counted.values()) == {0}


@pytest.mark.parametrize(("loss", "shortest", "longest"), [(0.08, 3, 5), (0.04, 1, 4), (0.5, 2, 2)])
def test_bursts_lose_what_the_rule_says_in_the_long_run(
    loss: float, shortest: int, longest: int
) -> None:
    faults = LinkFaults(loss=loss, burst_min=shortest, burst_max=longest, seed=13)
    found = int(column_in_c("is_lost", faults).sum())
    mean = (shortest + longest) / 2
    expected = loss / (1 + loss - loss / mean)
    assert faults.loss_in_the_long_run == pytest.approx(expected)
    # Frames of a burst share one fate, so the deviation grows with the root of its length.
    sigma = math.sqrt(MANY * expected * (1 - expected) * longest)
    assert abs(found - MANY * expected) <= SIGMAS * sigma


def test_the_example_of_the_rule_loses_a_little_less_than_its_nominal_rate() -> None:
    faults = LinkFaults(loss=0.08, burst_min=3, burst_max=5)
    assert faults.loss_in_the_long_run == pytest.approx(0.0755, abs=5e-5)


def test_lengths_of_bursts_are_spread_evenly() -> None:
    # So rare that two bursts hardly ever touch and look like one.
    faults = LinkFaults(loss=0.004, burst_min=3, burst_max=5, seed=14)
    found = column_in_c("is_lost", faults, 500_000).tolist()
    runs = [len(list(run)) for is_lost, run in groupby(found) if is_lost]
    lengths = Counter(length for length in runs if length <= 5)
    assert set(lengths) == {3, 4, 5}
    whole = sum(lengths.values())
    for length in (3, 4, 5):
        assert_rate(lengths[length], 1 / 3, whole)
    assert len(runs) - whole <= 0.01 * len(runs)


def test_delays_fill_the_range_between_delay_and_delay_and_jitter() -> None:
    faults = LinkFaults(delay_ms=8.0, jitter_ms=4.0, seed=15)
    delays_ns = column_in_c("delay_ns", faults)
    assert delays_ns.min() >= 8_000_000
    assert delays_ns.max() <= 12_000_000
    assert abs(delays_ns.mean() - 10_000_000) <= SIGMAS * 4_000_000 / math.sqrt(12 * MANY)


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": 1.5},
        {"corrupt": -0.1},
        {"loss": math.nan},
        {"delay_ms": -1.0},
        {"jitter_ms": 1e9},
        {"burst_min": 0},
        {"burst_min": 3, "burst_max": 2},
        {"rate_bytes_per_s": -1},
        {"seed": 2**64},
    ],
)
def test_settings_that_no_link_can_have_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be|burst|negative"):
        LinkFaults(**wrong)  # type: ignore[arg-type]
