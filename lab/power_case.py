"""Reader of a pandapower case in the form of its `to_json`: buses, and the links between them.

pandapower itself, with its many pinned dependencies, is not needed. Its wheel contains the cases of
the literature (`pandapower/networks/power_system_test_case_jsons/case118.json`, …, up to the 9,241
buses of PEGASE); `pandapower.to_json(net, file)` writes any other net.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BRANCHES: Final = (
    ("line", "from_bus", "to_bus"),
    ("trafo", "hv_bus", "lv_bus"),
    ("trafo3w", "hv_bus", "mv_bus"),
    ("trafo3w", "hv_bus", "lv_bus"),
    ("switch", "bus", "element"),
    ("impedance", "from_bus", "to_bus"),
    ("dcline", "from_bus", "to_bus"),
)
"""The tables of branches, with the two columns that name their buses."""
IN_ONE_PLACE: Final = frozenset({"trafo", "trafo3w", "switch"})
"""Branches between buses of one substation: 0 km."""
LENGTH_KM_DEFAULT: Final = 1.0
"""Length of a line without a known length, as in all cases of pandapower's wheel.

Then the length is that of a usual line with the same reactance.
"""
BUNDLED_KV_MIN: Final = 300.0
OHM_PER_KM: Final = 0.4
OHM_PER_KM_BUNDLED: Final = 0.3
"""Reactance of overhead lines at 50 or 60 Hz: of single conductors, and of the bundles that are
usual from about 300 kV on."""
LENGTH_KM_MAX: Final = 1_000.0
"""Longest line; a higher reactance belongs to a network that was reduced to one line."""


@dataclass(frozen=True, slots=True)
class PowerCase:
    """Power case: buses in service, and pairs of them with the length of their link."""

    name: str
    buses: tuple[int, ...]
    links: tuple[tuple[int, int, float], ...]


def read_power_case(path: Path) -> PowerCase:
    """Read the case in a file; raise `LabError` if it is none."""
    try:
        tables = json.loads(path.read_text(encoding="utf-8"))["_object"]
        volts = {
            int(row["index"]): float(row.get("vn_kv") or 0.0)
            for row in _rows(tables["bus"])
            if row.get("in_service", True)
        }
        has_lengths = any(
            float(row.get("length_km") or LENGTH_KM_DEFAULT) != LENGTH_KM_DEFAULT
            for row in _rows(tables["line"])
        )
        links: dict[tuple[int, int], float] = {}
        for table, one, other in BRANCHES:
            for row in _rows(tables[table]) if table in tables else ():
                ends = tuple(sorted((int(row[one]), int(row[other]))))
                if ends[0] != ends[1] and volts.keys() >= set(ends) and _is_on(row):
                    length_km = _length_km(table, row, volts[ends[0]], has_lengths=has_lengths)
                    links.setdefault((ends[0], ends[1]), length_km)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(
            f"{path} is not a case of pandapower: {error!r}",
            hint="write it by pandapower.to_json(net, file)",
        ) from error
    found = tuple((one, other, km) for (one, other), km in sorted(links.items()))
    return PowerCase(path.stem, tuple(sorted(volts)), found)


def _is_on(row: dict[str, Any]) -> bool:
    """Return whether a branch joins two buses and is in service and closed."""
    is_between_buses = bool(row.get("et", "b") == "b")
    return is_between_buses and all(row.get(column, True) for column in ("in_service", "closed"))


def _length_km(table: str, row: dict[str, Any], kv: float, *, has_lengths: bool) -> float:
    if table in IN_ONE_PLACE:
        return 0.0
    length_km = float(row.get("length_km") or LENGTH_KM_DEFAULT)
    if has_lengths or not row.get("x_ohm_per_km"):
        return length_km
    usual = OHM_PER_KM_BUNDLED if kv >= BUNDLED_KV_MIN else OHM_PER_KM
    # A line with a series capacitor may have a negative reactance.
    return min(LENGTH_KM_MAX, abs(float(row["x_ohm_per_km"])) * length_km / usual)


def _rows(table: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, which is JSON within the JSON, as dictionaries."""
    held = table["_object"]
    frame = json.loads(held) if isinstance(held, str) else held
    for index, row in zip(frame["index"], frame["data"], strict=True):
        yield {"index": index, **dict(zip(frame["columns"], row, strict=True))}
