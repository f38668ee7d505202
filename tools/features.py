"""Print the state of every checklist row; fail if the table claims more than tests show.

The rows are those of features.toml (tools/feature_rows.py). A row that the table calls covered must
be named by a mark of a test that passed in the last recorded run (tools/feature_record.py); the
mark or the folder of the test decides its reach (tools/feature_marks.py).
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from benchmarks.experiments import EXPERIMENTS
from tools.feature_record import MarkedTest, NoRecordError, read_record
from tools.feature_rows import Row, complaints, kept_figures, load

if TYPE_CHECKING:
    from collections.abc import Iterable

MEANING_SHOWN = 72


def main() -> int:
    table = load()
    wrong = complaints(table, frozenset(EXPERIMENTS))
    try:
        tested = read_record()
    except NoRecordError as error:
        return report([*wrong, str(error)])
    outcomes = {row.name: outcome(row, tested) for row in table.rows.values()}
    for row in table.rows.values():
        meaning = row.meaning
        if len(meaning) > MEANING_SHOWN:
            meaning = meaning[: MEANING_SHOWN - 1] + "…"
        print(f"{row.name:<7} {meaning:<{MEANING_SHOWN}} {outcomes[row.name][1]}")
    counted = Counter(kind for kind, _ in outcomes.values())
    print(sums(counted))
    wrong += [f"{name}: {text}" for name, (kind, text) in outcomes.items() if kind == UNPROVEN]
    wrong += misplaced(table.rows, tested)
    return report(wrong)


def report(wrong: list[str]) -> int:
    """Print the complaints; return the exit status."""
    for complaint in wrong:
        sys.stderr.write(f"error: {complaint}\n")
    return 1 if wrong else 0


REACHED, INTERNAL, UNPROVEN, LATER, DROPPED = "reached", "internal", "unproven", "later", "dropped"


def outcome(row: Row, tested: Iterable[MarkedTest]) -> tuple[str, str]:
    """Return the class of a row, and its text."""
    if row.state == "later":
        return LATER, f"later: {row.waits_for}"
    if row.state == "dropped":
        return DROPPED, f"dropped: {row.by.removesuffix('.md')}"
    mine = [each for each in tested if row.name in each.rows]
    failed = sorted({each.test for each in mine if not each.has_passed})
    if failed:
        return UNPROVEN, f"NOT COVERED: {failed[0]} did not pass"
    if not mine:
        return UNPROVEN, "NOT COVERED: no test of the run is marked with it"
    reaches = sorted({each.reach for each in mine} - {"internal"})
    reach = ", ".join(reaches) if reaches else "internal only"
    text = f"covered by {len({each.test for each in mine})} ({reach})"
    return (REACHED if reaches else INTERNAL), text + _figure(row)


def _figure(row: Row) -> str:
    if not row.experiment:
        return ""
    kept = kept_figures(row.experiment)
    value = "no result kept" if kept is None else kept[row.field]
    return f"; {row.experiment} {row.field}: {value}"


def misplaced(rows: dict[str, Row], tested: Iterable[MarkedTest]) -> list[str]:
    """Return marks of the run that name no row, or one that is not called covered."""
    named = {(name, each.test.partition("[")[0]) for each in tested for name in each.rows}
    return [
        f"{test} is marked with {name}, which is {rows[name].state if name in rows else 'no row'}"
        for name, test in sorted(named)
        if name not in rows or rows[name].state != "covered"
    ]


def sums(counted: Counter[str]) -> str:
    covered = counted[REACHED] + counted[INTERNAL]
    return (
        f"{covered} covered ({counted[REACHED]} reached through API, CLI or file, "
        f"{counted[INTERNAL]} internal only), {counted[LATER]} later, {counted[DROPPED]} dropped, "
        f"{counted[UNPROVEN]} claimed without proof, {counted.total()} in all"
    )


if __name__ == "__main__":
    sys.exit(main())
