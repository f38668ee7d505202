"""Real-time priority for the threads of the event path, where the process may have it.

A thread that waits for the processor behind a program of ordinary priority waits for milliseconds;
one of real-time priority does not. The system decides who may have it (CAP_SYS_NICE, or
RLIMIT_RTPRIO), so it is tried, for a moment, on the calling thread.
"""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUTER_PRIORITY: Final = 10
END_POINT_PRIORITY: Final = 5
"""Lower than the routers' priority, because others wait for routers; both are far below the
kernel's own threads."""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Scheduling of a thread; priority 0 is ordinary scheduling, for the given `reason`."""

    fifo_priority: int
    reason: str = ""

    def __str__(self) -> str:
        if self.fifo_priority:
            return f"real-time, priority {self.fifo_priority}"
        return f"ordinary ({self.reason})"


def scheduling_granted(requested: int | None, usual: int) -> Scheduling:
    """Return the scheduling that the system grants for the requested priority.

    None requests the usual priority, or as much as the system allows. A process with lowered
    priority (nice, SCHED_IDLE, SCHED_BATCH) keeps it unless a priority is requested, and one that
    is real-time already keeps its own.
    """
    if requested == 0:
        return Scheduling(0, "as configured")
    if requested is None and (reason := _ordinary_reason()):
        return Scheduling(0, reason)
    priority = _within_limit(usual) if requested is None else requested
    refusal = _refusal(priority)
    return Scheduling(0, refusal) if refusal else Scheduling(priority)


@contextmanager
def in_real_time(requested: int | None, usual: int) -> Iterator[Scheduling]:
    """Give this thread the granted scheduling within the block; threads started there keep it."""
    granted = scheduling_granted(requested, usual)
    if not granted.fifo_priority:
        yield granted
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(granted.fifo_priority))
    try:
        yield granted
    finally:
        os.sched_setscheduler(0, policy, parameters)


def _ordinary_reason() -> str:
    if not hasattr(os, "sched_getscheduler"):
        return "this system knows no real-time priority"
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        return "the process is scheduled otherwise already"
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        return "the process is niced"
    return ""


def _within_limit(usual: int) -> int:
    """Return the usual priority within the process limit. With CAP_SYS_NICE a limit of 0 does not
    bind, so the usual one is tried then."""
    if not hasattr(resource, "RLIMIT_RTPRIO"):
        return usual
    soft, _ = resource.getrlimit(resource.RLIMIT_RTPRIO)
    return min(usual, soft) if soft > 0 else usual


def _refusal(priority: int) -> str:
    """Return why the system refuses the priority; empty when it does not."""
    if not hasattr(os, "sched_setscheduler"):
        return "this system knows no real-time priority"
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError as error:
        return str(error.strerror).lower()
    os.sched_setscheduler(0, policy, parameters)
    return ""
