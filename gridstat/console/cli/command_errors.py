"""Failures of commands: one message with code and hint, never a traceback for a wrong input."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, ParamSpec

import typer
from rich.console import Console

from gridstat.console.fitted_table import shown_text
from gridstat.model.errors import GridStatError, Misuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EXIT_FAILURE = 1
EXIT_USAGE = 2
Options = ParamSpec("Options")


def telling(command: Callable[Options, None]) -> Callable[Options, None]:
    """A command whose errors of ours are told to the person, with an exit code.

    2 for what was asked wrongly (a file, a name), 1 for what the world refused.
    """

    @functools.wraps(command)
    def run(*args: Options.args, **options: Options.kwargs) -> None:
        try:
            check_finite(options)
            command(*args, **options)
        except GridStatError as error:
            tell_failure(error)
            code = EXIT_USAGE if isinstance(error, Misuse) else EXIT_FAILURE
            raise typer.Exit(code) from error

    return run


def check_finite(options: Mapping[str, object]) -> None:
    """Bounds of options stop what is too large, but `nan` is neither above nor below any."""
    for name, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            option = f"--{name.replace('_', '-')}"
            raise Misuse(f"{option} {value} is no number", hint="write it in digits, as 1.5")


def tell_failure(error: Exception) -> None:
    """Print `error: …` and its hint on standard error."""
    print_plainly(Console(stderr=True), f"error: {error}")


def print_plainly(console: Console, text: str) -> None:
    """Text as it is, but for control characters: brackets and file names are not ours to colour or
    wrap, and what comes from outside must not steer the terminal."""
    lines = "\n".join(shown_text(line) for line in text.split("\n"))
    console.print(lines, markup=False, highlight=False, soft_wrap=True)
