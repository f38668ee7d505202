"""Numbers on a command line: each has bounds, and one message refuses those beyond."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from gridstat.console.cli.command_errors import reporting_errors
from gridstat.console.cli.main import COMMANDS, app
from gridstat.model.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCESS = """
cloud = "c1"
broker = { host = "127.0.0.1", port = 1 }
name_service = { host = "127.0.0.1", port = 1 }
[[edge]]
name = "c1/e0"
host = "127.0.0.1"
port = 1
"""
HAVE_THEIR_OWN_REFUSAL = {"days", "speed", "code"}
HUGE = "9" * 23
CHANNEL = ("cloud", "add-channel", "c1/a", "c1/b")


def functions_of(name: str) -> Iterator[tuple[str, Any]]:
    """The functions that a command is made of: one, or one for each of its sub-commands."""
    module = import_module(f"gridstat.console.cli.{name}")
    if not hasattr(module, "app"):
        yield name, getattr(module, name)
        return
    for command in module.app.registered_commands:
        yield f"{name} {command.name}", command.callback


def number_options(name: str) -> Iterator[tuple[str, Any]]:
    """Yield the options that take a number, by command and name."""
    for command, function in functions_of(name):
        for parameter, kind in get_type_hints(function, include_extras=True).items():
            plain, *extras = get_args(kind) or (kind,)
            if extras and {int, float} & {plain, *get_args(plain)}:
                yield f"{command} {parameter}", extras[0]


def test_every_number_on_a_command_line_has_both_bounds() -> None:
    found = {
        name: parameter
        for command in COMMANDS
        for name, parameter in number_options(command)
        if name.split()[-1] not in HAVE_THEIR_OWN_REFUSAL
    }
    assert {"top interval_s", "recorder log_mib", "cloud add-channel bandwidth"} <= set(found)
    assert [name for name, one in found.items() if one.min is None or one.max is None] == []


@pytest.mark.parametrize(
    "words",
    [
        ("subscribe", "c1/a/b", "--latency-ms", "inf"),
        ("subscribe", "c1/a/b", "--latency-ms", "nan"),
        ("subscribe", "c1/a/b", "--seconds", "nan"),
        ("recorder", "--latency-ms", "inf"),
        ("recorder", "--ledger-s", "inf"),
        ("recorder", "--ledger-s", "nan"),
        ("recorder", "--keep-days", "inf"),
        ("recorder", "--log-mib", HUGE),
        (*CHANNEL, "--latency-ms", "inf"),
        (*CHANNEL, "--latency-ms", "nan"),
        (*CHANNEL, "--bandwidth", HUGE),
        ("cloud", "add-router", "c1/a", "--events-per-s", HUGE),
        ("flood", "c1/a/b", "--modes", HUGE),
        ("flood", "c1/a/b", "--modes", "0"),
        ("flood", "c1/a/b", "--every", HUGE),
        ("top", "--interval", "nan"),
        ("pipeline", "replay", "**", "--from", "2026-01-01", "--to", "9999-12-31"),
        ("experiment", "run", "forwarding", "--seconds", "nan"),
    ],
)
def test_a_number_that_cannot_be_meant_is_one_message_and_no_traceback(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "access.toml").write_text(ACCESS, encoding="utf-8")
    folder = () if words[0] == "experiment" else ("--folder", str(tmp_path))
    result = CliRunner().invoke(app, [*words, *folder])
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit | typer.Exit | Misuse)
    assert words[-1] in result.stderr or words[-2] in result.stderr
    assert "certificate" not in result.stderr, "it was about to ask"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_number_reaches_no_command_whatever_the_options_let_pass(number: float) -> None:
    """Pass `nan`, which passes every bound in some releases of typer."""
    done: list[float] = []

    @reporting_errors
    def command(*, latency_ms: float) -> None:
        done.append(latency_ms)

    with pytest.raises(typer.Exit):
        command(latency_ms=number)
    command(latency_ms=1.5)
    assert done == [1.5]
