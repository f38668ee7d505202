"""A run of the simulator ANDES as a recording: its buses become stations with PMUs.

ANDES writes `NAME_out.lst`, which names the columns, beside `NAME_out.npz`, which holds them, or,
exported by `andes plot NAME_out.lst 0 … --to-csv`, a CSV with the names in its first line. Voltages
are per unit, angles in radians against a frame that turns at the nominal frequency.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.console.simulation.recording import CHANGE_S, NOMINAL_VOLT, Recording
from gridstat.console.simulation.swing import NOMINAL_HZ
from gridstat.model.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.console.simulation.swing import Array

HINT: Final = "give the .lst, .npz or .csv that `andes run` or `andes plot --to-csv` has written"
_TIME: Final = re.compile(r"Time( \[s\])?")
_BUS: Final = re.compile(r"(?P<what>[av]) Bus (?P<bus>\S+)")


def read_andes(path: Path, nominal_hz: float = NOMINAL_HZ) -> Recording:
    """The recording of a run; raises what is wrong with its files."""
    try:
        if path.suffix == ".csv":
            names, rows = _read_csv(path)
        else:
            names = _read_names(path.with_suffix(".lst"))
            with np.load(path.with_suffix(".npz"), allow_pickle=False) as stored:
                rows = np.asarray(stored["data"], dtype=np.float64)
    except (OSError, KeyError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}", hint=HINT) from error
    if rows.ndim != 2 or rows.shape[1] != len(names) or len(rows) < 2:  # noqa: PLR2004 - A table.
        problem = f"{path}: {len(names)} names for a table of {rows.shape}"
        raise ConfigurationError(problem, hint=HINT)
    return _recording(names, rows, path, nominal_hz)


def _recording(names: list[str], rows: Array, path: Path, nominal_hz: float) -> Recording:
    time = next((place for place, name in enumerate(names) if _TIME.fullmatch(name)), None)
    found: dict[str, dict[str, int]] = {"a": {}, "v": {}}
    for place, name in enumerate(names):
        if bus := _BUS.fullmatch(name):
            found[bus["what"]][bus["bus"]] = place
    buses = [bus for bus in found["v"] if bus in found["a"]]
    if time is None or not buses:
        problem = f"{path}: no time, or no bus with both voltage and angle"
        raise ConfigurationError(problem, hint="let ANDES store `a` and `v` of its buses")
    # A switch is stored twice at its instant, before and after; what counts is what follows.
    is_last = np.append(np.diff(rows[:, time]) > 0, [True])
    kept = rows[is_last]
    times_s = kept[:, time] - kept[0, time]
    angles = np.unwrap(kept[:, [found["a"][bus] for bus in buses]], axis=0)
    return Recording(
        stations=tuple(f"bus-{bus}" for bus in buses),
        times_s=times_s,
        voltages_volt=NOMINAL_VOLT * kept[:, [found["v"][bus] for bus in buses]],
        angles_degrees=np.degrees(angles),
        frequencies_hz=nominal_hz + _turns_per_s(times_s, angles),
    )


def _turns_per_s(times_s: Array, angles: Array) -> Array:
    """Return the frequency as a PMU computes it: the change of the angle over the last moment."""
    columns = [
        (column - np.interp(times_s - CHANGE_S, times_s, column)) / (2 * np.pi * CHANGE_S)
        for column in angles.T
    ]
    # The first moment has nothing before it, and is at rest.
    turned: Array = np.array(columns).T * np.minimum(1.0, times_s / CHANGE_S)[:, None]
    return turned


def _read_names(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    names = {}
    for line in lines:
        number, name, *_ = (part.strip() for part in line.split(","))
        names[int(number)] = name
    if sorted(names) != list(range(len(names))):
        raise ValueError("the numbers of its columns have holes")
    return [names[number] for number in range(len(names))]


def _read_csv(path: Path) -> tuple[list[str], Array]:
    with path.open(encoding="utf-8", newline="") as file:
        names = [name.strip() for name in next(csv.reader(file))]
        rows: Array = np.loadtxt(file, delimiter=",", ndmin=2)
    return names, rows
