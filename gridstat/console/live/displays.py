"""Three ways to show a running grid: live tables, a line of text a second, a JSON line a second."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

from rich.live import Live

from gridstat.console.live.plain import json_line, text_line
from gridstat.console.live.tables import live_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from gridstat.console.live.closing import ClosingAccount
    from gridstat.console.live.figures import GridFigures

LOOK_AT = """\
What to look at:
  promised/s and got/s   what each subscription was promised, and what arrives
  p50, p99               router: kernel receive to send; subscriber: PMU's instant to arrival,
                         which includes the simulated PMUs' own wake-up
  lost, dup., drops      should stay 0; a drop says its reason
  newest values          every 20 s a generator trips: frequency and voltage dip and swing back\
"""


class Display(Protocol):
    """Where a person or a program looks."""

    interval_s: float

    def progress(self, text: str) -> None:
        """The grid is starting, and this is what it waits for."""

    def started(self, summary: str, processes: Mapping[str, int]) -> None:
        """The grid runs."""

    def show(self, figures: GridFigures, processes: Mapping[str, int]) -> None:
        """The newest figures."""

    def tell(self, text: str) -> None:
        """Something happened."""

    def ended(self, account: ClosingAccount) -> None:
        """The grid has ended in order."""

    def close(self) -> None:
        """Leave the terminal as it was; also after a failure."""


class LiveDisplay:
    """Tables that change in place, on a terminal."""

    interval_s = 0.5

    def __init__(self, console: Console, *, name: str) -> None:
        self._console = console
        self._name = name
        self._note = ""
        self._live: Live | None = None
        self._status = console.status("starting")
        self._status.start()

    def progress(self, text: str) -> None:
        self._status.update(text)

    def started(self, summary: str, processes: Mapping[str, int]) -> None:
        self._status.stop()
        text = f"{summary} in {len(processes)} processes\n{LOOK_AT}\n"
        self._console.print(text, markup=False, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()

    def show(self, figures: GridFigures, processes: Mapping[str, int]) -> None:
        assert self._live is not None
        tables = live_tables(figures, name=self._name, note=self._note)
        self._live.update(tables, refresh=True)

    def tell(self, text: str) -> None:
        self._note = text
        self._console.print(text, style="yellow", markup=False)

    def ended(self, account: ClosingAccount) -> None:
        self.close()
        self._console.print(account.as_text(), markup=False, highlight=False)

    def close(self) -> None:
        self._status.stop()
        if self._live is not None:
            self._live.stop()
            self._live = None


class TextDisplay:
    """Plain lines, for a pipe or a log."""

    interval_s = 1.0

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase = ""

    def progress(self, text: str) -> None:
        phase = text.partition(",")[0]
        if phase != self._phase:
            self._print(text)
        self._phase = phase

    def started(self, summary: str, processes: Mapping[str, int]) -> None:
        self._print(f"{summary} in {len(processes)} processes\n{LOOK_AT}")

    def show(self, figures: GridFigures, processes: Mapping[str, int]) -> None:
        self._print(text_line(figures))

    def tell(self, text: str) -> None:
        self._print(text)

    def ended(self, account: ClosingAccount) -> None:
        self._print(account.as_text())

    def close(self) -> None:
        """Nothing was changed that would have to be put back."""

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class JsonDisplay:
    """One object a line on standard output; what happens meanwhile goes to standard error."""

    interval_s = 1.0

    def __init__(self, console: Console, errors: Console) -> None:
        self._console = console
        self._errors = errors

    def progress(self, text: str) -> None:
        """A program that reads JSON waits for the first line."""

    def started(self, summary: str, processes: Mapping[str, int]) -> None:
        started = {"state": "started", "summary": summary, "processes": dict(processes)}
        self._print(json.dumps(started))

    def show(self, figures: GridFigures, processes: Mapping[str, int]) -> None:
        self._print(json_line(figures, processes=dict(processes)))

    def tell(self, text: str) -> None:
        self._errors.print(text, markup=False, highlight=False, soft_wrap=True)

    def ended(self, account: ClosingAccount) -> None:
        self._print(json.dumps(account.as_json()))

    def close(self) -> None:
        """Nothing was changed that would have to be put back."""

    def _print(self, text: str) -> None:
        self._console.out(text, highlight=False)
        self._console.file.flush()
