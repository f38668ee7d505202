"""Recording of PMU measurements of several stations, real or simulated: a table by time.

A recording comes from the swing model or from another program's run. Its reader interpolates
between two rows for a station and a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.model.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gridstat.console.simulation.swing import Array

NOMINAL_VOLT: Final = 345_000.0 / math.sqrt(3)
CHANGE_S: Final = 0.1
"""Seconds over which a PMU computes the change of its frequency."""
_COLUMNS: Final = ("times_s", "voltages_volt", "angles_degrees", "frequencies_hz")


@dataclass(frozen=True, slots=True)
class Phasor:
    """One measurement of one station."""

    voltage_volt: float
    angle_degrees: float
    frequency_hz: float
    frequency_change_hz_per_s: float

    def quantity(self, name: str) -> float:
        match name:
            case "voltage-magnitude":
                return self.voltage_volt
            case "voltage-angle":
                return self.angle_degrees
            case "frequency":
                return self.frequency_hz
            case "frequency-change":
                return self.frequency_change_hz_per_s
            case _:
                raise AssertionError(f"the settings let the quantity {name} pass")


@dataclass(frozen=True, slots=True)
class Recording:
    """Rows at `times_s`, which ascend; columns are stations. Angles go on beyond a turn."""

    stations: tuple[str, ...]
    times_s: Array
    voltages_volt: Array
    angles_degrees: Array
    frequencies_hz: Array

    def __post_init__(self) -> None:
        shape = (len(self.times_s), len(self.stations))
        assert self.voltages_volt.shape == shape
        assert self.angles_degrees.shape == shape
        assert self.frequencies_hz.shape == shape

    @property
    def duration_s(self) -> float:
        return float(self.times_s[-1] - self.times_s[0])

    def phasor_at(self, time_s: float, *, station: int) -> Phasor:
        """The state of a station, held at its ends before and after the recording."""
        now = [time_s]
        change_hz = self.quantity("frequency-change", now, station=station)[0]
        return Phasor(
            voltage_volt=float(self.quantity("voltage-magnitude", now, station=station)[0]),
            angle_degrees=float(self.quantity("voltage-angle", now, station=station)[0]),
            frequency_hz=float(self.quantity("frequency", now, station=station)[0]),
            frequency_change_hz_per_s=float(change_hz),
        )

    def quantity(self, name: str, times_s: Sequence[float] | Array, *, station: int) -> Array:
        """A station's measurements at given times."""
        wanted = np.asarray(times_s, dtype=np.float64)
        match name:
            case "voltage-magnitude":
                return np.interp(wanted, self.times_s, self.voltages_volt[:, station])
            case "voltage-angle":
                return wrapped(np.interp(wanted, self.times_s, self.angles_degrees[:, station]))
            case "frequency":
                return np.interp(wanted, self.times_s, self.frequencies_hz[:, station])
            case "frequency-change":
                column = self.frequencies_hz[:, station]
                now = np.interp(wanted, self.times_s, column)
                before = np.interp(wanted - CHANGE_S, self.times_s, column)
                change: Array = (now - before) / CHANGE_S
                return change
            case _:
                raise AssertionError(f"the settings let the quantity {name} pass")


def save_recording(recording: Recording, path: Path) -> None:
    """Write the recording as a NumPy file, which `load_recording` reads on any machine."""
    columns = {name: getattr(recording, name) for name in _COLUMNS}
    np.savez_compressed(path, stations=np.array(recording.stations), **columns)


def load_recording(path: Path) -> Recording:
    """Return a recording that `save_recording` has written; raise an error for any other file."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            stations = tuple(str(name) for name in stored["stations"])
            columns = {name: np.asarray(stored[name], dtype=np.float64) for name in _COLUMNS}
    except (OSError, KeyError, ValueError) as error:
        hint = "give a recording; tools/andes_recording.py makes one of a run of ANDES"
        raise ConfigurationError(f"{path}: {error}", hint=hint) from error
    return Recording(stations, **columns)


def wrapped(degrees: Array) -> Array:
    turned: Array = (degrees + 180.0) % 360.0 - 180.0
    return turned
