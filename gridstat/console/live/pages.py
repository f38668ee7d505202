"""A view as pages that fit a terminal: what is wrong first, then totals, then tables, row by row.

The layout is pure: a view and a size in, pages out. Each line of a page is made when the page is
shown, so that a view of a thousand subscriptions costs no more than the lines one sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from rich.console import Console
from rich.text import Text

from gridstat.console.fitted_table import FittedTable
from gridstat.console.shown_text import shown_text

ROWS_MIN: Final = 3
"""A table begins at the foot of a page only if so many of its rows fit there."""
WRONG: Final = "what is wrong"

Line: TypeAlias = Callable[[], Text]
Page: TypeAlias = "list[Line]"


@dataclass(frozen=True, slots=True)
class Section:
    """A table, or some lines of text, below a title."""

    title: str
    body: FittedTable | Sequence[str]


@dataclass(frozen=True, slots=True)
class View:
    """All that a screen can show; the problems with the worst one first."""

    title: str
    problems: Sequence[str] = ()
    totals: Sequence[str] = ()
    sections: Sequence[Section] = ()


def pages_of(view: View, width: int, height: int) -> list[Page]:
    """Pages of at most `height` lines, none of them wider than `width`; there is at least one."""
    layout = _Layout(max(1, width), max(1, height))
    totals = [line for text in view.totals for line in layout.folded(text)]
    cut = layout.place_problems(view.problems, len(totals))
    layout.place(totals)
    sections = list(view.sections)
    if cut:
        sections.insert(0, Section(WRONG, view.problems))
    for section in sections:
        layout.place_section(section)
    return layout.pages


class _Layout:
    """Puts line after line on pages, and begins a new page where one is full."""

    def __init__(self, width: int, height: int) -> None:
        self.pages: list[Page] = [[]]
        self._width = width
        self._height = height
        self._console = Console(width=width)

    @property
    def _room(self) -> int:
        return self._height - len(self.pages[-1])

    def folded(self, text: str) -> list[Line]:
        """A text in as many lines as it needs."""
        if not text:
            return [Text]
        lines = Text(shown_text(text)).wrap(self._console, self._width)
        return [partial(_same, line) for line in lines]

    def place(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if not self._room:
                self.pages.append([])
            self.pages[-1].append(line)

    def place_problems(self, problems: Sequence[str], below: int) -> bool:
        """One line each, so many that the totals fit below; whether some are cut or left out."""
        if not problems:
            self.place([partial(Text, "nothing is wrong", "bold green")])
            return False
        things = "1 thing is wrong" if len(problems) == 1 else f"{len(problems):,} things are wrong"
        self.place([partial(self._cut, things, "bold red")])
        room = max(1, self._room - below)
        fits = len(problems) <= room
        shown = problems if fits else problems[: max(0, room - 1)]
        self.place([partial(self._cut, f"  {problem}", "red") for problem in shown])
        if not fits:
            more = f"  {len(problems) - len(shown):,} more below"
            self.place([partial(self._cut, more, "red")])
        is_long = any(len(shown_text(problem)) + 2 > self._width for problem in shown)
        return is_long or not fits

    def place_section(self, section: Section) -> None:
        body = section.body
        if isinstance(body, FittedTable):
            table = body.lines(self._width)
            rows: list[Line] = [partial(table.row, number) for number in range(len(table))]
            heads: list[Line] = [lambda: table.head]
            note = body.note(table.hidden)
        else:
            rows = [line for text in body for line in self.folded(text)]
            heads, note = [], ""
        if not rows:
            rows, heads = self.folded("none"), []
        self._place_rows(section.title, note, heads, rows)

    def _place_rows(
        self, title: str, note: str, heads: Sequence[Line], rows: Sequence[Line]
    ) -> None:
        """The rows below their title, which stands again on each page that they reach."""
        needed = 1 + len(heads) + min(ROWS_MIN, len(rows))
        if self.pages[-1] and self._room < needed + 1:
            self.pages.append([])
        elif self.pages[-1]:
            self.place([Text])
        self._place_title(title, note, heads)
        for row in rows:
            if not self._room:
                self.pages.append([])
                self._place_title(f"{title}, continued", "", heads)
            self.place([row])

    def _place_title(self, title: str, note: str, heads: Sequence[Line]) -> None:
        """Title and column names; left out on a screen so low that no row would fit below them."""
        if self._height > 1 + len(heads):
            self.place([partial(self._titled, title, note), *heads])

    def _titled(self, title: str, note: str) -> Text:
        text = Text.assemble(
            (shown_text(title), "bold cyan"), (f"  {note}" if note else "", "yellow")
        )
        text.truncate(self._width, overflow="ellipsis")
        return text

    def _cut(self, text: str, style: str) -> Text:
        line = Text(shown_text(text), style)
        line.truncate(self._width, overflow="ellipsis")
        return line


def _same(line: Text) -> Text:
    return line
