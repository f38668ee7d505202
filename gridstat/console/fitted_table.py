"""Tables that fit the terminal: every table of a command is one of these.

Each column has a rank. On a narrow terminal the columns of the highest rank are left out until the
rest fits, and one line says how many are hidden; no word is cut for the sake of a less important
column. Cells come from outside: they are shown without markup, and control
characters as escapes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gridstat.console.shown_text import shown_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import ConsoleOptions, RenderResult

GAP: Final = 2
"""Blanks between two columns of a screen."""
BORDER: Final = 3
"""Blanks and line between two columns of a printed table; a border at its edge is half of it."""
ELLIPSIS: Final = "…"

Cell: TypeAlias = "str | Text"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of rank 0 is always shown; those of the highest rank are the first to go.

    Prose may be folded, on a screen cut, down to `prose_min` cells before any column is hidden.
    """

    name: str
    rank: int = 0
    justify: Literal["left", "right"] = "left"
    prose_min: int | None = None


class FittedTable:
    """Columns by rank, and rows; printed with `print_table`, or taken as lines by a screen.

    A column that is given as a name alone has its index as its rank: the first one stays, the last
    one is hidden first.
    """

    def __init__(self, *columns: Column | str, title: str = "", instead: str = "--json") -> None:
        self.columns = [
            replace(column, name=shown_text(column.name))
            if isinstance(column, Column)
            else Column(shown_text(column), rank)
            for rank, column in enumerate(columns)
        ]
        self._title = shown_text(title)
        self._instead = instead
        self.rows: list[list[Cell]] = []
        self._natural = [cell_len(column.name) for column in self.columns]
        """The widest cell of each column."""

    def add_row(self, *cells: Cell) -> None:
        """One row; cells that are left out at its end are empty."""
        missing = len(self.columns) - len(cells)
        row = [escaped(cell) for cell in (*cells, *[""] * missing)]
        self.rows.append(row)
        self._natural = [
            max(natural, _cells(cell)) for natural, cell in zip(self._natural, row, strict=True)
        ]

    def cells_of(self, name: str) -> list[str]:
        """The cells of one column, from above."""
        (at,) = [number for number, each in enumerate(self.columns) if each.name == name]
        return [str(row[at]) for row in self.rows]

    @property
    def width(self) -> int:
        """Cells that the printed table needs to show everything in one line a row."""
        return sum(self._natural) + _between(len(self.columns), BORDER)

    def note(self, hidden: int) -> str:
        """Text with the number of hidden columns, and how to see them; empty if none is hidden."""
        if not hidden:
            return ""
        columns = "1 column" if hidden == 1 else f"{hidden} columns"
        return f"{columns} hidden: widen the terminal, or use {self._instead}"

    def shown(self, width: int, *, gap: int = BORDER) -> tuple[list[int], int]:
        """Return the indices of the columns that fit, and the number of columns with content that
        do not."""
        places = list(range(len(self.columns)))
        hidden = 0
        while self._needed(places, gap) > width:
            least = max(places, key=lambda at: (self.columns[at].rank, at))
            if self.columns[least].rank == 0:
                break
            places.remove(least)
            hidden += any(str(row[least]) for row in self.rows)
        return places, hidden

    def lines(self, width: int) -> TableLines:
        """Return the lines for a screen of this width; no line is longer, and a cut text ends in an
        ellipsis."""
        places, hidden = self.shown(width, gap=GAP)
        return TableLines(self, places, self._widths(places, width), width, hidden)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The printed table with its note; rows are folded where not even rank 0 fits."""
        places, hidden = self.shown(options.max_width)
        table = Table(title=Text(self._title) if self._title else None, pad_edge=False)
        is_tight = self._needed(places, BORDER) > options.max_width
        for at in places:
            column = self.columns[at]
            table.add_column(
                Text(column.name),
                justify=column.justify,
                no_wrap=not is_tight and column.prose_min is None,
                overflow="fold",
            )
        for row in self.rows:
            table.add_row(*(_text(row[at]) for at in places))
        yield table
        if hidden:
            yield Text(self.note(hidden), style="yellow")

    def _needed(self, places: Sequence[int], gap: int) -> int:
        return sum(self._least(at) for at in places) + _between(len(places), gap)

    def _least(self, at: int) -> int:
        """Cells below which a column is not worth showing."""
        least = self.columns[at].prose_min
        return self._natural[at] if least is None else min(self._natural[at], least)

    def _widths(self, places: Sequence[int], width: int) -> list[int]:
        """Return the width of each column of a line; prose columns shrink first, then the
        widest."""
        widths = [self._natural[at] for at in places]
        over = sum(widths) + _between(len(places), GAP) - width
        for prose_only in (True, False):
            while over > 0:
                able = [
                    number
                    for number, at in enumerate(places)
                    if widths[number] > (self._least(at) if prose_only else 1)
                ]
                if not able:
                    break
                widest = max(able, key=lambda number: widths[number])
                widths[widest] -= 1
                over -= 1
        return widths


@dataclass(frozen=True, slots=True)
class TableLines:
    """Table as lines of a screen, one a row; each line is made on access."""

    table: FittedTable
    places: Sequence[int]
    widths: Sequence[int]
    width: int
    hidden: int

    @property
    def head(self) -> Text:
        return self._line([Text(column.name, "bold underline") for column in self.table.columns])

    def row(self, number: int) -> Text:
        return self._line(self.table.rows[number])

    def __len__(self) -> int:
        return len(self.table.rows)

    def _line(self, row: Sequence[Cell]) -> Text:
        line = Text(no_wrap=True)
        for number, (at, width) in enumerate(zip(self.places, self.widths, strict=True)):
            part = _text(row[at]).copy()
            part.truncate(width, overflow="ellipsis")
            blanks = " " * (width - part.cell_len)
            is_right = self.table.columns[at].justify == "right"
            line.append(" " * GAP if number else "")
            line.append(blanks if is_right else "")
            line.append_text(part)
            line.append("" if is_right else blanks)
        line.rstrip()
        line.truncate(self.width)
        return line


def print_table(console: Console, table: FittedTable) -> None:
    """Print a table: as wide as the terminal, and into a pipe or a file with all its columns."""
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(file=console.file, width=max(console.width, table.width))
    console.print(table)


def escaped(cell: Cell) -> Cell:
    """A cell that cannot steer the terminal; its styles stay if nothing had to be escaped."""
    if isinstance(cell, str):
        return shown_text(cell)
    plain = shown_text(cell.plain)
    return cell if plain == cell.plain else Text(plain, style=cell.style)


def _text(cell: Cell) -> Text:
    """A cell as text: as it is, for rich would read a mere string as markup."""
    return Text(cell) if isinstance(cell, str) else cell


def _cells(cell: Cell) -> int:
    return cell_len(cell) if isinstance(cell, str) else cell.cell_len


def _between(count: int, gap: int) -> int:
    """All that is not a cell's content; a printed table has a border at either edge."""
    edges = 2 if gap == BORDER else 0
    return gap * max(0, count - 1) + edges
