"""The sources' single-host walk-through, by commands alone: names, broker, edge, `var` at 100 ms.

Each step is what a person would type; nothing is prepared but an empty folder.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from lab.declared_delay import DELAY_MS
from tests.cluster.command import GRIDSTAT, Command
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
CLOUD = 'cloud = "c1"\n[[router]]\nname = "e0"\nrole = "edge"\n'
WITHIN_S = 60.0
PERIOD_NS = 100_000_000
DELAY = ("--delay-ms", str(DELAY_MS))
WAVE = {math.sin(step / 10): step for step in range(10_000)}
"""Values that `gridstat publish` sends, with their steps."""


class Terminal:
    """A folder in which a person works; what is started there ends with it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._started = 0

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [GRIDSTAT, *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    def start(self, *words: str) -> Command:
        self._started += 1
        place = self.folder / f"window-{self._started}"
        place.mkdir()
        command = Command.gridstat(place, *words)
        self._stack.enter_context(command)
        self._stack.callback(command.process.send_signal, signal.SIGTERM)
        return command

    def serve(self, *words: str) -> dict[str, Any]:
        """Start a daemon and wait until it reports that it is ready."""
        daemon = self.start(*words, "--json")
        eventually(lambda: daemon.complaint_without("ready"), within_s=WITHIN_S)
        return daemon.lines_in("ready")[0]

    def write_access(self, broker: dict[str, Any], edge: dict[str, Any]) -> None:
        lines = [
            'cloud = "c1"',
            _place("broker", *broker["address"]),
            _place("name_service", *broker["name_service"]),
            "[[edge]]",
            'name = "c1/e0"',
            f'host = "{edge["command"][0]}"',
            f"port = {edge['command'][1]}",
        ]
        (self.folder / "access.toml").write_text("\n".join(lines) + "\n")


def _place(key: str, host: str, port: int) -> str:
    return f'{key} = {{ host = "{host}", port = {port} }}'


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with ExitStack() as stack:
        yield Terminal(tmp_path, stack)


@pytest.mark.feature("S3-52", "S3-50", "S0-10")
def test_a_variable_published_every_100_ms_arrives_by_commands_alone(terminal: Terminal) -> None:
    for words in (("init",), ("issue", "broker/c1"), ("issue", "router/c1/e0")):
        assert terminal.run("certificates", *words).returncode == 0
    (terminal.folder / "c1.toml").write_text(CLOUD)
    broker = terminal.serve("broker", str(terminal.folder / "c1.toml"))
    host, port = broker["name_service"]
    # By arguments, and by the name service: it is told only where names are known. Its own name,
    # its role and its broker's name are the defaults, and its ports any free ones.
    folder = str(terminal.folder)
    edge = terminal.serve(
        *("router", "--name-service", f"{host}:{port}"),
        *("--certificates", f"{folder}/certificates"),
    )
    assert (edge["router"], edge["role"]) == ("c1/e0", "edge")
    assert all(number > 0 for number in edge["address"][1:])
    terminal.write_access(broker, edge)
    publish = ("publish", "c1/pub0/var", "--rate", "10/s", "--folder", folder, *DELAY)
    refused = terminal.run(*publish)
    assert "no rule lets c1/pub0 publish c1/pub0/var (1015)" in refused.stderr
    assert "gridstat access grant c1-pub0-publish-" in refused.stderr
    for name, who, may, *more in (
        ("out", "c1/pub0", "publish", *DELAY),
        ("in", "c1/sub0", "subscribe"),
    ):
        rule = ("--who", who, "--may", may, "--what", "c1/pub0/*", *more)
        allowed = terminal.run("access", "grant", name, *rule, "--folder", folder)
        assert allowed.returncode == 0, allowed.stderr
    publishing = terminal.start(*publish)
    granted, *events, ledger = _lines(_subscribed(terminal))
    name = "c1/pub0/var"
    assert granted == {"is": "granted", "name": name, "paths": 1, "detection_ms": 0}
    stamps = [event["created_ns"] for event in events]
    gaps = [later - before for before, later in pairwise(stamps)]
    # A publisher that is held up leaves slots out; whatever it sends comes, one after the other.
    assert all(gap > 0 and gap % PERIOD_NS == 0 for gap in gaps), gaps
    steps = [WAVE[event["value"]] for event in events]
    assert steps == list(range(steps[0], steps[0] + 5))
    assert ledger["is"] == "ledger"
    assert ledger["lost"] <= sum(gap // PERIOD_NS - 1 for gap in gaps)
    assert publishing.end(signal.SIGTERM) == 0
    assert "sent" in publishing.errors


def _subscribed(terminal: Terminal) -> str:
    """The publisher may not have registered yet; a person would try again."""
    for _ in range(20):
        found = terminal.run(
            *("subscribe", "c1/pub0/var", "--count", "5", "--folder", ".", "--json"),
            *("--as", "c1/sub0"),
        )
        if found.returncode == 0:
            return found.stdout
        assert "1034" in found.stderr or "1020" in found.stderr, found.stderr
    raise AssertionError(found.stderr)


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.feature("S0-10")
def test_a_wrong_address_is_one_message_with_a_code_and_a_hint(terminal: Terminal) -> None:
    assert terminal.run("certificates", "init").returncode == 0
    nowhere = {"address": ["127.0.0.1", 9], "name_service": ["127.0.0.1", 9]}
    terminal.write_access(nowhere, {"command": ["127.0.0.1", 9]})
    for words in (("top",), ("subscribe", "c1/pub0/var")):
        found = terminal.run(*words, "--folder", ".")
        assert found.returncode == 1
        assert found.stderr.splitlines()[-2].startswith("error: ")
        assert found.stderr.splitlines()[-1].startswith("hint: ")


@pytest.mark.feature("S3-50")
@pytest.mark.parametrize(
    ("command", "options"),
    {
        "router": (
            *("-n, --name", "[default: c1/e0]", "--role", "[default: edge]", "-p, --data-port"),
            *("[default: 0;", "-b, --broker", "--name-service", "[default: 127.0.0.1]"),
        ),
        "publish": ("{name}", "--rate", "[default: 1/s]", "--edge", "-f, --folder"),
        "subscribe": (
            *("--as", "c1/terminal-", "--rate", "--latency-ms", "[default: 2000.0;"),
            *("--redundancy", "[default: 1;", "--edge", "-f, --folder"),
        ),
        "broker": ("{file}", "--json", 'cloud = "c1"'),
    }.items(),
)
def test_options_and_their_defaults_are_told(
    terminal: Terminal, command: str, options: tuple[str, ...]
) -> None:
    text = terminal.run(command, "--help").stdout
    assert [option for option in options if option not in text] == []
