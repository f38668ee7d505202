"""Repeating measurements of the PMUs of `gridstat up`: one disturbance in each minute.

The disturbances are a fault that is cleared, a tie line that is lost and badly damped until it is
closed again, and a generator that trips and whose power others take over. Loads vary all the time.
The table is computed once, in less than a second, and depends on time alone, so that each process
of PMUs, restarted or not, publishes the same values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.console.simulation.disturbance import (
    EMF,
    Rest,
    fault,
    generator_trip,
    line_trip,
    load_noise,
)
from gridstat.console.simulation.network import BUSES, MIDDLE, PLANTS, SOUTH, Network
from gridstat.console.simulation.recording import CHANGE_S, Phasor
from gridstat.console.simulation.stations import recording_of
from gridstat.console.simulation.swing import STEPS_PER_S, Case, Phase, simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.console.simulation.recording import Recording
    from gridstat.console.simulation.swing import Array

DISTURBANCE_EVERY_S: Final = 60
DISTURBANCES: Final = ("fault", "line-trip", "generator-trip")
PERIOD_S: Final = DISTURBANCE_EVERY_S * len(DISTURBANCES)
BEGIN_S: Final = 10
"""Seconds from the beginning of a minute to its disturbance."""
CLOSED_S: Final = 40
FADE_S: Final = 10
"""Seconds at the end of a minute in which everything comes to rest, for the next minute."""
TAKEN_OVER_S: Final = 25
FAULT_CYCLES: Final = 6
FAULT_REACTANCE: Final = 0.08
TRIPPED_SHARE: Final = 0.45
WELL_DAMPED: Final = 0.15
BADLY_DAMPED: Final = 0.003
SEED: Final = 1
BUS_OF_STATION: Final = (SOUTH, MIDDLE, 0, 3, 4, 1, 2)
"""Stations are numbered from 0 in the order of a grid's PMUs; the first see the most."""
_REST: Final = (0.55, 0.5, 0.0, -0.05)


class DisturbanceCycle:
    """Table of all disturbances by period of 60 Hz; the last row begins the next round."""

    def __init__(self) -> None:
        cases = _cases()
        recordings = [
            recording_of(case, motion) for case, motion in zip(cases, simulate(cases), strict=True)
        ]
        angles, self._turned_degrees = _joined_angles(recordings)
        frequencies = np.vstack([_faded(each.frequencies_hz) for each in recordings])
        before = np.roll(frequencies, round(CHANGE_S * STEPS_PER_S), axis=0)
        voltages = np.vstack([_faded(each.voltages_volt) for each in recordings])
        table = np.stack([voltages, angles, frequencies, (frequencies - before) / CHANGE_S], axis=2)
        again = table[:1].copy()
        again[:, :, 1] += self._turned_degrees
        self._table: Array = np.concatenate([table, again])

    def phasor_at(self, time_s: float, *, station: int) -> Phasor:
        """The state at a station at any time since 1970."""
        round_, within_s = divmod(time_s, PERIOD_S)
        row = within_s * STEPS_PER_S
        first = min(int(row), len(self._table) - 2)
        bus = BUS_OF_STATION[station % BUSES]
        low, high = self._table[first, bus], self._table[first + 1, bus]
        voltage, angle, frequency, change = (low + (row - first) * (high - low)).tolist()
        turned = angle + round_ * self._turned_degrees
        return Phasor(voltage, (turned + 180.0) % 360.0 - 180.0, frequency, change)


def disturbance_at(time_s: float) -> tuple[str, float]:
    """Return the disturbance of a time, and how many seconds ago it was, or will be."""
    index, within_s = divmod(time_s % PERIOD_S, DISTURBANCE_EVERY_S)
    return DISTURBANCES[int(index)], within_s - BEGIN_S


def _cases() -> list[Case]:
    rest = Rest(Network(), np.full(PLANTS, EMF), np.array(_REST))
    calm = rest.phase(WELL_DAMPED)
    begin = BEGIN_S * STEPS_PER_S
    closed = replace(calm, first_step=CLOSED_S * STEPS_PER_S)
    disturbances: tuple[tuple[Phase, ...], ...] = (
        fault(calm, (begin, begin + FAULT_CYCLES), SOUTH, FAULT_REACTANCE, WELL_DAMPED),
        (*line_trip(calm, begin, 0, BADLY_DAMPED), closed),
        _generator_trip(calm, begin),
    )
    rng = np.random.default_rng(SEED)
    return [
        Case(
            rest.emf,
            rest.angles,
            (calm, *phases),
            load_noise(rng, DISTURBANCE_EVERY_S * STEPS_PER_S),
        )
        for phases in disturbances
    ]


def _generator_trip(calm: Phase, begin: int) -> tuple[Phase, ...]:
    """Governors stop the fall; then the other plants get, second by second, orders to give more."""
    (tripped,) = generator_trip(calm, begin, 0, TRIPPED_SHARE, WELL_DAMPED)
    lost = calm.power[0] - tripped.power[0]
    seconds = range(1, TAKEN_OVER_S + 1)
    return (
        tripped,
        *(
            replace(
                tripped,
                first_step=begin + (10 + second) * STEPS_PER_S,
                power=tuple(each + lost * second / TAKEN_OVER_S / PLANTS for each in tripped.power),
            )
            for second in seconds
        ),
    )


def _faded(column: Array) -> Array:
    """Return the column with its end blended into its first row."""
    weights = _weights(len(column))[:, None]
    faded: Array = (1 - weights) * column + weights * column[0]
    return faded


def _weights(count: int) -> Array:
    """Return weights that rise smoothly from 0 to 1 over the end of a minute."""
    left = np.arange(count, 0, -1) / (FADE_S * STEPS_PER_S)
    weights: Array = 0.5 + 0.5 * np.cos(np.pi * np.clip(left, 0.0, 1.0))
    return weights


def _joined_angles(recordings: Sequence[Recording]) -> tuple[Array, float]:
    """Return the angles over all disturbances, and the turn in degrees that all stations share."""
    parts, turned = [], 0.0
    for each in recordings:
        common = each.angles_degrees.mean(axis=1, keepdims=True)
        parts.append(turned + common - common[0] + _faded(each.angles_degrees - common))
        turned += float(common[-1, 0] - common[0, 0])
    return np.vstack(parts), turned
