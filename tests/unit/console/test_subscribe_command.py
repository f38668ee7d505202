"""`gridstat subscribe`: its lines for events, and for a pattern that nothing matches."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from gridstat.console.cli.subscribe import NO_MATCH_AFTER_S, Printer
from gridstat.endpoint.connection import Connection
from gridstat.model.identifiers import VariableId
from gridstat.model.qos import QosRequest
from gridstat.model.status import BuiltinType, Field, FieldKind, RecordType, StatusVariable
from gridstat.net.command.endpoint_messages import GrantedOutcome, Matched
from tests.unit.endpoint.paper_grid import HUNDREDTH, PaperGrid, PaperLink, granted, variable

if TYPE_CHECKING:
    from collections.abc import Iterator

PATTERN = "c1/*/v"


class Terminal:
    """The command at a terminal whose clock advances only on request."""

    def __init__(
        self, grid: PaperGrid, *, as_json: bool = False, missed: tuple[str, ...] = ()
    ) -> None:
        self.now_s = 0.0
        self.grid = grid
        self.text = io.StringIO()
        self.printer = Printer(Console(file=self.text), as_json=as_json, clock=lambda: self.now_s)
        grid.cloud.ready.append((GrantedOutcome(10, None, degraded=missed),))
        connection = Connection(PaperLink(grid))  # type: ignore[arg-type]
        self.printer.begin(connection, PATTERN, QosRequest())

    @property
    def lines(self) -> list[str]:
        return self.text.getvalue().splitlines()

    def print_after(self, seconds: float) -> None:
        self.now_s += seconds
        self.printer.print_some(0)


@pytest.fixture
def grid() -> Iterator[PaperGrid]:
    found = PaperGrid()
    yield found
    found.close()


def test_a_pattern_that_matches_nothing_says_so_once_and_waits(grid: PaperGrid) -> None:
    terminal = Terminal(grid)
    terminal.print_after(0)
    assert terminal.lines == []
    for _ in range(3):
        terminal.print_after(NO_MATCH_AFTER_S)
    assert terminal.lines == ["no variable matches c1/*/v yet, waiting"]
    terminal.printer.print_ledgers()
    assert terminal.lines[1:] == ["no variable has matched c1/*/v"]


def test_a_pattern_that_matches_is_not_called_unmatched(grid: PaperGrid) -> None:
    terminal = Terminal(grid)
    grid.book.notice_received(Matched(pattern_id=10, granted=granted(variable(), 11)), ())
    grid.work()
    terminal.print_after(NO_MATCH_AFTER_S)
    terminal.printer.print_ledgers()
    assert terminal.lines[0].startswith("granted c1/a/v")
    assert "no variable" not in terminal.text.getvalue()


def test_what_a_pattern_could_not_have_is_told_with_the_reason(grid: PaperGrid) -> None:
    terminal = Terminal(grid, as_json=True, missed=("c1/a/v was not caught: no room (1039)",))
    assert [json.loads(line) for line in terminal.lines] == [
        {"is": "missed", "reason": "c1/a/v was not caught: no room (1039)"}
    ]
    terminal.print_after(NO_MATCH_AFTER_S)
    assert json.loads(terminal.lines[1]) == {"is": "unmatched", "pattern": PATTERN}


WIDE = RecordType("wide", tuple(Field(f"f{at}", FieldKind.INT64) for at in range(3)))
"""A record that needs an option besides the event's own eight bytes."""
NARROW = RecordType("narrow", (Field("on", FieldKind.BOOL), Field("tap", FieldKind.INT8)))


def record_values(grid: PaperGrid, record: RecordType, *values: dict[str, int]) -> list[object]:
    """Return the values that the command prints for events of one batch."""
    of = StatusVariable(VariableId(1), "c1/a/v", record, HUNDREDTH)
    text = io.StringIO()
    printer = Printer(Console(file=text), as_json=True)
    grid.cloud.ready.append((granted(of),))
    printer.begin(Connection(PaperLink(grid)), of.name, QosRequest())  # type: ignore[arg-type]
    grid.send(of, *((100 + 10 * at, value) for at, value in enumerate(values)))
    printer.print_some(0)
    return [json.loads(line)["value"] for line in text.getvalue().splitlines()[1:]]


def test_every_event_of_a_record_is_printed_with_its_own_value(grid: PaperGrid) -> None:
    values = [{"f0": at, "f1": -at, "f2": 7 * at} for at in range(3)]
    assert record_values(grid, WIDE, *values) == values


def test_a_record_without_options_is_printed_with_its_own_value(grid: PaperGrid) -> None:
    values = [{"on": at % 2 == 1, "tap": at} for at in range(3)]
    assert record_values(grid, NARROW, *values) == values


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (BuiltinType.FLOAT64, [1.5, -2.25]),
        (BuiltinType.INT64, [3, -4]),
        (BuiltinType.BOOL, [True, False]),
    ],
)
def test_plain_values_are_printed_by_their_type(
    grid: PaperGrid, kind: BuiltinType, values: list[float]
) -> None:
    of = variable(value_type=kind)
    text = io.StringIO()
    printer = Printer(Console(file=text), as_json=False)
    grid.cloud.ready.append((granted(of),))
    printer.begin(Connection(PaperLink(grid)), of.name, QosRequest())  # type: ignore[arg-type]
    grid.send(of, (100, values[0]), (110, values[1]))
    printer.print_some(0)
    printed = [line.split()[2] for line in text.getvalue().splitlines()[1:]]
    assert printed == [str(value) for value in values]
