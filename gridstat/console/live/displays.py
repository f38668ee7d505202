"""Three displays of a running grid: a screen, a line of text a second, a JSON line a second."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from rich.text import Text

from gridstat.console.live.pages import Section, View
from gridstat.console.live.pipeline_view import pipeline_line
from gridstat.console.live.screen import Screen
from gridstat.console.live.views import grid_view, survey_line
from gridstat.console.shown_text import shown_lines, shown_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from gridstat.console.live.closing_account import ClosingAccount
    from gridstat.console.live.grid_survey import GridSurvey

MESSAGES_KEPT: Final = 50
MESSAGES_SHOWN: Final = 3
LOOK_AT = """\
What to look at:
  routers, channels      what is promised of each, and what it carries; drops should stay 0
  subscriptions          expected, delivered, late, lost, duplicate: the ledger of each contract
  newest seconds         what Spark has rolled up of each variable, two or three seconds ago
  alarms                 disturbances that the pipeline has found, and published as status alerts
From another terminal, in this folder{first}:
  gridstat tree                                brokers, their clouds, the channels between
  gridstat explain c1/hill/pmu-1/frequency     paths, predicted latency, what is tight
  gridstat explain c2/coast/pmu-1/frequency    the same across clouds, segment by segment
  gridstat subscribe c1/hill/pmu-1/frequency   join in with a contract of your own
  gridstat top                                 the same of one cloud, by its broker alone
  gridstat subscribe 'c1/pipeline/**'          the alarms as status alerts
  gridstat pipeline query 'select * from alarms'   or any other table of the pipeline
Try to harm it: kill -9 one of the processes. Nothing with two paths is lost.\
"""


def look_at() -> str:
    """The guide; where a shell would not find the command, with how it does."""
    activate = Path(sys.executable).parent / "activate"
    is_hidden = shutil.which("gridstat") is None and activate.exists()
    return LOOK_AT.format(first=f", after `. {_near(activate)}`" if is_hidden else "")


def _near(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class Display(Protocol):
    """Display for a person or a program."""

    interval_s: float

    def progress(self, text: str) -> None:
        """The grid is starting, and this is what it waits for."""

    def started(self, summary: str, processes: Mapping[str, int]) -> None:
        """The grid runs."""

    def show(self, grid_survey: GridSurvey) -> None:
        """The newest facts, the newest value of each variable, and what the pipeline has."""

    def show_message(self, text: str) -> None:
        """Something happened."""

    def ended(self, account: ClosingAccount) -> None:
        """The grid has ended in order."""

    def close(self) -> None:
        """Leave the terminal as it was; also after a failure."""


class LiveDisplay:
    """Screen of pages that changes in place, on a terminal.

    Messages are on its first page, and are printed once more when the screen is closed.
    """

    interval_s = 0.5

    def __init__(self, console: Console) -> None:
        self._console = console
        self._screen: Screen | None = None
        self._guide = ""
        self._messages: deque[str] = deque(maxlen=MESSAGES_KEPT)
        self._grid_survey: GridSurvey | None = None
        self._status = console.status("starting")
        self._status.start()

    def progress(self, text: str) -> None:
        self._status.update(Text(shown_text(text)))

    def started(self, summary: str, processes: Mapping[str, int]) -> None:
        self._status.stop()
        self._guide = _introduction(summary, processes)
        self._console.print(Text(self._guide))
        self._screen = Screen(self._console, self._view())

    def show(self, grid_survey: GridSurvey) -> None:
        self._grid_survey = grid_survey
        self._redraw()

    def show_message(self, text: str) -> None:
        if self._screen is None:
            self._print_message(text)
        elif not self._messages or not self._messages[-1].endswith(f" {text}"):
            self._messages.append(f"{time.strftime('%H:%M:%S')} {text}")
            self._redraw()

    def ended(self, account: ClosingAccount) -> None:
        self.close()
        self._console.print(Text(account.as_text()))

    def close(self) -> None:
        self._status.stop()
        if self._screen is not None:
            self._screen.close()
            self._screen = None
            for text in self._messages:
                self._print_message(text)

    def _redraw(self) -> None:
        if self._screen is not None:
            self._screen.show(self._view())

    def _view(self) -> View:
        messages = list(self._messages)[-MESSAGES_SHOWN:]
        if self._grid_survey is None:
            guide = Section("guide", self._guide.splitlines())
            return View(
                "gridstat up", totals=["waiting for the brokers", *messages], sections=[guide]
            )
        return grid_view(self._grid_survey, messages, self._guide)

    def _print_message(self, text: str) -> None:
        self._console.print(Text(shown_text(text), "yellow"))


class TextDisplay:
    """Plain lines, for a pipe or a log."""

    interval_s = 1.0

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = ""

    def progress(self, text: str) -> None:
        if text != self._said:
            self._print(shown_text(text))
        self._said = text

    def started(self, summary: str, processes: Mapping[str, int]) -> None:
        self._print(_introduction(summary, processes))

    def show(self, grid_survey: GridSurvey) -> None:
        for survey in grid_survey.clouds:
            named = f"{survey['cloud']}: " if grid_survey.has_tree else ""
            self._print(shown_text(f"{named}{survey_line(survey)}"))
        if grid_survey.pipeline is not None:
            self._print(shown_text(pipeline_line(grid_survey.pipeline)))

    def show_message(self, text: str) -> None:
        self._print(shown_text(text))

    def ended(self, account: ClosingAccount) -> None:
        self._print(account.as_text())

    def close(self) -> None:
        """Do nothing: this display has changed no setting of the terminal."""

    def _print(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


class JsonDisplay:
    """One object a line on standard output; what happens meanwhile goes to standard error."""

    interval_s = 1.0

    def __init__(self, console: Console, errors: Console) -> None:
        self._console = console
        self._errors = errors

    def progress(self, text: str) -> None:
        """A program that reads JSON waits for the first line."""

    def started(self, summary: str, processes: Mapping[str, int]) -> None:
        self._print({"state": "started", "summary": summary, "processes": dict(processes)})

    def show(self, grid_survey: GridSurvey) -> None:
        first = grid_survey.clouds[0]
        line = {"state": "running", "survey": first, "values": dict(grid_survey.values)}
        if grid_survey.has_tree:
            line["others"] = {
                name: facts for name, facts in grid_survey.surveys.items() if facts is not first
            }
        view = grid_survey.pipeline
        self._print(line if view is None else {**line, "pipeline": view.as_json()})

    def show_message(self, text: str) -> None:
        self._errors.print(Text(shown_text(text)), soft_wrap=True)

    def ended(self, account: ClosingAccount) -> None:
        self._print(account.as_json())

    def close(self) -> None:
        """Do nothing: this display has changed no setting of the terminal."""

    def _print(self, line: Mapping[str, Any]) -> None:
        self._console.out(json.dumps(line), highlight=False)
        self._console.file.flush()


def _introduction(summary: str, processes: Mapping[str, int]) -> str:
    started = ", ".join(f"{name} {process_id}" for name, process_id in processes.items())
    return f"{shown_lines(summary)}\nprocesses: {shown_text(started)}\n{look_at()}\n"
