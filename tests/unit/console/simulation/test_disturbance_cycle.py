"""The cycle of `gridstat up`: a disturbance a minute, the same in every process, and physical."""

from __future__ import annotations

import numpy as np
import pytest

from gridstat.console.simulation.disturbance_cycle import (
    BEGIN_S,
    DISTURBANCE_EVERY_S,
    DISTURBANCES,
    PERIOD_S,
    DisturbanceCycle,
    disturbance_at,
)
from gridstat.console.simulation.recording import NOMINAL_VOLT
from gridstat.console.simulation.swing import NOMINAL_HZ
from gridstat.model.alarms.runs import Series
from gridstat.model.rate_law import NS_PER_S
from gridstat.pipeline.alarm_rules import load_rules

START_S = 9_000_000 * PERIOD_S
STATIONS = range(4)
RATE = 30


@pytest.fixture(scope="module")
def cycle() -> DisturbanceCycle:
    return DisturbanceCycle()


def series_of(cycle: DisturbanceCycle, quantity: str, station: int, seconds: int) -> Series:
    slots = np.arange(seconds * RATE, dtype=np.int64)
    times_ns = START_S * NS_PER_S + slots * NS_PER_S // RATE
    values = [
        cycle.phasor_at(START_S + slot / RATE, station=station).quantity(quantity) for slot in slots
    ]
    slots_ns = np.full(len(slots), NS_PER_S // RATE, dtype=np.int64)
    return Series(times_ns, np.array(values), slots_ns, 0)


def test_restarted_processes_publish_the_same_values(cycle: DisturbanceCycle) -> None:
    again = DisturbanceCycle()
    for time_s in (START_S + 10.02, START_S + 93.7, START_S + 140.0):
        assert again.phasor_at(time_s, station=2) == cycle.phasor_at(time_s, station=2)


def test_every_round_is_the_same_but_for_the_angle(cycle: DisturbanceCycle) -> None:
    now = cycle.phasor_at(START_S + 71.3, station=1)
    then = cycle.phasor_at(START_S + 71.3 + PERIOD_S, station=1)
    assert then.frequency_hz == pytest.approx(now.frequency_hz, abs=1e-6)
    assert then.voltage_volt == pytest.approx(now.voltage_volt, abs=1.0)


def test_every_minute_begins_and_ends_at_rest(cycle: DisturbanceCycle) -> None:
    for disturbance in range(len(DISTURBANCES)):
        for offset_s in (-0.05, 0.0):
            time_s = START_S + disturbance * DISTURBANCE_EVERY_S + offset_s
            for station in STATIONS:
                found = cycle.phasor_at(time_s, station=station)
                assert found.frequency_hz == pytest.approx(NOMINAL_HZ, abs=1e-3)
                assert found.voltage_volt == pytest.approx(NOMINAL_VOLT, rel=1e-3)


def test_the_angle_turns_with_the_frequency(cycle: DisturbanceCycle) -> None:
    """The law of a phasor, wherever nothing is switched and nothing fades."""
    step_s = 0.01
    for offset_s in (15.0, 84.0, 132.5):
        now = cycle.phasor_at(START_S + offset_s, station=0)
        then = cycle.phasor_at(START_S + offset_s + step_s, station=0)
        turned = (then.angle_degrees - now.angle_degrees + 180.0) % 360.0 - 180.0
        middle_hz = (now.frequency_hz + then.frequency_hz) / 2
        assert turned / 360.0 / step_s == pytest.approx(middle_hz - NOMINAL_HZ, abs=2e-3)


def test_the_angle_does_not_jump_where_a_round_begins_again(cycle: DisturbanceCycle) -> None:
    for station in STATIONS:
        before = cycle.phasor_at(START_S + PERIOD_S - 1e-4, station=station).angle_degrees
        after = cycle.phasor_at(START_S + PERIOD_S, station=station).angle_degrees
        assert (after - before + 180.0) % 360.0 - 180.0 == pytest.approx(0.0, abs=0.1)


def test_the_frequency_change_is_the_slope_of_the_frequency(cycle: DisturbanceCycle) -> None:
    now = cycle.phasor_at(START_S + 133.0, station=3)
    before = cycle.phasor_at(START_S + 132.9, station=3)
    slope = (now.frequency_hz - before.frequency_hz) / 0.1
    assert now.frequency_change_hz_per_s == pytest.approx(slope, abs=1e-3)


def test_each_minute_raises_the_alarms_of_its_disturbance(cycle: DisturbanceCycle) -> None:
    """Check the shipped rules at the four stations of the shipped grid."""
    raised: dict[str, set[str]] = {disturbance: set() for disturbance in DISTURBANCES}
    for station in STATIONS:
        for quantity in ("frequency", "voltage-magnitude"):
            series = series_of(cycle, quantity, station, PERIOD_S)
            first_ns, last_ns = int(series.times_ns[0]) - 1, int(series.times_ns[-1])
            for rule in load_rules():
                if rule.watches(f"c1/hill/pmu-1/{quantity}"):
                    for found in rule.law.findings(series, first_ns, last_ns):
                        disturbance, since_s = disturbance_at(found.onset_ns / NS_PER_S)
                        assert 0.0 <= since_s < 15.0, (rule.name, disturbance)
                        raised[disturbance].add(rule.name)
    assert "voltage-dip" in raised["fault"]
    assert "oscillation" in raised["line-trip"]
    assert {"under-frequency-1", "under-frequency-2"} <= raised["generator-trip"]
    assert "oscillation" not in raised["fault"] | raised["generator-trip"]
    assert "under-frequency-1" not in raised["fault"] | raised["line-trip"]


def test_a_time_belongs_to_a_disturbance() -> None:
    assert disturbance_at(START_S + BEGIN_S) == ("fault", 0.0)
    assert disturbance_at(START_S + DISTURBANCE_EVERY_S) == ("line-trip", -10.0)
    assert disturbance_at(START_S + PERIOD_S - 1) == ("generator-trip", 49.0)
