"""Processor time of an event at the ends: `python -m benchmarks.micro.ends`.

One sender and one receiver in this process, over loopback, at most a ring's worth in flight. The
sender's time is that of `send_many` alone, the receiver's that of its whole thread.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gridstat.core._ends import Receiver, Sender
from gridstat.model.rate_law import Period

if TYPE_CHECKING:
    from gridstat.core.end_settings import Keep

RING_EVENTS = 65_536
BATCH_EVENTS = 32_768
MTU_BYTES = 1_472


@dataclass(frozen=True, slots=True)
class Load:
    """One row of the printed table."""

    keep: Keep
    variables: int
    options: int = 0
    events_per_datagram: int = 0
    events: int = 4_000_000


LOADS = (
    Load("count", 1_000),
    Load("newest", 1_000),
    Load("ring", 1_000),
    Load("ring", 100_000),
    Load("ring", 1_000, options=5, events_per_datagram=1, events=1_000_000),
)


def run(load: Load) -> tuple[float, float]:
    """Return the nanoseconds of an event at the sender and at the receiver."""
    receiver = Receiver(keep=load.keep, ring_events=2 * RING_EVENTS)
    for variable_id in range(load.variables):
        receiver.expect(variable_id, Period(1, 1_000_000))
    receiver.start()
    sender = Sender(7, ("127.0.0.1", *receiver.ports), mtu_bytes=MTU_BYTES)
    start_ns = time.time_ns()
    sent = sending_ns = 0
    options = np.zeros((BATCH_EVENTS, 24 * load.options), np.uint8)
    while sent < load.events:
        index = np.arange(sent, sent + BATCH_EVENTS)
        variable_ids = (index % load.variables).astype(np.uint32)
        created_ns = (start_ns + index // load.variables * 1_000).astype(np.uint64)
        before_ns = time.thread_time_ns()
        sent += sender.send_many(
            variable_ids,
            index,
            created_ns,
            options=options if load.options else None,
            events_per_datagram=load.events_per_datagram,
        )
        sending_ns += time.thread_time_ns() - before_ns
        _drain(receiver, load, sent - RING_EVENTS)
    _drain(receiver, load, sent)
    counters = receiver.counters()
    assert counters["delivered"] == sent, counters
    receiver.close()
    sender.close()
    return sending_ns / sent, receiver.thread_cpu_ns() / sent


def _drain(receiver: Receiver, load: Load, least: int) -> None:
    while receiver.counters()["in"] < least:
        time.sleep(0.0001)
    while load.keep == "ring" and len(receiver.read()):
        pass


def main() -> None:
    print("keep     variables  bytes per datagram  send ns receive ns")
    for load in LOADS:
        send_ns, receive_ns = run(load)
        packing = load.events_per_datagram or "MTU"
        print(
            f"{load.keep:8} {load.variables:9} {24 + 24 * load.options:6} {packing:>12} "
            f"{send_ns:8.1f} {receive_ns:10.1f}"
        )


if __name__ == "__main__":
    main()
