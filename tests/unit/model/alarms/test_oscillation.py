"""Swings whose frequency, damping and amplitude are known are measured, and told when they stay."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridstat.model.alarms.oscillation import Oscillation
from gridstat.model.alarms.ringdown import dominant_mode, modes_of
from gridstat.model.alarms.runs import Memory, Series
from gridstat.model.rate_law import NS_PER_S
from tests.unit.model.alarms.streams import START_NS, cuts, found_in_batches, sampled

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_S = 0.1
LAW = Oscillation(
    amplitude_min=0.02,
    damping_max=0.03,
    low_hz=0.2,
    high_hz=2.0,
    window_ns=10 * NS_PER_S,
    step_ns=NS_PER_S // 2,
    bin_ns=NS_PER_S // 10,
    memory=Memory(hold_ns=2 * NS_PER_S, clear_ns=10 * NS_PER_S, gap_ns=2 * NS_PER_S),
)


def swing(
    frequency_hz: float, damping_ratio: float, amplitude: float = 1.0
) -> Callable[[float], float]:
    natural = 2 * math.pi * frequency_hz / math.sqrt(1 - damping_ratio**2)

    def value(time_s: float) -> float:
        decay = math.exp(-damping_ratio * natural * time_s)
        return amplitude * decay * math.cos(2 * math.pi * frequency_hz * time_s + 0.3)

    return value


def after(start_s: float, value: Callable[[float], float]) -> Callable[[float], float]:
    return lambda time_s: 60.0 + (value(time_s - start_s) if time_s >= start_s else 0.0)


def samples(*swings: Callable[[float], float]) -> np.ndarray:
    return np.array([sum(each(place * STEP_S) for each in swings) for place in range(100)])


@given(st.floats(0.25, 2.0), st.floats(-0.02, 0.3))
def test_a_mode_is_measured_exactly_where_there_is_no_noise(
    frequency_hz: float, damping_ratio: float
) -> None:
    mode = dominant_mode(samples(swing(frequency_hz, damping_ratio)), STEP_S, 0.1, 3.0)
    assert mode is not None
    # The mean of the samples was taken away, which leaves a mode that does not swing beside it.
    assert mode.frequency_hz == pytest.approx(frequency_hz, rel=0.02)
    assert mode.damping_ratio == pytest.approx(damping_ratio, abs=0.01)


def test_two_modes_are_told_apart() -> None:
    signal = samples(swing(0.5, 0.01), swing(1.3, 0.1, 0.5))
    signal += np.random.default_rng(1).normal(0, 0.01, len(signal))
    slow, fast = modes_of(signal, STEP_S)[:2]
    assert slow.frequency_hz == pytest.approx(0.5, rel=0.02)
    assert slow.damping_ratio == pytest.approx(0.01, abs=0.01)
    assert fast.frequency_hz == pytest.approx(1.3, rel=0.03)
    assert fast.damping_ratio == pytest.approx(0.1, abs=0.03)


def test_the_amplitude_is_that_of_the_middle_and_of_the_weaker_end() -> None:
    mode = dominant_mode(samples(swing(0.5, 0.05)), STEP_S, 0.1, 3.0)
    assert mode is not None
    natural = 2 * math.pi * 0.5 / math.sqrt(1 - 0.05**2)
    assert mode.amplitude == pytest.approx(math.exp(-0.05 * natural * 5.0), rel=0.05)
    assert mode.amplitude_min == pytest.approx(math.exp(-0.05 * natural * 9.9), rel=0.05)


def test_noise_is_no_swing() -> None:
    noise = np.random.default_rng(2).normal(0, 1, 100)
    assert modes_of(noise, STEP_S) == []
    assert modes_of(np.zeros(100), STEP_S) == []


def onsets_s(stream: Series) -> list[float]:
    found = LAW.findings(stream, START_NS, int(stream.times_ns[-1]))
    return [(finding.onset_ns - START_NS) / NS_PER_S for finding in found]


def test_a_swing_that_stays_is_told_once_with_what_it_is() -> None:
    stream = sampled(after(10, swing(0.5, 0.005, 0.05)), seconds=60)
    (found,) = LAW.findings(stream, START_NS, START_NS + 60 * NS_PER_S)
    assert 15 < (found.onset_ns - START_NS) / NS_PER_S < 24
    assert found.note.startswith("0.50 Hz")
    assert found.value == pytest.approx(0.045, abs=0.01)


@pytest.mark.parametrize("frequency_hz", [0.3, 0.5, 0.8, 1.2])
def test_a_swing_that_dies_away_is_not_told(frequency_hz: float) -> None:
    for damping in (0.07, 0.1, 0.15):
        stream = sampled(after(10, swing(frequency_hz, damping, 0.3)), seconds=40)
        assert onsets_s(stream) == []


def test_a_small_swing_is_not_told() -> None:
    assert onsets_s(sampled(after(10, swing(0.5, 0.0, 0.018)), seconds=40)) == []


def test_a_step_and_a_ramp_are_no_swing() -> None:
    assert onsets_s(sampled(lambda time_s: 59.8 if time_s > 20 else 60.0, seconds=60)) == []
    assert onsets_s(sampled(lambda time_s: 60.0 - 0.01 * time_s, seconds=60)) == []


def test_a_loss_of_generation_is_a_fall_and_no_swing() -> None:
    def fall(time_s: float) -> float:
        return -1.2 * (1 - math.exp(-time_s / 4) * math.cos(2 * math.pi * 0.1 * time_s))

    for start_s in (10.0, 10.3, 10.9):
        assert onsets_s(sampled(after(start_s, fall), seconds=40)) == []


def test_a_fifth_of_the_data_may_be_lost_and_not_half() -> None:
    whole = sampled(after(5, swing(0.5, 0.0, 0.05)), seconds=40)
    kept = np.random.default_rng(3).random(len(whole.times_ns)) > 0.2
    few = Series(whole.times_ns[kept], whole.values[kept], whole.slots_ns[kept])
    assert len(onsets_s(few)) == 1
    halves = (whole.times_ns // (NS_PER_S // 2)) % 2 == 0
    gone = Series(whole.times_ns[halves], whole.values[halves], whole.slots_ns[halves])
    assert onsets_s(gone) == []


@settings(max_examples=15)
@given(st.data())
def test_any_cut_into_batches_finds_the_same_swings(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    stream = sampled(after(8, swing(0.6, 0.002, 0.05)), seconds=40)
    noisy = Series(stream.times_ns, stream.values + rng.normal(0, 0.003, 1200), stream.slots_ns)
    last_ns = int(stream.times_ns[-1])
    ends_ns = data.draw(cuts(START_NS, last_ns))
    expected = list(LAW.findings(noisy, START_NS - 1, last_ns))
    assert len(expected) == 1
    assert found_in_batches(LAW, noisy, ends_ns) == expected
