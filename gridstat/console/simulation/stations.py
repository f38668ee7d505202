"""Measurements of PMUs at the buses, computed from the motion of the plants.

The voltage of a bus is a sum of the plants' inner voltages, weighted by the network, and its
frequency the speed at which that sum turns: no derivative of anything is taken, so that a switched
line gives a step in the frequency and not a needle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.console.simulation.network import BUSES, reduce
from gridstat.console.simulation.recording import NOMINAL_VOLT, Recording
from gridstat.console.simulation.swing import NOMINAL_HZ, STEP_S

if TYPE_CHECKING:
    from gridstat.console.simulation.swing import Array, Case, Motion

STATIONS: Final = tuple(f"bus-{bus}" for bus in range(BUSES))


def recording_of(case: Case, motion: Motion) -> Recording:
    """All buses at every step. Taps make the voltage at rest nominal at every bus."""
    steps = len(motion.angles)
    voltages = np.empty((steps, BUSES), np.complex128)
    turning = np.empty((steps, BUSES), np.complex128)
    inner = case.emf * np.exp(1j * motion.angles)
    ends = [phase.first_step for phase in case.phases[1:]] + [steps]
    for phase, end in zip(case.phases, ends, strict=True):
        rows = slice(phase.first_step, end)
        weights = reduce(phase.network).voltages.T
        voltages[rows] = inner[rows] @ weights
        turning[rows] = (inner[rows] * motion.speeds[rows]) @ weights
    at_rest = np.abs(voltages[0])
    deviation: Array = (turning / voltages).real / (2 * np.pi)
    return Recording(
        stations=STATIONS,
        times_s=np.arange(steps, dtype=np.float64) * STEP_S,
        voltages_volt=NOMINAL_VOLT * np.abs(voltages) / at_rest,
        angles_degrees=np.degrees(np.unwrap(np.angle(voltages), axis=0)),
        frequencies_hz=NOMINAL_HZ + deviation,
    )
