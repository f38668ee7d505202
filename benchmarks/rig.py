"""Processes of one measurement: subscribers, a forwarder of some kind, publishers.

The same plan goes to our core, to the Python reference and to the raw C floors, so that only the
hop differs. Everything ends when the block is left.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks.floor.build import forwarder_path
from benchmarks.plan import FlooderPlan, Group, Outlet, PublisherPlan, RouterPlan, SubscriberPlan
from benchmarks.processes import Answer, Processes, RoleProcess
from benchmarks.shared_page import SharedPages, create_pages
from benchmarks.statistics import WARM_UP_INTERPRETED_S, WARM_UP_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from benchmarks.plan import Keep

CORE = "core"
REFERENCE = "reference"
FLOOR_SINGLE = "single"
FLOOR_MMSG = "mmsg"
FLOOR_GSO = "gso"
FLOORS = (FLOOR_SINGLE, FLOOR_MMSG, FLOOR_GSO)
KINDS = (CORE, *FLOORS, REFERENCE)
LOOPBACK = "127.0.0.1"
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a process: its address, and the command that enters its namespace, if any."""

    host: str = LOOPBACK
    prefix: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A process with receivers, the ports of each, and the counters they share."""

    process: RoleProcess
    host: str
    ports: tuple[tuple[int, int], ...]
    pages: SharedPages
    page_path: str

    def outlet(self, channel_id: int, receiver: int = 0) -> Outlet:
        """Return the channel that leads to one of the receivers."""
        data_port, urgent_port = self.ports[receiver]
        return Outlet(channel_id, self.host, data_port, urgent_port)

    def take(self, receiver: int = 0, **wanted: object) -> Answer:
        """Take the latencies kept since the last call; `first_id` and `count` choose variables."""
        return self.process.ask({"do": "take", "receiver": receiver, **wanted})


@dataclass(frozen=True, slots=True)
class Forwarder:
    """One hop of any kind, and its ports."""

    kind: str
    process: RoleProcess
    host: str
    data_port: int
    urgent_port: int

    def outlet(self, channel_id: int) -> Outlet:
        """Return the channel that leads to this hop."""
        return Outlet(channel_id, self.host, self.data_port, self.urgent_port)

    def policed(self) -> int:
        """Return the number of events that a core refused; 0 for a floor, which checks none."""
        return self.count("policed")

    def count(self, name: str) -> int:
        """Return one counter of a core; 0 for a floor, which has no such counter."""
        counters: Mapping[str, int] = self.process.ask({}).get("counters", {})
        return counters.get(name, 0)


def warm_up_s(kind: str, seconds: float) -> float:
    """Return the warm-up of a kind of hop; interpreted hops need longer.

    It is never longer than the measurement itself, which keeps short trials short.
    """
    return min(WARM_UP_INTERPRETED_S if kind == REFERENCE else WARM_UP_S, seconds)


class Rig:
    """The processes of one measurement, all ended when the block is left."""

    def __init__(self, *, ends: Place = Place(), hops: Place = Place()) -> None:
        self._ends = ends
        self._hops = hops
        self._stack = ExitStack()
        self._pages_made = 0

    def __enter__(self) -> Self:
        self._processes = self._stack.enter_context(Processes())
        shared = str(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else None
        folder = tempfile.TemporaryDirectory(prefix="gridstat-", dir=shared)
        self._folder = Path(self._stack.enter_context(folder))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def prepare(self, kind: str, *, hops: int = 1, publishers: int = 1) -> None:
        """Start all interpreters of a run at once, for the processes built later."""
        self._processes.prepare_roles("subscriber", 1, prefix=self._ends.prefix)
        if kind not in FLOORS:
            self._processes.prepare_roles(_role_of(kind), hops, prefix=self._hops.prefix)
        self._processes.prepare_roles("publisher", publishers, prefix=self._ends.prefix)

    def subscriber(
        self,
        groups: Sequence[Group],
        keep: Sequence[Keep] = ("count",),
        *,
        ring_events: int = 65_536,
        is_background: bool = False,
        is_real_time: bool = False,
        seal: str = "",
        channels: Sequence[int] = (),
    ) -> Subscriber:
        """Start a process with one receiver per entry of `keep`, all with the same variables."""
        path = self._new_pages(len(keep))
        plan = SubscriberPlan(
            receivers=len(keep),
            groups=tuple(groups),
            keep=tuple(keep),
            page_path=str(path),
            ring_events=ring_events,
            host=self._ends.host,
            is_background=is_background,
            is_real_time=is_real_time,
            seal=seal,
            channels=tuple(channels),
        )
        process, answer = self._processes.start_role("subscriber", plan, prefix=self._ends.prefix)
        ports = tuple((int(data), int(urgent)) for data, urgent in answer["ports"])
        pages = SharedPages(path, len(keep))
        return Subscriber(process, self._ends.host, ports, pages, str(path))

    def sink(self, receivers: int, *, event_bytes: int, is_background: bool = False) -> Subscriber:
        """Start a C process that counts events on many sockets with one thread."""
        path = self._new_pages(receivers)
        program = (str(forwarder_path()), "sink", self._ends.host)
        argv = [
            *self._ends.prefix,
            *program,
            str(receivers),
            str(event_bytes),
            str(path),
        ]
        process, answer = self._processes.start("sink", argv)
        if is_background:
            os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
        ports = tuple((int(port), int(port)) for port in answer["ports"])
        return Subscriber(process, self._ends.host, ports, SharedPages(path, receivers), str(path))

    def forwarder(self, kind: str, plan: RouterPlan) -> Forwarder:
        """Start a hop of the given kind; a floor sends everything to each of the plan's outlets."""
        host, prefix = self._hops.host, self._hops.prefix
        if kind in FLOORS:
            targets = [f"{outlet.host}:{outlet.data_port}" for outlet in plan.outlets]
            argv = [*prefix, str(forwarder_path()), kind, host, *targets]
            process, answer = self._processes.start(f"floor {kind}", argv)
            if plan.fifo_priority:
                priority = os.sched_param(plan.fifo_priority)
                os.sched_setscheduler(process.pid, os.SCHED_FIFO, priority)
            return Forwarder(kind, process, host, answer["ports"][0], answer["ports"][0])
        placed = replace(plan, host=host)
        process, answer = self._processes.start_role(_role_of(kind), placed, prefix=prefix)
        return Forwarder(kind, process, host, answer["ports"][0], answer["ports"][1])

    def publisher(
        self,
        target: Forwarder,
        subscriber: Subscriber | None = None,
        *,
        senders: int = 1,
        first_channel: int = 1,
        receivers: int = 0,
        is_background: bool = False,
        seal: str = "",
    ) -> RoleProcess:
        """Start a process with senders to `target`; `receivers` (0: all) close its loop."""
        plan = PublisherPlan(
            host=target.host,
            data_port=target.data_port,
            urgent_port=target.urgent_port,
            page_path=subscriber.page_path if subscriber else "",
            receivers=receivers or (len(subscriber.ports) if subscriber else 0),
            senders=senders,
            first_channel=first_channel,
            is_background=is_background,
            seal=seal,
        )
        return self._processes.start_role("publisher", plan, prefix=self._ends.prefix)[0]

    def flooder(
        self, target: Forwarder, channel_id: int, seal: str, *, is_joined: bool = False
    ) -> RoleProcess:
        """Start a stranger that floods the target when it is asked to."""
        plan = FlooderPlan(target.host, channel_id, seal, is_joined)
        return self._processes.start_role("flooder", plan, prefix=self._ends.prefix)[0]

    def end(self, forwarder: Forwarder) -> None:
        """End one hop early."""
        self._processes.end(forwarder.process)

    def _new_pages(self, count: int) -> Path:
        self._pages_made += 1
        path = self._folder / f"pages-{self._pages_made}"
        create_pages(path, count)
        return path


def _role_of(kind: str) -> str:
    return "router" if kind == CORE else "reference"


@dataclass(frozen=True, slots=True)
class Window:
    """CPU time of some processes and deliveries over a time window."""

    seconds: float
    cpu_s: tuple[float, ...]
    delivered: int


def run_watched(
    publisher: RoleProcess,
    question: Mapping[str, Any],
    *,
    watched: Sequence[RoleProcess],
    pages: Sequence[SharedPages],
    warm_up: float,
) -> tuple[Answer, Window]:
    """Let the publisher work for its `seconds` and watch all but the warm-up of it.

    So CPU and deliveries belong to the same run (S3-86).
    """
    seconds = float(question["seconds"])
    warm_up = min(warm_up, seconds / 2)
    publisher.begin(question)
    time.sleep(warm_up)
    before = _sample(watched, pages)
    time.sleep(max(0.0, seconds - warm_up - 0.02))
    after = _sample(watched, pages)
    answer = publisher.finish(within_s=seconds + 30.0)
    cpu_s = tuple((end - start) / 1e9 for start, end in zip(before[1], after[1], strict=True))
    return answer, Window(after[0] - before[0], cpu_s, after[2] - before[2])


def _sample(
    watched: Sequence[RoleProcess], pages: Sequence[SharedPages]
) -> tuple[float, list[int], int]:
    delivered = sum(sum(page.delivered()) for page in pages)
    return time.monotonic(), [process.cpu_ns() for process in watched], delivered
