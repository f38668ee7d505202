"""The programs behind `load.py`: a publisher and a subscriber that log every event.

Each runs in an end-point's namespace with the file of a `Task` as argument, prints `ready`, and
continues until it receives a signal to end.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from gridstat.console.access import load_access
from gridstat.endpoint.connection_setup import connect
from gridstat.endpoint.options import qos
from gridstat.model.channel_security import HOP, Security
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS, is_too_late
from lab.ledger import EventLog, entries_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.subscriber import Subscription

NS_PER_S: Final = 1_000_000_000
READ_S: Final = 0.02
LOOK_BACK_S: Final = 0.5
CONNECT_S_MAX: Final = 30.0
FIBONACCI: Final = 0x9E3779B97F4A7C15
"""Spreads small differences over all bits of a value, so that no alteration looks right."""


class Task(msgspec.Struct, frozen=True):
    """Task of one program: its variables by name and number, and its log file."""

    end_point: str
    folder: str
    log: str
    variables: dict[str, int]
    rate: int
    redundancy: int = 2
    latency_ms: float = 2_000.0
    status: str = ""
    security: Security = HOP
    delay_ms: int = DELAY_MS
    keep: bool = False
    """Whether the cloud keeps what the end-point has when its program ends."""
    logs_unsent: bool = False
    """Whether events that no edge took are logged as published, and so count as lost."""


class Status(msgspec.Struct, frozen=True):
    """Copies of each variable that a subscriber received in the last half second, by edge."""

    at_ns: int
    copies: dict[str, list[int]]


def value_of(number: int, created_ns: int) -> int:
    """Return a 63-bit value that no other event has."""
    return ((created_ns + number) * FIBONACCI & 2**64 - 1) >> 1


class Ending:
    """Ends the program on SIGTERM by an exception, so that the connection is closed in order.

    Inside `unbroken` the exception waits: an event that was sent is logged before the program ends.
    """

    def __init__(self) -> None:
        self._is_asked = False
        self._is_deferred = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self._is_asked = True
        if not self._is_deferred:
            sys.exit(0)

    @contextmanager
    def unbroken(self) -> Iterator[None]:
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        if self._is_asked:
            sys.exit(0)


def main(verb: str, path: Path) -> None:
    ending = Ending()
    task = msgspec.json.decode(path.read_bytes(), type=Task)
    access = load_access(Path(task.folder))
    edges = [f"{name}@{host}:{port}" for name, (host, port) in access.edges.items()]
    with (
        connect(
            edges,
            task.end_point,
            certificates=access.certificates.path,
            timeout_s=CONNECT_S_MAX,
            security=task.security,
        ) as grid,
        EventLog(Path(task.log)) as log,
    ):
        try:
            {"publish": publish, "subscribe": subscribe}[verb](grid, task, log, ending)
        finally:
            grid.close(keep=task.keep)


def publish(grid: Connection, task: Task, log: EventLog, ending: Ending) -> None:
    """Publish every variable at every slot, stamped with the time of the slot.

    A slot whose events might be too old at an edge is left out, of all variables.
    """
    publications = grid.publish_many(
        list(task.variables), BuiltinType.INT64, rate=task.rate, delay_ms=task.delay_ms
    )
    numbers = np.array(list(task.variables.values()))
    print_ready()
    slot = time.time_ns() * task.rate // NS_PER_S + 1
    while True:
        created_ns = -(-slot * NS_PER_S // task.rate)
        time.sleep(max(0, created_ns - time.time_ns()) / NS_PER_S)
        slot += 1
        if is_too_late(created_ns, task.delay_ms):
            continue
        values = [value_of(int(number), created_ns) for number in numbers]
        with ending.unbroken():
            are_sent = [
                publication.send(value, created_ns=created_ns)
                for publication, value in zip(publications, values, strict=True)
            ]
            entries = entries_of(numbers, created_ns, np.array(values), time.time_ns())
            log.append(entries if task.logs_unsent else entries[np.array(are_sent)])


def subscribe(grid: Connection, task: Task, log: EventLog, ending: Ending) -> None:
    """Subscribe to every event of every variable with the requested redundancy."""
    quality = qos(redundancy=task.redundancy, latency_ms=task.latency_ms)
    subscriptions = grid.subscribe_many(list(task.variables), qos=quality, keep_events=65_536)
    numbers = list(task.variables.values())
    past = deque([(time.monotonic(), copies_of(subscriptions))])
    print_ready()
    while True:
        time.sleep(READ_S)
        with ending.unbroken():
            for number, subscription in zip(numbers, subscriptions, strict=True):
                batch = subscription.read()
                if len(batch):
                    values = batch["value"].astype(np.uint64)
                    log.append(
                        entries_of(number, batch["created_ns"], values, batch["received_ns"])
                    )
        now_s = time.monotonic()
        past.append((now_s, copies_of(subscriptions)))
        while past[1][0] <= now_s - LOOK_BACK_S:
            past.popleft()
        write_status(task, past[0][1], past[-1][1])


def copies_of(subscriptions: list[Subscription]) -> list[tuple[int, ...]]:
    return [subscription.ledger().copies for subscription in subscriptions]


def write_status(task: Task, before: list[tuple[int, ...]], now: list[tuple[int, ...]]) -> None:
    """Replace the status file atomically."""
    copies = {}
    for name, old, new in zip(task.variables, before, now, strict=True):
        known = [*old, *[0] * (len(new) - len(old))]
        copies[name] = [later - earlier for later, earlier in zip(new, known, strict=True)]
    draft = Path(f"{task.status}.draft")
    draft.write_bytes(msgspec.json.encode(Status(at_ns=time.time_ns(), copies=copies)))
    draft.rename(task.status)


def print_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
