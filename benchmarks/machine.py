"""State of the machine during a measurement: its load, stolen time, and sleep states.

The tail of a latency on a shared machine is read beside these figures: a stolen processor delays
every thread on it, whatever its priority, and a sleeping one must be woken by the hypervisor first.
A real-time host forbids that sleep (`/dev/cpu_dma_latency`), and so does a measurement.
"""

from __future__ import annotations

import os
import struct
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

WAKE_LATENCY = Path("/dev/cpu_dma_latency")
"""File that holds the longest wake-up time of a processor in µs, as long as it is open."""

STAT = Path("/proc/stat")
IDLE, IO_WAIT, STEAL, KINDS = 3, 4, 7, 8


class MachineWatch:
    """Watch of the machine from now on; `figures` can be called at any time later."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._before = ticks_in(STAT.read_text(encoding="ascii"))

    def figures(self) -> dict[str, float]:
        """Return the load before, and the shares of processor time since: stolen, and not idle."""
        now = ticks_in(STAT.read_text(encoding="ascii"))
        return {
            "machine_load_before": round(self._load, 2),
            **shares_of([after - before for before, after in zip(self._before, now, strict=True)]),
        }


def ticks_in(stat: str) -> list[int]:
    """Return the ticks of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal."""
    name, *ticks = stat.split(maxsplit=KINDS + 1)[: KINDS + 1]
    assert name == "cpu"
    return [int(count) for count in ticks]


def shares_of(ticks: list[int]) -> dict[str, float]:
    total = max(1, sum(ticks))
    return {
        "steal_percent": round(100.0 * ticks[STEAL] / total, 2),
        "processors_busy": round(1.0 - (ticks[IDLE] + ticks[IO_WAIT]) / total, 2),
    }


@contextmanager
def processors_awake(*, is_wanted: bool = True) -> Iterator[str]:
    """Keep processors awake in the block, if permitted; yield `yes`, or `no` and the reason."""
    if not is_wanted:
        yield "no: as asked for"
        return
    try:
        latency_file = os.open(WAKE_LATENCY, os.O_WRONLY)
    except OSError as error:
        yield f"no: {str(error.strerror).lower()}"
        return
    try:
        os.write(latency_file, struct.pack("=i", 0))
        yield "yes"
    finally:
        os.close(latency_file)
