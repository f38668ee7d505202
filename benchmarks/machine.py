"""What the machine did meanwhile: its load, what the hypervisor kept for others, and its sleep.

A tail on a shared machine is read beside these: a stolen processor holds up every thread on it,
whatever its priority, and one that sleeps has to be woken first, which a hypervisor does when it
likes. A real-time host forbids that sleep (`/dev/cpu_dma_latency`), and so does a measurement.
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
"""The longest time in µs that a processor may take to wake, as long as the file is open."""

STAT = Path("/proc/stat")
IDLE, IO_WAIT, STEAL, KINDS = 3, 4, 7, 8


class MachineWatch:
    """From now on; `figures` may be asked any time later."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._before = ticks_in(STAT.read_text(encoding="ascii"))

    def figures(self) -> dict[str, float]:
        """Load before, and the shares of all processors' time since: stolen, and not idle."""
        now = ticks_in(STAT.read_text(encoding="ascii"))
        return {
            "machine_load_before": round(self._load, 2),
            **shares_of([after - before for before, after in zip(self._before, now, strict=True)]),
        }


def ticks_in(stat: str) -> list[int]:
    """The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal."""
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
    """Within the block no processor sleeps, if we may say so: `yes`, or `no` and why not."""
    if not is_wanted:
        yield "no: as asked for"
        return
    try:
        wish = os.open(WAKE_LATENCY, os.O_WRONLY)
    except OSError as error:
        yield f"no: {str(error.strerror).lower()}"
        return
    try:
        os.write(wish, struct.pack("=i", 0))
        yield "yes"
    finally:
        os.close(wish)
