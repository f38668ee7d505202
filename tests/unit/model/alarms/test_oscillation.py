"""Oscillations of known frequency, damping and amplitude: measured, and reported if they last."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridstat.model.alarms import oscillation
from gridstat.model.alarms.oscillation import Oscillation
from gridstat.model.alarms.ringdown import Mode, dominant_mode, dominant_modes, modes_of
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


DEFAULT = replace(LAW, step_ns=NS_PER_S)
"""The rule that the pipeline has by default."""


def with_noise(values: np.ndarray, seed: int) -> Series:
    times_ns = START_NS + np.arange(len(values), dtype=np.int64) * NS_PER_S // 30
    noise = np.random.default_rng(seed).normal(0, 0.001, len(values))
    return Series(times_ns, 60.0 + values + noise, np.full(len(values), NS_PER_S // 30))


@pytest.mark.parametrize("frequency_hz", [0.6, 0.78, 1.0, 1.5])
@pytest.mark.parametrize("damping_ratio", [-0.08, -0.05, -0.03])
def test_a_swing_that_grows_is_told_while_it_is_small(
    frequency_hz: float, damping_ratio: float
) -> None:
    times_s = np.arange(60 * 30) / 30
    amplitudes = 0.001 * np.exp(-damping_ratio * 2 * np.pi * frequency_hz * (times_s - 10))
    values = amplitudes * np.cos(2 * np.pi * frequency_hz * times_s) * (times_s >= 10)
    stream = with_noise(values[amplitudes < 2.0], 4)
    found = DEFAULT.findings(stream, START_NS, int(stream.times_ns[-1]))[0]
    assert amplitudes[(found.onset_ns - START_NS) * 30 // NS_PER_S] < 0.4
    assert f"{frequency_hz:.2f} Hz" in found.note


def test_what_begins_at_once_does_not_grow() -> None:
    for frequency_hz, damping_ratio in ((0.6, 0.06), (1.0, 0.06), (1.5, 0.05), (1.9, 0.1)):
        stream = sampled(after(12.3, swing(frequency_hz, damping_ratio, 0.3)), seconds=40)
        assert DEFAULT.findings(stream, START_NS, int(stream.times_ns[-1])) == []


@pytest.mark.parametrize("frequency_hz", [7.8, 8.2, 9.3, 11.5])
def test_what_is_too_fast_is_not_taken_for_something_slower(frequency_hz: float) -> None:
    times_s = np.arange(40 * 30) / 30
    stream = with_noise(0.1 * np.cos(2 * np.pi * frequency_hz * times_s), 5)
    assert DEFAULT.findings(stream, START_NS, int(stream.times_ns[-1])) == []


@pytest.mark.parametrize(("fast_hz", "amplitude"), [(3.0, 0.015), (3.3, 0.1), (4.0, 0.03)])
def test_a_faster_swing_does_not_hide_a_slow_one(fast_hz: float, amplitude: float) -> None:
    times_s = np.arange(60 * 30) / 30
    values = 0.03 * np.cos(np.pi * times_s) + amplitude * np.cos(2 * np.pi * fast_hz * times_s + 1)
    stream = with_noise(values, 6)
    (found,) = DEFAULT.findings(stream, START_NS, int(stream.times_ns[-1]))
    assert found.note.startswith("0.50 Hz")


@pytest.mark.parametrize("frequency_hz", [0.3, 0.5, 1.0])
@pytest.mark.parametrize("damping_ratio", [0.05, 0.1])
def test_half_an_hour_of_a_damped_mode_that_noise_drives_is_quiet(
    frequency_hz: float, damping_ratio: float
) -> None:
    rng = np.random.default_rng(1)
    natural = 2 * np.pi * frequency_hz
    pole = np.exp(natural * (-damping_ratio + 1j * math.sqrt(1 - damping_ratio**2)) / 30)
    pushes = (rng.normal(size=54_000) + 1j * rng.normal(size=54_000)).tolist()
    driven = np.array(list(accumulate(pushes, lambda last, push: pole * last + push))).real
    stream = with_noise(driven * (0.01 / driven.std()), 7)
    assert DEFAULT.findings(stream, START_NS, int(stream.times_ns[-1])) == []


def test_a_swing_that_goes_on_is_fitted_at_few_instants(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[int] = []

    def counted(windows: np.ndarray, *rest: float) -> list[Mode | None]:
        fitted.append(len(windows))
        return dominant_modes(windows, *rest)

    monkeypatch.setattr(oscillation, "dominant_modes", counted)
    stream = with_noise(0.06 * np.cos(1.2 * np.pi * np.arange(60 * 30) / 30), 8)
    from_ns = START_NS + 55 * NS_PER_S
    assert DEFAULT.findings(stream, from_ns, from_ns + 2 * NS_PER_S) == []
    assert sum(fitted) == 3
    fitted.clear()
    calm = with_noise(np.zeros(60 * 30), 9)
    assert DEFAULT.findings(calm, from_ns, from_ns + 2 * NS_PER_S) == []
    assert fitted == []


@settings(max_examples=15)
@given(st.data())
def test_any_cut_into_batches_finds_the_same_small_and_growing_swings(data: st.DataObject) -> None:
    times_s = np.arange(70 * 30) / 30
    small = 0.03 * np.cos(np.pi * times_s) * (times_s < 40)
    grown = 0.002 * np.exp(0.2 * (times_s - 48)) * np.cos(2 * np.pi * times_s) * (times_s >= 48)
    stream = with_noise(small + grown, data.draw(st.integers(0, 9)))
    last_ns = int(stream.times_ns[-1])
    ends_ns = data.draw(cuts(START_NS, last_ns))
    expected = list(DEFAULT.findings(stream, START_NS - 1, last_ns))
    assert len(expected) == 2
    assert found_in_batches(DEFAULT, stream, ends_ns) == expected
