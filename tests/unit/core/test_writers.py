"""The writer's side under pressure: several Python threads, no memory, forks, and odd arguments."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gridstat.core._core import Core, held_allocations
from gridstat.core.channel_indices import ChannelIndices
from gridstat.core.rows import ChannelSpec, Limits, Route, Row, Term
from gridstat.model.errors import LayoutError, LimitReached, LinkDown, Misuse, UnknownName
from tests.protocol.grids import datagram, event
from tests.unit.core.running import ENDS, LIMITS, MICROSECOND, SOURCE, eventually, hop

if TYPE_CHECKING:
    from collections.abc import Callable

STAMP_NS = 1_700_000_000_000_000_000


def run_together(*works: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a writer hangs"


def test_two_threads_close_backlogged_channels_of_one_running_core() -> None:
    with hop() as made:
        core = made.core
        port = made.subscribers[0].getsockname()[1]
        address = ("127.0.0.1", port, port)
        core.start()

        def turn_over(channel_id: int) -> None:
            spec = ChannelSpec(channel_id, bandwidth_bytes_per_s=500, address=address)
            for turn in range(40):
                core.open_channel(spec)
                row = Row(channel_id, MICROSECOND, routes=(Route(channel_id, (Term(1),)),))
                core.commit([row])
                for slot in range(20):
                    made.send(channel_id, STAMP_NS + (turn * 20 + slot) * 1_000)
                told = core.close_channel(channel_id)
                assert told["queued"] == 0
                assert told["due"] == told["sent"] + told["send_failed"] + told["queue_full"]

        run_together(*(partial(turn_over, at) for at in (11, 12, 13)))
        eventually(made.settled(40 * 20 * 3))
        assert core.pool_free() == (LIMITS.pool_small, LIMITS.pool_large)


def test_stopping_while_another_thread_closes_a_channel_ends() -> None:
    def close(core: Core, channel_id: int) -> None:
        core.close_channel(channel_id)

    for _ in range(20):
        with hop(subscribers=2) as made:
            core = made.core
            core.start()
            closers = [partial(close, core, channel_id) for channel_id in (1, 2)]
            run_together(core.stop, *closers, core.stop)


def test_an_index_is_given_anew_only_after_the_thread_has_passed() -> None:
    indices = ChannelIndices(channels_max=2)
    seen = [0]
    first = indices.take(5, lambda epoch: epoch <= seen[0])
    indices.name(1, (5,), epoch=1)
    indices.close(5, epoch=2)
    indices.name(1, (), epoch=3)
    seen[0] = 2
    given = {indices.take(channel_id, lambda epoch: epoch <= seen[0]) for channel_id in (6, 7)}
    assert first not in given
    indices.close(6, epoch=4)
    seen[0] = 4
    later = indices.take(8, lambda epoch: epoch <= seen[0])
    assert later in {first, *given}


def test_a_channel_that_cannot_open_leaves_nothing_behind() -> None:
    core = Core(replace(LIMITS, channels_max=2))
    nowhere = "no-such-host." + 64 * "x"  # No name server need be asked.
    for _ in range(8):
        with pytest.raises(LinkDown, match="no-such-host"):
            core.open_channel(ChannelSpec(1, address=(nowhere, 1, 1)))
        with pytest.raises(LayoutError, match="port"):
            core.open_channel(ChannelSpec(1, address=("127.0.0.1", 70_000, 1)))
    core.open_channel(ChannelSpec(1))
    core.open_channel(ChannelSpec(2))
    with pytest.raises(LimitReached, match="channel"):
        core.open_channel(ChannelSpec(3))
    core.close()


def test_listening_again_leaks_no_socket_and_a_taken_port_can_be_left() -> None:
    with hop() as made:
        core = Core(LIMITS)
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(3):
            with pytest.raises(LinkDown, match=str(made.ports[0])):
                core.listen("127.0.0.1", made.ports[0])
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        for _ in range(3):
            core.listen("127.0.0.1")
        assert len(list(Path("/proc/self/fd").iterdir())) == before + 2
        core.close()


def test_commit_and_switch_together_lose_nothing_of_a_stream_that_is_in_both_modes() -> None:
    """Terms for old and new, the switch, then new alone: every event is due under each pair."""
    with hop() as made:
        core = made.core

        def routes(modes: int) -> tuple[Route, ...]:
            return (Route(1, (Term(1, modes),)),)

        core.commit([Row(7, MICROSECOND, routes=routes(2))])
        core.set_modes(2)
        core.start()
        sent = 0
        for turn in range(400):
            new, old = (4, 2) if turn % 2 == 0 else (2, 4)
            for slot in range(20):
                made.send(7, STAMP_NS + (sent + slot) * 1_000)
            sent += 20
            core.commit([Row(7, MICROSECOND, routes=routes(old | new))])
            core.set_modes(new)
            core.commit([Row(7, MICROSECOND, routes=routes(new))])
            if turn % 10 == 0:
                eventually(made.settled(sent))
        eventually(made.settled(sent))
        assert core.counters()["dispatched"] == sent
        assert core.counters()["not_due"] == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("variables_max", -1), ("variables_max", 2**31), ("pool_large", 2**31), ("rings_max", 0)],
)
def test_limits_that_make_no_sense_are_named(name: str, value: int) -> None:
    limits = Limits(**{name: value})
    with pytest.raises(LayoutError, match=name):
        Core(limits)


NO_MEMORY = """
import resource
from gridstat.core._core import Core, held_allocations
from gridstat.core.rows import ChannelSpec, Limits, Route, Row, Term
from gridstat.model.errors import LimitReached
from gridstat.model.rate_law import Period

core = Core(Limits(variables_max=200_000))
core.open_channel(ChannelSpec(1))
rows = [Row(at, Period(1, 30), routes=(Route(1, (Term(1),)),)) for at in range(150_000)]
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 60_000_000,) * 2)
try:
    core.commit(rows)
except LimitReached as refusal:
    print(refusal.args[0], core.rows())
core.commit(rows[:10])
print(core.rows())
"""


def test_a_commit_without_memory_is_refused_and_the_core_lives_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_MEMORY], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    refused, then = done.stdout.splitlines()
    assert refused == "no memory for so large a change 0"
    assert then == "10"


def test_a_core_refuses_to_work_in_a_forked_child() -> None:
    with hop() as made:
        made.core.start()
        child = os.fork()
        if child == 0:
            try:
                made.core.start()
            except Misuse:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_channel_with_an_address_keeps_no_output() -> None:
    with hop() as made, pytest.raises(UnknownName, match="keeps nothing"):
        made.core.take_output(1)


def test_counters_of_a_running_core_are_whole_sums() -> None:
    with hop() as made:
        made.core.commit([made.row(7)])
        made.core.start()
        total = 0
        for turn in range(60):
            packed = [event(7, STAMP_NS + (total + at) * 1_000) for at in range(600)]
            raw = datagram(SOURCE, *packed)
            made.publisher.sendto(raw, (made.host, made.ports[0]))
            total += 600
            for _ in range(5):
                told = made.core.counters()
                ends = ENDS
                assert told["in"] == sum(told[name] for name in ends)
            if turn % 8 == 0:
                eventually(made.settled(total))
        eventually(made.settled(total))


def test_the_memory_of_a_core_does_not_grow_with_changes() -> None:
    core = Core(LIMITS)
    core.open_channel(ChannelSpec(1))
    rows = [Row(at, MICROSECOND, routes=(Route(1, (Term(1),)),)) for at in range(1_000)]
    core.commit(rows)
    before = held_allocations()
    for turn in range(20_000):
        core.commit([replace(rows[turn % 1_000], routes=(Route(1, (Term(1 + turn % 7),)),))])
    assert core.retired() == 0
    assert held_allocations() == before
    core.close()
