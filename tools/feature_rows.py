"""The rows of features.toml, and the rules of the file."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_name("features.toml")
ADRS = ROOT / "docs" / "adr"
RESULTS = ROOT / "benchmarks" / "results"

ROWS_OF: Final = {"S0": 150, "S1": 104, "S2": 96, "S3": 112, "S4": 105}
"""Number of rows in the checklist of each source, numbered from 1."""

State = Literal["covered", "later", "dropped"]
KEYS_OF: Final[dict[str, set[str]]] = {
    "covered": {"experiment", "field"},
    "later": {"waits_for"},
    "dropped": {"by"},
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a checklist; fields that do not belong to its state are empty."""

    name: str
    meaning: str
    state: str
    waits_for: str = ""
    by: str = ""
    experiment: str = ""
    field: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """All rows by name in the order of the checklists; `malformed` are keys that do not belong."""

    rows: dict[str, Row]
    capabilities: dict[str, str]
    measured: frozenset[str]
    malformed: tuple[str, ...] = ()


def load(path: Path = TABLE) -> Table:
    given: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    malformed = [f"{key} is no source" for key in given.keys() - ROWS_OF.keys() - _HEAD]
    rows = {}
    for source in ROWS_OF:
        for number, entry in given.get(source, {}).items():
            name = f"{source}-{number}"
            state = str(entry.get("state", ""))
            unknown = entry.keys() - {"meaning", "state"} - KEYS_OF.get(state, set())
            malformed += [
                f"{name}: {key} does not belong to {state or 'no state'}" for key in unknown
            ]
            texts = {key: " ".join(str(text).split()) for key, text in entry.items()}
            known = {key: text for key, text in texts.items() if key not in unknown}
            rows[name] = Row(name, **{"meaning": "", "state": "", **known})
    measured = frozenset(given.get("measured", ()))
    return Table(rows, given.get("capabilities", {}), measured, tuple(sorted(malformed)))


_HEAD: Final = {"measured", "capabilities"}


def complaints(
    table: Table, experiments: frozenset[str], *, adrs: Path = ADRS, results: Path = RESULTS
) -> list[str]:
    """Return the errors in the table that do not depend on tests."""
    found = list(table.malformed)
    for source, count in ROWS_OF.items():
        missing = {f"{source}-{number}" for number in range(1, count + 1)}
        missing ^= {name for name in table.rows if name.startswith(f"{source}-")}
        found += [f"{name}: the checklist of {source} has {count} rows" for name in sorted(missing)]
    found += [
        f"{name} is measured and no row" for name in sorted(table.measured - table.rows.keys())
    ]
    for row in table.rows.values():
        if not row.meaning:
            found.append(f"{row.name} has no meaning")
        if row.state not in get_args(State):
            found.append(f"{row.name}: its state is {row.state!r}")
        if row.state == "later" and row.waits_for not in table.capabilities:
            found.append(f"{row.name} waits for {row.waits_for!r}, which is no capability")
        if row.state == "dropped":
            found += _complaints_of_decision(row, adrs)
        if row.state == "covered":
            found += _complaints_of_figure(row, table, experiments, results)
    return found


def _complaints_of_decision(row: Row, adrs: Path) -> list[str]:
    path = adrs / row.by
    if not row.by or not path.is_file():
        return [f"{row.name} is dropped by {row.by!r}, which is no file of docs/adr"]
    is_named = re.search(rf"\b{row.name}\b", path.read_text(encoding="utf-8"))
    return [] if is_named else [f"{row.name} is not named by {row.by}, which is said to drop it"]


def _complaints_of_figure(
    row: Row, table: Table, experiments: frozenset[str], results: Path
) -> list[str]:
    if not row.experiment and not row.field:
        is_owed = row.name in table.measured
        return [f"{row.name} names no experiment and field for its figure"] if is_owed else []
    if row.experiment not in experiments:
        return [f"{row.name}: there is no experiment {row.experiment!r}"]
    kept = kept_figures(row.experiment, results)
    if not row.field or (kept is not None and row.field not in kept):
        return [f"{row.name}: the kept result of {row.experiment} has no field {row.field!r}"]
    return []


def kept_figures(experiment: str, results: Path = RESULTS) -> dict[str, Any] | None:
    """Return the kept result of an experiment, or None if the repository has none."""
    path = results / f"{experiment}.json"
    if not path.is_file():
        return None
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return figures
