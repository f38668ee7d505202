"""The reference as a router of its own: the baseline in plain Python, over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from gridstat.core.reference import ReferenceCore
from gridstat.core.rows import ChannelSpec, Route, Term
from tests.protocol.grids import (
    MS,
    PUBLISHER,
    SMALL,
    aperiodic,
    assert_reconciled,
    datagram,
    drops,
    event,
    periodic,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 10.0
EVERY_SECOND = (Route(1, (Term(2),)),)


@contextmanager
def running(core: ReferenceCore) -> Iterator[None]:
    ending = threading.Event()
    thread = threading.Thread(
        target=core.run, args=(ending.is_set,), kwargs={"clock_ns": time.time_ns}
    )
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def receiving_socket(stack: ExitStack, host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
    opened.settimeout(PATIENCE_S)
    opened.bind((host, 0))
    return opened


@pytest.mark.feature("S3-102")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("bandwidth_bytes_per_s", [0, 10**6])
def test_the_reference_forwards_over_sockets_what_it_forwards_in_memory(
    host: str, bandwidth_bytes_per_s: int
) -> None:
    core, in_memory = ReferenceCore(SMALL), ReferenceCore(SMALL)
    rows = [periodic(1, 10, routes=EVERY_SECOND), aperiodic(2, is_urgent=True, routes=EVERY_SECOND)]
    start_ns = time.time_ns()
    with ExitStack() as stack:
        data, urgent = receiving_socket(stack, host), receiving_socket(stack, host)
        address = (host, data.getsockname()[1], urgent.getsockname()[1])
        core.open_channel(
            ChannelSpec(1, address=address, bandwidth_bytes_per_s=bandwidth_bytes_per_s)
        )
        in_memory.open_channel(ChannelSpec(1))
        for each in (core, in_memory):
            each.open_source(PUBLISHER, is_publisher=True)
            each.commit(rows)
        data_port, urgent_port = core.listen(host)
        sender = receiving_socket(stack, host)
        stack.callback(core.close)
        received: list[tuple[int, bytes]] = []
        with running(core):
            for slot in range(40):
                for variable_id, port in ((1, data_port), (2, urgent_port)):
                    created_ns = start_ns + slot * 10 * MS
                    octets = datagram(PUBLISHER, event(variable_id, created_ns, sequence=slot))
                    in_memory.inject(octets, port=variable_id - 1, now_ns=start_ns)
                    sender.sendto(octets, (host, port))
                    if sent := in_memory.take_output(1):
                        place = (data, urgent)[sent[0][0]]
                        received.append((sent[0][0], place.recv(65_535)))
                        assert told(received[-1:]) == told(sent)
            await_events(core, 80)
        assert len(received) == 40 + 20
        assert core.counters() == in_memory.counters()
        assert_reconciled(core, [1])


def await_events(core: ReferenceCore, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while core.counters()["in"] < count:
        assert time.monotonic() < deadline, f"{core.counters()['in']} events of {count} came"
        time.sleep(0.005)


def test_a_send_that_fails_is_counted_by_its_events() -> None:
    core = ReferenceCore(SMALL)
    core.open_source(PUBLISHER)
    core.open_channel(ChannelSpec(1, address=("127.0.0.1", 0, 0)))
    core.commit([periodic(v, 10, routes=(Route(1, (Term(1),)),)) for v in (1, 2)])
    core.inject(datagram(PUBLISHER, event(1, 10), event(2, 10)), now_ns=10)
    counters = core.channel_counters(1)
    core.close()
    assert counters["due"] == counters["send_failed"] == drops(counters) == 2
