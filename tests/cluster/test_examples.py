"""The examples run as their own help says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.command import Command
from tests.cluster.eventually import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_explains_itself(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / name), "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    assert "usage: " in text
    assert "--count" in text


def test_what_one_example_publishes_the_other_receives(tmp_path: Path) -> None:
    subscribe = (sys.executable, "-u", EXAMPLES / "subscribe.py", "--count", "5")
    with Command(tmp_path, *subscribe, "--per-second", "60") as subscriber:
        eventually(lambda: None if "\n" in subscriber.output else "not listening")
        found = re.search(r"data port (\d+) urgent port (\d+)", subscriber.output)
        assert found is not None
        ports = ("--data-port", found[1], "--urgent-port", found[2])
        publish = [sys.executable, str(EXAMPLES / "publish.py"), *ports]
        publish += ["--count", "5", "--per-second", "60"]
        told = subprocess.run(publish, capture_output=True, text=True, check=True, timeout=30)
        assert subscriber.exit_code() == 0, subscriber.errors
    assert "published 5 of 5 events" in told.stdout
    assert "received 5 events" in subscriber.output
    assert re.search(r"\d+\.\d+ Hz after -?\d+ µs", subscriber.output)
