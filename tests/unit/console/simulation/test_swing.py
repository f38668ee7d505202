"""The small power system obeys what is known of it by other means."""

from __future__ import annotations

import numpy as np
import pytest

from gridstat.console.simulation.disturbance import EMF, Rest, draw_disturbance, line_trip
from gridstat.console.simulation.modes import true_modes
from gridstat.console.simulation.network import PLANTS, Network, reduce
from gridstat.console.simulation.recording import NOMINAL_VOLT
from gridstat.console.simulation.scenario import Watch, scenarios
from gridstat.console.simulation.stations import recording_of
from gridstat.console.simulation.swing import STEPS_PER_S, Case, Phase, simulate
from gridstat.model.alarms.ringdown import dominant_mode
from gridstat.model.rate_law import Period
from gridstat.pipeline.alarm_rules import load_rules

REST = Rest(Network(), np.full(PLANTS, EMF), np.array([0.5, 0.45, 0.0, -0.05]))
SECONDS = 30


def quiet(*phases: Phase) -> Case:
    noise = np.zeros((SECONDS * STEPS_PER_S, PLANTS))
    return Case(REST.emf, REST.angles, (REST.phase(0.1), *phases), noise)


def test_what_is_at_rest_stays_at_rest() -> None:
    case = quiet()
    (motion,) = simulate([case])
    assert np.abs(motion.speeds).max() < 1e-9
    recording = recording_of(case, motion)
    assert np.allclose(recording.voltages_volt, NOMINAL_VOLT)
    assert np.allclose(recording.frequencies_hz, 60.0)


def test_a_fault_takes_the_voltage_and_a_missing_circuit_weakens_the_tie() -> None:
    inner = EMF * np.exp(1j * REST.angles)
    healthy = np.abs(reduce(REST.network).voltages @ inner)
    shorted = np.abs(reduce(REST.network.with_fault(4, 0.01)).voltages @ inner)
    assert shorted[4] < 0.1 * healthy[4]
    assert shorted[6] > shorted[4]
    tie = reduce(REST.network).currents[0, 2]
    weaker = reduce(REST.network.without_circuit(0)).currents[0, 2]
    assert abs(weaker) < abs(tie)


@pytest.mark.parametrize("damping_ratio", [0.005, 0.02, 0.1])
def test_the_modes_of_the_equations_are_the_swings_of_the_motion(damping_ratio: float) -> None:
    step = 60
    case = quiet(*line_trip(REST.phase(0.1), step, 0, damping_ratio))
    (motion,) = simulate([case])
    slowest = min(true_modes(case, motion), key=lambda mode: mode.frequency_hz)
    apart = (motion.speeds[:, 0] - motion.speeds[:, 3])[step + 180 : step + 780 : 6]
    seen = dominant_mode(apart, 6 / STEPS_PER_S, 0.2, 2.0)
    assert seen is not None
    assert seen.frequency_hz == pytest.approx(slowest.frequency_hz, rel=0.03)
    assert seen.damping_ratio == pytest.approx(slowest.damping_ratio, abs=0.006)


def test_cases_side_by_side_are_the_cases_alone() -> None:
    drawn = [draw_disturbance(seed).case for seed in range(3)]
    together = simulate(drawn)
    alone = simulate(drawn[2:])
    assert np.allclose(together[2].speeds, alone[0].speeds, atol=1e-9)


def test_a_seed_is_a_seed_and_draws_too_close_to_call_are_drawn_again() -> None:
    watch = Watch(load_rules(), (0, 6), ("frequency",), Period(1, 30))
    seeds = (3, 5, 7)
    first, again = scenarios(seeds, watch), scenarios(reversed(seeds), watch)
    assert [each.alarms for each in first] == [each.alarms for each in again]
    assert [each.redrawn for each in first] == [each.redrawn for each in again]
    assert all(each.reason for each in first if each.redrawn)
