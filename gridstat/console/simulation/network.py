"""A small power system: two areas of two plants each, joined by a weak tie of two circuits.

      plant 0 ── 0 ─┐                                  ┌─ 2 ── plant 2
                    4 ══ tie, north ══ 5 ══ south ══ 6
      plant 1 ── 1 ─┘ load                        load └─ 3 ── plant 3

Loads are impedances, so the network is linear, and everything but the plants' inner voltages can
be taken out of it (Kron's reduction). Quantities are per unit of 1,000 MVA.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLANTS: Final = 4
BUSES: Final = 7
NORTH: Final = 4
MIDDLE: Final = 5
SOUTH: Final = 6
STEP_UP: Final = (0.21, 0.17, 0.20, 0.18)
"""Reactance from each plant's bus to the load of its area."""
FAULT_BUSES: Final = (NORTH, MIDDLE, SOUTH)


@dataclass(frozen=True, slots=True)
class Network:
    """State of the network: circuits of the tie, shares of the plants that run, and a fault, if
    any."""

    tie_reactance: float = 1.1
    loads: tuple[complex, complex] = (1.05 - 0.05j, 1.55 - 0.05j)
    plant_reactance: float = 0.30
    circuits: tuple[int, int] = (2, 2)
    running: tuple[float, ...] = (1.0,) * PLANTS
    fault_bus: int | None = None
    fault_reactance: float = 0.05

    def with_fault(self, bus: int, reactance: float) -> Network:
        return replace(self, fault_bus=bus, fault_reactance=reactance)

    def without_circuit(self, segment: int) -> Network:
        left = list(self.circuits)
        left[segment] -= 1
        return replace(self, circuits=(left[0], left[1]))

    def without_units(self, plant: int, share: float) -> Network:
        running = list(self.running)
        running[plant] *= 1.0 - share
        return replace(self, running=tuple(running))


@dataclass(frozen=True, slots=True)
class Reduced:
    """Seen from the inner voltages: the currents that they drive, and the voltages at the buses."""

    currents: NDArray[np.complex128]
    voltages: NDArray[np.complex128] = field(repr=False)


def reduce(network: Network) -> Reduced:
    inner = np.array([share / (1j * network.plant_reactance) for share in network.running])
    outer = _admittances(network)
    outer[np.arange(PLANTS), np.arange(PLANTS)] += inner
    mixed = np.zeros((BUSES, PLANTS), np.complex128)
    mixed[np.arange(PLANTS), np.arange(PLANTS)] = inner
    voltages: NDArray[np.complex128] = np.linalg.solve(outer, mixed).astype(np.complex128)
    return Reduced(np.diag(inner) - mixed.T @ voltages, voltages)


def _admittances(network: Network) -> NDArray[np.complex128]:
    found = np.zeros((BUSES, BUSES), np.complex128)
    areas = (NORTH, NORTH, SOUTH, SOUTH)
    for plant, (area, reactance) in enumerate(zip(areas, STEP_UP, strict=True)):
        _join(found, plant, area, 1 / (0.005 + 1j * reactance))
    ties = ((NORTH, MIDDLE), (MIDDLE, SOUTH))
    for (one, other), circuits in zip(ties, network.circuits, strict=True):
        _join(found, one, other, circuits / (network.tie_reactance * (0.05 + 1j)))
    for bus, load in zip((NORTH, SOUTH), network.loads, strict=True):
        found[bus, bus] += load
    if network.fault_bus is not None:
        found[network.fault_bus, network.fault_bus] += 1 / (1j * network.fault_reactance)
    return found


def _join(admittances: NDArray[np.complex128], one: int, other: int, admittance: complex) -> None:
    for here, there in ((one, other), (other, one)):
        admittances[here, here] += admittance
        admittances[here, there] -= admittance
