"""Tables on narrow terminals: whole words of the important columns, a note on the others."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.text import Text

from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.fitted_table import Column, FittedTable, print_table
from gridstat.console.shown_text import shown_text

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def sample() -> FittedTable:
    table = FittedTable(
        Column("router"),
        Column("role", 3),
        Column("state", prose_min=8),
        Column("events", 1, "right"),
        Column("thread", 2),
    )
    table.add_row("c1/north-1", "inner", "in step", "1,234,567", "ordinary")
    table.add_row("c1/west-a", "edge", "catching up", "7", "real-time 10")
    return table


def printed(table: FittedTable, width: int, *, is_terminal: bool = True) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=is_terminal, color_system=None, legacy_windows=False
    )
    print_table(console, table)
    return file.getvalue()


@pytest.mark.parametrize(
    ("width", "shown", "note"),
    [
        (80, ["router", "role", "state", "events", "thread"], ""),
        (56, ["router", "state", "events", "thread"], "1 column hidden: "),
        (38, ["router", "state", "events"], "2 columns hidden: "),
        (26, ["router", "state"], "3 columns hidden: "),
    ],
)
def test_the_least_important_columns_go_first_and_that_is_said(
    width: int, shown: list[str], note: str
) -> None:
    lines = printed(sample(), width).splitlines()
    assert re.findall(r"\w+", lines[1]) == shown
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "c1/north-1" in text, "no name is cut"
    assert "…" not in text
    assert (note in text) if note else ("hidden" not in text)


def test_the_note_names_the_way_to_see_everything() -> None:
    assert "widen the terminal, or use --json" in printed(sample(), 56)


def test_not_even_the_most_important_columns_are_cut_without_a_trace() -> None:
    lines = printed(sample(), 14).splitlines()
    assert max(map(len, lines)) <= 14
    table = "".join(line for line in lines if line.startswith("│"))
    letters = "".join(re.findall(r"[\w/-]", table))
    assert sorted(letters) == sorted("c1/north-1c1/west-ainstepcatchingup")


def test_a_column_without_content_is_not_missed() -> None:
    table = FittedTable(Column("name"), Column("worst path", 1))
    table.add_row("c1/north-1", "")
    assert table.shown(12) == ([0], 0)
    table.add_row("c1/north-1", "path 2")
    assert table.shown(12) == ([0], 1)


def test_a_column_that_is_named_alone_ranks_by_its_place() -> None:
    table = FittedTable("a", "b", "c")
    table.add_row("1", "2")
    assert table.shown(4) == ([0], 1)


def test_through_a_pipe_all_columns_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    text = printed(sample(), 20, is_terminal=False)
    assert "hidden" not in text
    for word in ("inner", "real-time 10", "1,234,567"):
        assert word in text


@pytest.mark.parametrize("width", [80, 60, 50, 34, 20, 9, 3])
def test_lines_of_a_screen_are_never_wider_than_it(width: int) -> None:
    lines = sample().lines(width)
    assert len(lines) == 2
    for line in (lines.head, lines.row(0), lines.row(1)):
        assert line.cell_len <= width


def test_a_screen_cuts_prose_before_it_hides_a_column() -> None:
    table = FittedTable(Column("router"), Column("state", prose_min=8), Column("in", 1, "right"))
    table.add_row("c1/e0", "refuses its table (3): no room", "12")
    lines = table.lines(20)
    assert lines.row(0).plain == "c1/e0   refuses…  12"
    assert lines.hidden == 0


HOSTILE = ["[red]c1[/red]", "c1/\x1b[2J\x1b]0;owned\x07", "c1/\u202egnp", "a\r\nb", "\ud800"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_from_outside_neither_steer_the_terminal_nor_are_read_as_markup(name: str) -> None:
    table = FittedTable(Column("name"), Column("styled"))
    table.add_row(name, Text(name, "green"))
    text = printed(table, 120)
    assert not CONTROL.search(text)
    row = [shown_text(name), shown_text(Text(name).plain)]
    assert [text.count(cell) >= 1 for cell in row] == [True, True]
    assert table.lines(120).row(0).plain.split("  ") == row
    file = io.StringIO()
    print_plainly(Console(file=file, width=120, force_terminal=True), f"first\n{name}")
    assert file.getvalue() == f"first\\n{shown_text(name)}\n", "it begins no line of its own"
    assert not CONTROL.search(file.getvalue())
