"""Attack: connections take every descriptor of a process, so that accept() fails at once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from gridstat.net.command.certificate_folder import CertificateFolder
from tests.attacks.hostile_connections import connected_socket, source
from tests.protocol.command_parties import ROUTER

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
LINES_MAX = 50
PENDING_MAX_OF_256 = 48
"""Pending connections of a router that may open 256 files."""
ROUTER_FILE = """
name = "c1/e0"
role = "edge"
metrics_port = 0
[broker]
addresses = ["127.0.0.1:1"]
"""


def test_accepting_pauses_at_the_descriptor_limit_and_goes_on_after_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.attacks.exhausted_server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        address = ("127.0.0.1", json.loads(server.stdout.readline())["port"])
        held = [connected_socket(address, source(n)) for n in range(5)]
        # The server notes turns of its event loop until it has paused several times.
        server.stdin.write("look\n")
        server.stdin.flush()
        looked = json.loads(server.stdout.readline())
        assert looked["accept_pauses"] >= 3
        assert looked["turns_per_pause"] < 20, "the event loop is busy"
        server.stdin.write("free\n")
        server.stdin.flush()
        freed = json.loads(server.stdout.readline())
        assert freed["pending"] == len(held)
        for connection in held:
            connection.close()
        server.stdin.close()
        errors = server.stderr.read() if server.stderr else ""
        assert server.wait(30) == 0
    assert "Traceback" not in errors
    assert "accepting_paused" in errors
    assert len(errors.splitlines()) <= LINES_MAX


@contextmanager
def router_with_few_files(folder: Path) -> Iterator[dict[str, Any]]:
    """A router process that may open 256 files; its standard error is in `router.log`."""
    certificates = CertificateFolder(folder / "certificates")
    certificates.create_authority()
    certificates.issue(ROUTER)
    (folder / "e0.toml").write_text(ROUTER_FILE)
    command = [sys.executable, "-m", "gridstat", "router", "e0.toml", "--json"]
    with (folder / "router.log").open("w") as log:
        process = subprocess.Popen(
            ["sh", "-c", 'ulimit -n 256 && exec "$@"', "sh", *command],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        with process:
            assert process.stdout is not None
            try:
                yield json.loads(process.stdout.readline())
            finally:
                process.terminate()


def test_a_router_with_few_files_says_so_and_keeps_some_for_its_health(tmp_path: Path) -> None:
    with router_with_few_files(tmp_path) as ready, ExitStack() as held:
        for n in range(400):
            held.enter_context(connected_socket(tuple(ready["command"]), source(n)))
        host, port = ready["metrics"]
        with urlopen(f"http://{host}:{port}/health", timeout=30) as answer:
            assert answer.read() == b"ok\n"
        with urlopen(f"http://{host}:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert 'gridstat_router_accept_pauses_total{listener="commands"} 0.0' in text
        found = re.search(r'router_pending_connections\{listener="commands"\} (\S+)', text)
        assert found is not None
        assert float(found[1]) <= PENDING_MAX_OF_256
    log = (tmp_path / "router.log").read_text()
    assert "the limit of open files is 256, and this configuration needs 1,344" in log
    assert "LimitNOFILE=" in log
    assert "Traceback" not in log
