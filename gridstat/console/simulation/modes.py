"""Modes of oscillation of the system as a disturbance leaves it.

The equations of motion, linearised around the position of rest, have eigenvalues, which are
frequency and damping, and eigenvectors, which give the share of each station. Estimates from
measurements are compared with these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gridstat.console.simulation.network import PLANTS, reduce
from gridstat.console.simulation.swing import STEPS_PER_S, damping_of, inertia_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gridstat.console.simulation.swing import Array, Case, Motion

REST_S = 15
"""Seconds at the end of a motion whose mean is taken as the position of rest."""


@dataclass(frozen=True, slots=True)
class TrueMode:
    """A mode and its amplitude in the frequency of each station, by step from the last phase on."""

    frequency_hz: float
    damping_ratio: float
    amplitudes_hz: Array


def true_modes(case: Case, motion: Motion) -> list[TrueMode]:
    """The modes after the last change of the system."""
    phase = case.phases[-1]
    common = motion.angles.mean(axis=1, keepdims=True)
    rest = (motion.angles - common)[-REST_S * STEPS_PER_S :].mean(axis=0)
    reduced = reduce(phase.network)
    inner = case.emf * np.exp(1j * rest)
    mass = inertia_of(phase)[:, None]
    system = np.block(
        [
            [np.zeros((PLANTS, PLANTS)), np.eye(PLANTS)],
            [-_stiffness(inner, reduced.currents) / mass, -damping_of(phase) / mass],
        ]
    )
    values, right = np.linalg.eig(system)
    left = np.linalg.inv(right)
    away = np.hstack(
        [
            motion.angles[phase.first_step :] - rest,
            motion.speeds[phase.first_step :],
        ]
    )
    weights = (reduced.voltages * inner) / (reduced.voltages @ inner)[:, None]
    found = []
    for place in np.flatnonzero(values.imag > np.pi * 0.2):
        shape = weights.real @ right[PLANTS:, place] / np.pi
        strength = np.abs(away @ left[place])
        found.append(
            TrueMode(
                frequency_hz=float(values[place].imag / (2 * np.pi)),
                damping_ratio=float(-values[place].real / np.abs(values[place])),
                amplitudes_hz=np.outer(strength, np.abs(shape)),
            )
        )
    return found


def _stiffness(inner: NDArray[np.complex128], currents: NDArray[np.complex128]) -> Array:
    """Return the change of each plant's power with each plant's angle."""
    pulls: Array = np.imag(inner[:, None] * np.conj(currents * inner[None, :]))
    return pulls - np.diag(np.imag(inner * np.conj(currents @ inner)))
