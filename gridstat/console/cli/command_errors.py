"""Failures of commands: one message with code and hint, never a traceback for a wrong input."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, ParamSpec

import typer
from rich.console import Console
from rich.text import Text

from gridstat.console.shown_text import shown_text
from gridstat.model.errors import GridStatError, Misuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EXIT_FAILURE = 1
EXIT_USAGE = 2
Options = ParamSpec("Options")


def reporting_errors(command: Callable[Options, None]) -> Callable[Options, None]:
    """Return a command that prints an error of gridstat and ends with an exit code.

    The code is 2 for a wrong request (a file, a name), and 1 for any other failure.
    """

    @functools.wraps(command)
    def run(*args: Options.args, **options: Options.kwargs) -> None:
        try:
            check_finite(options)
            check_text(options)
            command(*args, **options)
        except GridStatError as error:
            print_failure(error)
            code = EXIT_USAGE if isinstance(error, Misuse) else EXIT_FAILURE
            raise typer.Exit(code) from error

    return run


def check_finite(options: Mapping[str, object]) -> None:
    """Refuse `nan` and infinity, which the bounds of options do not stop."""
    for name, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            option = f"--{name.replace('_', '-')}"
            raise Misuse(f"{option} {value} is no number", hint="write it in digits, as 1.5")


def check_text(options: Mapping[str, object]) -> None:
    """Refuse names in a wrong encoding, which no message could carry."""
    for value in options.values():
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str) and any("\ud800" <= each <= "\udfff" for each in text):
                raise Misuse(f"{text!r} is no text in UTF-8", hint="write it in UTF-8")


def print_failure(error: Exception) -> None:
    """Print `error: …`, and its hint in a line of its own, on standard error."""
    console = Console(stderr=True)
    hint = getattr(error, "hint", "")
    text = f"error: {error}"
    print_plainly(console, text.removesuffix(f"\nhint: {hint}"))
    if hint:
        print_plainly(console, f"hint: {hint}")


def print_plainly(console: Console, text: str, *, style: str = "") -> None:
    """Print a text as one line, without markup, codes of emoji, wrapping or control characters.

    File names may contain brackets, and text from outside must neither control the terminal nor
    begin a line of its own.
    """
    console.print(Text(shown_text(text), style), soft_wrap=True)
