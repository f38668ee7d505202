"""Probes and silence of cores that really run: by their own threads, over sockets."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from gridstat.core._core import Core
from gridstat.core._ends import Sender
from gridstat.core.rows import ChannelSpec, Route, Row, Term
from tests.unit.core.running import LIMITS, MICROSECOND, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MS = 1_000_000
LINK = 4
HOST = "127.0.0.1"


@contextmanager
def linked(*, interval_ns: int, posix: bool = False) -> Iterator[tuple[Core, Core]]:
    """Two running cores; the first one probes the second."""
    first, second = Core(LIMITS, posix=posix), Core(LIMITS, posix=posix)
    try:
        first.listen(HOST)
        second.open_source(LINK)
        spec = ChannelSpec(
            LINK,
            address=(HOST, *second.listen(HOST)),
            datagram_version=2,
            probe_interval_ns=interval_ns,
        )
        second.start()
        first.start()
        first.open_channel(spec)
        yield first, second
    finally:
        first.close()
        second.close()


def state(core: Core) -> dict[str, int]:
    return core.source_states()[LINK]


def has_sent(core: Core, least: int) -> Callable[[], str | None]:
    def complaint() -> str | None:
        found = core.channel_counters(LINK)["probes_sent"]
        return None if found >= least else f"{found} probes are sent, {least} were heard"

    return complaint


def has(core: Core, name: str, least: int) -> Callable[[], str | None]:
    """A complaint until a fact of the link has grown so far."""

    def complaint() -> str | None:
        found = state(core)[name]
        return None if found >= least else f"{name} is {found}, not yet {least}"

    return complaint


@pytest.mark.parametrize("posix", [False, True], ids=["linux", "posix"])
def test_probes_flow_without_any_event_and_none_is_lost(*, posix: bool) -> None:
    with linked(interval_ns=2 * MS, posix=posix) as (first, second):
        eventually(has(second, "probes", 50))
        heard = state(second)
        assert heard["lost"] == heard["reordered"] == 0
        # A sender may lose the processor between a probe and its count.
        eventually(has_sent(first, heard["probes"]))
        sent = first.channel_counters(LINK)
        assert (sent["sent"], sent["due"]) == (0, 0)
        assert second.counters()["in"] == 0


def test_probes_are_never_faster_than_their_interval() -> None:
    with linked(interval_ns=5 * MS) as (first, second):
        eventually(has(second, "probes", 1))
        begun_ns, begun = time.monotonic_ns(), first.channel_counters(LINK)["probes_sent"]
        eventually(has(second, "probes", 200))
        sent = first.channel_counters(LINK)["probes_sent"] - begun
        passed_ns = time.monotonic_ns() - begun_ns
    assert sent < passed_ns / (5 * MS) + 2  # A busy machine may leave out any number.


def test_silence_grows_once_the_channel_is_closed_and_ends_with_it_reopened() -> None:
    with linked(interval_ns=2 * MS) as (first, second):
        eventually(has(second, "probes", 10))
        spec = ChannelSpec(LINK, address=(HOST, 9, 9), datagram_version=2)
        first.close_channel(LINK)
        first.open_channel(spec)
        eventually(has(second, "silent_ns", 150 * MS))
        found = state(second)
        assert time.monotonic_ns() - found["heard_ns"] >= found["silent_ns"]


def test_a_source_nobody_sends_on_is_silent_since_it_was_opened() -> None:
    with linked(interval_ns=2 * MS) as (_, second):
        opened_ns = time.monotonic_ns()
        second.open_source(77)

        def complaint() -> str | None:
            found = second.source_states()[77]
            return None if found["silent_ns"] > 50 * MS else f"only {found}"

        eventually(complaint)
        found = second.source_states()[77]
        assert found["heard_ns"] == 0
        assert found["silent_ns"] <= time.monotonic_ns() - opened_ns


def test_a_channel_that_closes_ends_its_probes_and_others_go_on() -> None:
    with linked(interval_ns=MS) as (first, second):
        for channel_id in range(10, 40):
            first.open_channel(
                ChannelSpec(
                    channel_id,
                    address=(HOST, 9, 9),
                    datagram_version=2,
                    probe_interval_ns=MS,
                    bandwidth_bytes_per_s=10**6 if channel_id % 2 else 0,
                )
            )

        def unprobed() -> str | None:
            told = {number: first.channel_counters(number) for number in range(10, 40)}
            left = [at for at, one in told.items() if not one["probes_sent"] + one["probes_failed"]]
            return f"{left} have no probe" if left else None

        eventually(unprobed)
        for channel_id in range(10, 40):
            first.close_channel(channel_id)
        before = state(second)["probes"]
        eventually(has(second, "probes", before + 30))


def test_events_and_probes_of_one_channel_arrive_without_loss() -> None:
    with linked(interval_ns=MS) as (first, second):
        first.stop()
        ports = first.listen(HOST)
        first.open_source(9)
        first.commit([Row(1, MICROSECOND, routes=(Route(LINK, (Term(1),)),))])
        first.start()
        begun_ns = time.time_ns()
        with Sender(9, (HOST, *ports)) as sender:
            for number in range(2_000):
                assert sender.send(1, number, created_ns=begun_ns + number * 1_000)
        eventually(has(second, "datagrams", 500))
        eventually(has(second, "probes", 20))
        assert state(second)["lost"] == 0
        told = second.counters()
        assert told["in"] == told["unknown_variable"]


WATCHER = """
import time
from gridstat.core._core import Core
from gridstat.core.rows import Limits
core = Core(Limits(variables_max=64, rings_max=4, channels_max=4, pool_small=8, pool_large=2))
print(*core.listen("127.0.0.1"), flush=True)
core.open_source(4)
core.start()
while core.source_states()[4]["probes"] < 20:
    pass
before_ns = begun_ns = time.monotonic_ns()
print("heard", flush=True)
longest_ns = gap_ns = 0
while gap_ns < 1_000_000_000 and before_ns - begun_ns < 20_000_000_000:
    now_ns = time.monotonic_ns()
    gap_ns, before_ns = now_ns - before_ns, now_ns
    longest_ns = max(longest_ns, core.source_states()[4]["silent_ns"])
until_ns = time.monotonic_ns() + 200_000_000
while time.monotonic_ns() < until_ns:
    longest_ns = max(longest_ns, core.source_states()[4]["silent_ns"])
print(longest_ns, gap_ns, flush=True)
core.close()
"""


@contextmanager
def probing(address: tuple[str, int, int]) -> Iterator[list[int]]:
    """A probe every two milliseconds for as long as the block lasts; yields when they were sent."""
    is_over = threading.Event()
    sent_ns: list[int] = []

    def send() -> None:
        with Sender(LINK, address, datagram_version=2) as sender:
            while not is_over.wait(0.002):
                sender.probe()
                sent_ns.append(time.monotonic_ns())

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent_ns
    finally:
        is_over.set()
        thread.join()


def test_a_process_that_was_stopped_takes_what_waits_before_it_calls_anyone_silent() -> None:
    with subprocess.Popen([sys.executable, "-c", WATCHER], stdout=subprocess.PIPE) as watcher:
        assert watcher.stdout is not None
        data_port, urgent_port = map(int, watcher.stdout.readline().split())
        with probing((HOST, data_port, urgent_port)) as sent_ns:
            assert watcher.stdout.readline() == b"heard\n"
            os.kill(watcher.pid, signal.SIGSTOP)
            stopped_ns = time.monotonic_ns()
            eventually(lambda: None if time.monotonic_ns() - stopped_ns > 1_500 * MS else "early")
            os.kill(watcher.pid, signal.SIGCONT)
            longest_ns, gap_ns = map(int, watcher.stdout.readline().split())
    assert gap_ns >= 1_000 * MS, "the process was never stopped"
    pause_ns = max(after - before for before, after in itertools.pairwise(sent_ns))
    assert longest_ns < 1_000 * MS + pause_ns
