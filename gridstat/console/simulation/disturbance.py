"""Disturbances from a seed: a fault, a line trip, a generator trip, or nothing but ambient noise.

Kinds alternate with the seed. After a disturbance the areas are damped well, badly or negatively,
as if stabilisers had stayed, failed or been reversed; before it, always well. A station may be
silent for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.console.simulation.network import FAULT_BUSES, PLANTS, Network
from gridstat.console.simulation.swing import STEP_S, STEPS_PER_S, Case, Phase, at_rest

if TYPE_CHECKING:
    from gridstat.console.simulation.swing import Array

KINDS: Final = ("fault", "line-trip", "generator-trip", "ambient")
DURATION_S: Final = 45
QUIET_S: Final = 12
"""Seconds before the disturbance, so that every law has seen a calm system."""
EMF: Final = 1.12
GOOD_DAMPING: Final = (0.08, 0.2)
POOR_DAMPING: Final = (0.001, 0.006)
GROWING_DAMPING: Final = (-0.03, -0.005)
"""A swing that grows until the episode ends."""
POOR_SHARE: Final = 0.7
GROWING_SHARE: Final = 0.25
"""Share of growing oscillations among badly damped ones."""
NOISE_POWER: Final = 0.002
NOISE_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Disturbance at `step`; from `cleared_step` on, only oscillations are left."""

    kind: str
    step: int
    cleared_step: int
    case: Case


@dataclass(frozen=True, slots=True)
class Rest:
    """A system before anything happens to it."""

    network: Network
    emf: Array
    angles: Array

    def phase(self, damping_ratio: float) -> Phase:
        return Phase(0, self.network, at_rest(self.emf, self.angles, self.network), damping_ratio)


def draw_disturbance(seed: int, attempt: int = 0) -> Disturbance:
    """The same for the same seed and attempt, on every machine."""
    rng = np.random.default_rng([seed, attempt])
    rest = _draw_rest(rng)
    step = QUIET_S * STEPS_PER_S + int(rng.integers(STEPS_PER_S))
    before = rest.phase(float(rng.uniform(*GOOD_DAMPING)))
    is_poor = rng.random() < POOR_SHARE
    damping_ratio = float(rng.uniform(*(POOR_DAMPING if is_poor else GOOD_DAMPING)))
    growth = np.random.default_rng([seed, attempt, 2])  # Other draws stay what they are.
    if is_poor and growth.random() < GROWING_SHARE:
        damping_ratio = float(growth.uniform(*GROWING_DAMPING))
    kind = KINDS[seed % len(KINDS)]
    cleared_step = step
    phases: tuple[Phase, ...]
    match kind:
        case "fault":
            cleared_step = step + int(rng.integers(5, 10))
            bus, reactance = int(rng.choice(FAULT_BUSES)), float(rng.uniform(0.02, 0.3))
            phases = fault(before, (step, cleared_step), bus, reactance, damping_ratio)
        case "line-trip":
            phases = line_trip(before, step, int(rng.integers(2)), damping_ratio)
        case "generator-trip":
            share = float(rng.uniform(0.05, 0.9))
            phases = generator_trip(before, step, int(rng.integers(PLANTS)), share, damping_ratio)
        case _:
            phases = ()
    noise = load_noise(rng, DURATION_S * STEPS_PER_S)
    case = Case(rest.emf, rest.angles, (before, *phases), noise)
    return Disturbance(kind, step, cleared_step, case)


def fault(
    before: Phase, steps: tuple[int, int], bus: int, reactance: float, damping_ratio: float
) -> tuple[Phase, ...]:
    """Return the phases of a short circuit at a bus, from its start and from its clearing."""
    shorted = before.network.with_fault(bus, reactance)
    return (
        Phase(steps[0], shorted, before.power, damping_ratio),
        Phase(steps[1], before.network, before.power, damping_ratio),
    )


def line_trip(before: Phase, step: int, segment: int, damping_ratio: float) -> tuple[Phase, ...]:
    """One of the two circuits of a part of the tie goes."""
    network = before.network.without_circuit(segment)
    return (Phase(step, network, before.power, damping_ratio),)


def generator_trip(
    before: Phase, step: int, plant: int, share: float, damping_ratio: float
) -> tuple[Phase, ...]:
    """A share of a plant's units goes, with their turbines and their mass."""
    network = before.network.without_units(plant, share)
    power = list(before.power)
    power[plant] *= 1.0 - share
    return (Phase(step, network, tuple(power), damping_ratio),)


def load_noise(rng: np.random.Generator, steps: int) -> Array:
    """Loads that wander: each plant feels its area's, which forget within seconds."""
    kept = np.exp(-STEP_S / NOISE_S)
    pushes = rng.normal(0.0, NOISE_POWER * np.sqrt(1 - kept**2), (2, steps)).tolist()
    north, south = (
        list(accumulate(area, lambda last, push: kept * last + push)) for area in pushes
    )
    return np.array([north, north, south, south]).T


def _draw_rest(rng: np.random.Generator) -> Rest:
    network = Network(
        tie_reactance=float(rng.uniform(0.9, 1.25)),
        loads=(float(rng.uniform(0.95, 1.15)) - 0.05j, float(rng.uniform(1.4, 1.65)) - 0.05j),
    )
    apart = float(rng.uniform(0.3, 0.65))
    angles = np.array([apart, apart - 0.05, 0.0, -0.05]) + rng.uniform(-0.03, 0.03, PLANTS)
    return Rest(network, np.full(PLANTS, EMF), angles)
