"""Measurement of listeners under attack: `python -m lab.listener_flood [--files 256]`.

A broker and an edge router run on loopback. Strangers hold half-open connections to both, then
begin handshakes at a rate, from many source addresses, so that no limit of one source helps.
Meanwhile end-points attach to the router one after another, and `/health` of both is asked. The
result has the memory of both daemons, the times to attach, and the busiest second of each log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import gridstat
from gridstat.model.errors import GridStatError
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Identity, Role
from lab.open_access import OPEN_TOML

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.net.command.address import Address

ROOT = Path(__file__).parents[1]
SOURCES = 500
CONNECTING_AT_ONCE = 64
ATTACH_S_MAX = 20.0
ENDING_S_MAX = 5.0
QUIET_ATTACHES = 200
"""As many as come during the attack, so that the memory of before has theirs in it."""
END_POINT = "c1/north/pmu-1"
BROKER_FILE = """cloud = "c1"
metrics_port = 0
[[router]]
name = "e0"
role = "edge"
"""
ROUTER_FILE = """name = "c1/e0"
role = "edge"
metrics_port = 0
[broker]
addresses = ["127.0.0.1:{port}"]
"""


@dataclass
class Daemon:
    """A daemon under attack: its process, its log, and its ready line."""

    process: subprocess.Popen[str]
    log: Path
    ready: dict[str, Any]
    health_failures: int = 0
    mib: list[float] = field(default_factory=list)

    def memory_mib(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        [line] = [line for line in text.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) / 1_024

    def look(self) -> None:
        """Note the memory, and whether `/health` answers."""
        self.mib.append(self.memory_mib())
        host, port = self.ready["metrics"]
        try:
            with urlopen(f"http://{host}:{port}/health", timeout=5):
                pass
        except OSError:
            self.health_failures += 1

    def lines_of_the_busiest_second(self) -> int:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        seconds = Counter(line[:19] for line in lines)
        return max(seconds.values(), default=0)


def started(stack: ExitStack, words: Sequence[str], folder: Path, files: int) -> Daemon:
    """Start a daemon with a limit of open files, and wait until it is ready."""
    log = folder / f"{words[0]}.log"
    command = [sys.executable, "-m", "gridstat", *words, "--json"]
    if files:
        command = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(files), *command]
    output = stack.enter_context(log.open("w", encoding="utf-8"))
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=output,
        text=True,
    )
    stack.enter_context(process)
    stack.callback(process.terminate)
    assert process.stdout is not None
    return Daemon(process, log, json.loads(process.stdout.readline()))


# The attack, in a process of its own.


def first_flight() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context = ssl.create_default_context()
        context.wrap_bio(incoming, outgoing, server_hostname="c1").do_handshake()
    return outgoing.read()


class Stranger(asyncio.Protocol):
    """A connection without a certificate; it begins a handshake, or says nothing at all.

    `made` counts the connections that the target's machine took, by what they say.
    """

    def __init__(self, says: bytes, made: Counter[bytes]) -> None:
        self._says = says
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._made[self._says] += 1
        if self._says:
            transport.write(self._says)

    def data_received(self, data: bytes) -> None:
        """Drop the server's answer, and let the handshake hang."""


async def attack(
    target: Address, half_open: int, per_s: int, lasts_s: float, *, sources: int
) -> None:
    """Hold connections that say nothing; then begin handshakes, of which none is ended."""
    loop = asyncio.get_running_loop()
    free = asyncio.Semaphore(CONNECTING_AT_ONCE)
    flight, made = first_flight(), Counter[bytes]()

    async def connect(number: int, says: bytes) -> None:
        at = number % sources if sources else -1
        host = f"127.1.{1 + at // 250}.{1 + at % 250}" if sources else "127.0.0.1"
        async with free:
            with suppress(OSError):
                await loop.create_connection(
                    lambda: Stranger(says, made), *target, local_addr=(host, 0)
                )

    await asyncio.gather(*(connect(number, b"") for number in range(half_open)))
    _say(f"{made[b'']}")
    began_s, number = loop.time(), 0
    tasks: set[asyncio.Task[None]] = set()
    while (passed_s := loop.time() - began_s) < lasts_s:
        while number < passed_s * per_s:
            task = loop.create_task(connect(number, flight))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            number += 1
        await asyncio.sleep(0.002)
    if tasks:
        await asyncio.wait(tasks, timeout=ENDING_S_MAX)
    _say(f"{made[flight] / lasts_s:.0f}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# The measurement.


def attach_once(edge: str, certificates: Path) -> float:
    """Return the seconds until a new end-point is attached; infinity if it failed."""
    began_s = time.monotonic()
    try:
        with gridstat.connect(
            [edge], END_POINT, certificates=certificates, timeout_s=ATTACH_S_MAX, fifo_priority=0
        ):
            return time.monotonic() - began_s
    except GridStatError:
        return float("inf")


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        certificates = CertificateFolder(folder / "certificates")
        certificates.create_authority()
        for role, name in (
            (Role.BROKER, "c1"),
            (Role.ROUTER, "c1/e0"),
            (Role.ENDPOINT, END_POINT),
        ):
            certificates.issue(Identity(role, name))
        (folder / "c1.toml").write_text(BROKER_FILE + OPEN_TOML)
        broker = started(stack, ["broker", "c1.toml"], folder, asked.files)
        (folder / "e0.toml").write_text(ROUTER_FILE.format(port=broker.ready["address"][1]))
        router = started(stack, ["router", "e0.toml"], folder, asked.files)
        daemons = {"broker": broker, "router": router}
        host, port = router.ready["command"]
        edge = f"c1/e0@{host}:{port}"
        quiet_s = [attach_once(edge, certificates.path) for _ in range(QUIET_ATTACHES)]
        before = {name: daemon.memory_mib() for name, daemon in daemons.items()}
        targets = [tuple(broker.ready["address"]), (host, port)][: asked.targets]
        strangers = [strangers_at(stack, target, asked) for target in targets]
        held = [stranger.stdout.readline().strip() for stranger in strangers if stranger.stdout]
        for daemon in daemons.values():
            daemon.look()
        attached_s = []
        while any(stranger.poll() is None for stranger in strangers):
            attached_s.append(attach_once(edge, certificates.path))
            for daemon in daemons.values():
                daemon.look()
        rates = [stranger.stdout.readline().strip() for stranger in strangers if stranger.stdout]
        over_s = time.monotonic()
        while time.monotonic() - over_s < asked.after_s:
            time.sleep(1)
        return {
            "files": asked.files,
            "half_open": [int(count) for count in held],
            "handshakes_per_s": [float(rate) for rate in rates],
            "attached": len(attached_s),
            "attach_quiet_s_max": round(max(quiet_s), 3),
            **percentiles(attached_s),
            **{
                name: {
                    "mib_before": round(before[name], 1),
                    "mib_most": round(max(daemon.mib), 1),
                    "mib_after": round(daemon.memory_mib(), 1),
                    "health_failures": daemon.health_failures,
                    "looks": len(daemon.mib),
                    "log_lines_of_a_second_most": daemon.lines_of_the_busiest_second(),
                }
                for name, daemon in daemons.items()
            },
        }


def strangers_at(
    stack: ExitStack, target: Address, asked: argparse.Namespace
) -> subprocess.Popen[str]:
    words = (*target, asked.half_open, asked.per_s, asked.lasts_s, asked.sources)
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.listener_flood", "--attack", *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        f"attach_s_p{share}": round(ordered[min(len(ordered) - 1, len(ordered) * share // 100)], 3)
        for share in (50, 99)
    } | {"attach_s_most": round(ordered[-1], 3)}


def main() -> None:
    if sys.argv[1:2] == ["--attack"]:
        host, port, half_open, per_s, lasts_s, sources = sys.argv[2:]
        target = (host, int(port))
        asyncio.run(
            attack(target, int(half_open), int(per_s), float(lasts_s), sources=int(sources))
        )
        return
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=0, help="limit of open files of both daemons")
    options.add_argument("--half-open", type=int, default=12_000)
    options.add_argument("--per-s", type=int, default=1_000, help="handshakes begun a second")
    options.add_argument("--lasts-s", type=float, default=20.0)
    options.add_argument("--after-s", type=float, default=20.0, help="quiet time at the end")
    options.add_argument(
        "--sources",
        type=int,
        default=SOURCES,
        help="addresses of the strangers; 0: the one that end-points use",
    )
    options.add_argument("--targets", type=int, default=2, help="1: the broker; 2: the router too")
    sys.stdout.write(json.dumps(measure(options.parse_args()), indent=2) + "\n")


if __name__ == "__main__":
    main()
