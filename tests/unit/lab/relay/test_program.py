"""The relay's program: compiled once, kept by its sources, and steered by lines."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from lab.errors import LabError
from lab.relay import Relay
from lab.relay.program import relay_path

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_compiled_once(tmp_path: Path) -> None:
    first = relay_path(folder=tmp_path)
    made_ns = first.stat().st_mtime_ns
    assert relay_path(folder=tmp_path) == first
    assert first.stat().st_mtime_ns == made_ns
    assert list(tmp_path.iterdir()) == [first]


def test_a_machine_without_a_compiler_gets_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(LabError, match="apt-get install gcc"):
        relay_path(folder=tmp_path)


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "gcc -Dstatic=nonsense")
    with pytest.raises(LabError, match="could not compile the relay"):
        relay_path(folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "one to 32 words"),
        ("word " * 40, "one to 32 words"),
        ("fly", "the orders are"),
        ("cut", "no such wire"),
        ("cut nowhere forward", "no such wire"),
        ("set nowhere forward loss 0.1", "no such wire"),
        ("counters", "no such wire"),
        ("wire one", "write: wire NAME DEVICE DEVICE"),
        ("wire one no-device no-device", "No such device"),
    ],
)
def test_an_order_that_makes_no_sense_is_answered_and_harms_nothing(
    line: str, complaint: str
) -> None:
    binary = relay_path(is_sanitized=True)
    told = subprocess.run(
        [binary], input=f"{line}\nfly\n", capture_output=True, text=True, timeout=20, check=True
    )
    first, second = told.stdout.splitlines()
    assert complaint in first
    assert "the orders are" in second
    assert told.stderr == ""


def test_a_line_longer_than_any_order_ends_the_relay() -> None:
    told = subprocess.run(
        [relay_path(is_sanitized=True)],
        input="x" * 10_000,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert told.stdout == ""


def test_the_door_says_what_the_relay_refused() -> None:
    with Relay() as relay, pytest.raises(LabError, match="cut nowhere both: there is no such wire"):
        relay.cut("nowhere")


def test_the_door_says_that_the_relay_is_gone() -> None:
    with Relay(["false"]) as relay, pytest.raises(LabError, match="gone"):
        relay.cut("nowhere")
