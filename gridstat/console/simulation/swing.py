"""Swings of plants against each other: the classical model, many cases side by side by RK4.

A plant is a voltage of fixed size behind a reactance and a rotating mass; its angle follows what
its turbine gives and the network takes. Governors answer to the frequency with a lag. Damping is
given for the common motion, between the areas and within them, as stabilisers are tuned for each.
A step is one cycle of 60 Hz, so that faults last whole cycles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from gridstat.console.simulation.network import PLANTS, reduce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gridstat.console.simulation.network import Network

Array: TypeAlias = "NDArray[np.float64]"

NOMINAL_HZ: Final = 60.0
STEPS_PER_S: Final = 60
STEP_S: Final = 1.0 / STEPS_PER_S
NOMINAL_RAD_PER_S: Final = 2 * np.pi * NOMINAL_HZ
GOVERNOR_S: Final = 4.0
GOVERNOR_DROOP: Final = 0.05
INERTIA_S: Final = 6.0
COMMON_DAMPING: Final = 0.006
LOCAL_DAMPING_RATIO: Final = 0.15
LOCAL_RAD_PER_S: Final = 7.5
INTER_RAD_PER_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class Phase:
    """The system from a step on: its network, the turbines' set points, and how it is damped."""

    first_step: int
    network: Network
    power: tuple[float, ...]
    damping_ratio: float


@dataclass(frozen=True, slots=True)
class Case:
    """One history: plants at rest at the start, phases in order, and noise of the loads."""

    emf: Array
    angles: Array
    phases: tuple[Phase, ...]
    noise: Array


@dataclass(frozen=True, slots=True)
class Motion:
    """Angles and speeds of the plants by step, relative to a system at exactly 60 Hz."""

    angles: Array
    speeds: Array


@dataclass(slots=True)
class _Coefficients:
    """Coefficients of all cases at the present step."""

    currents: NDArray[np.complex128]
    inertia: Array
    damping: Array
    power: Array
    gain: Array

    def take(self, case: int, phase: Phase) -> Array:
        """Enters a phase; returns which share of each plant's turbines is left by it."""
        inertia = inertia_of(phase)
        left: Array = inertia / np.where(self.inertia[case] > 0, self.inertia[case], inertia)
        self.currents[case] = reduce(phase.network).currents
        self.inertia[case] = inertia
        self.damping[case] = damping_of(phase)
        self.power[case] = phase.power
        self.gain[case] = phase.network.running
        self.gain[case] /= GOVERNOR_DROOP * NOMINAL_RAD_PER_S
        return left


def inertia_of(phase: Phase) -> Array:
    return 2 * INERTIA_S / NOMINAL_RAD_PER_S * np.array(phase.network.running)


def damping_of(phase: Phase) -> Array:
    """The torque that each plant gets for the speed of each."""
    areas = np.kron(np.eye(2), np.full((2, 2), 0.5))
    common = np.full((PLANTS, PLANTS), 1 / PLANTS)
    mass = 2 * INERTIA_S / NOMINAL_RAD_PER_S
    between = 2 * mass * INTER_RAD_PER_S * phase.damping_ratio
    local = 2 * mass * LOCAL_RAD_PER_S * LOCAL_DAMPING_RATIO
    damping: Array = (
        COMMON_DAMPING * common + between * (areas - common) + local * (np.eye(PLANTS) - areas)
    )
    return damping


def at_rest(emf: Array, angles: Array, network: Network) -> tuple[float, ...]:
    """Return the power that the turbines must give so that nothing moves."""
    inner = emf * np.exp(1j * angles)
    return tuple(float(power) for power in (inner * np.conj(reduce(network).currents @ inner)).real)


def simulate(cases: Sequence[Case]) -> list[Motion]:
    """The motions of all cases, which have the same number of steps."""
    count, steps = len(cases), len(cases[0].noise)
    emf = np.array([case.emf for case in cases])
    noise = np.array([case.noise for case in cases])
    now = _Coefficients(
        np.zeros((count, PLANTS, PLANTS), np.complex128),
        *(
            np.zeros((count, *shape))
            for shape in ((PLANTS,), (PLANTS, PLANTS), (PLANTS,), (PLANTS,))
        ),
    )
    changes: dict[int, list[tuple[int, Phase]]] = {}
    for index, case in enumerate(cases):
        for phase in case.phases:
            changes.setdefault(phase.first_step, []).append((index, phase))
    state = np.array([[case.angles, np.zeros(PLANTS), case.phases[0].power] for case in cases])
    history = np.empty((steps, count, 2, PLANTS))
    for step in range(steps):
        for index, phase in changes.get(step, []):
            # Units that go take their turbines with them at once.
            state[index, 2] *= now.take(index, phase)
        history[step] = state[:, :2]
        state = _rk4(state, emf, noise[:, step], now)
    return [Motion(history[:, index, 0], history[:, index, 1]) for index in range(count)]


def _rk4(state: Array, emf: Array, noise: Array, now: _Coefficients) -> Array:
    first = _change(state, emf, noise, now)
    second = _change(state + STEP_S / 2 * first, emf, noise, now)
    third = _change(state + STEP_S / 2 * second, emf, noise, now)
    fourth = _change(state + STEP_S * third, emf, noise, now)
    return state + STEP_S / 6 * (first + 2 * (second + third) + fourth)


def _change(state: Array, emf: Array, noise: Array, now: _Coefficients) -> Array:
    angles, speeds, turbines = state[:, 0], state[:, 1], state[:, 2]
    inner = emf * np.exp(1j * angles)
    currents = (now.currents @ inner[:, :, None])[:, :, 0]
    taken = inner.real * currents.real + inner.imag * currents.imag
    braked = (now.damping @ speeds[:, :, None])[:, :, 0]
    changed = np.empty_like(state)
    changed[:, 0] = speeds
    changed[:, 1] = (turbines + noise - taken - braked) / now.inertia
    changed[:, 2] = (now.power - now.gain * speeds - turbines) / GOVERNOR_S
    return changed
