"""Real-time priority for the threads of the event path, where the process may have it.

A thread that waits for the processor behind a program of ordinary priority waits for milliseconds;
one of real-time priority does not. Who may have it is the system's to say (CAP_SYS_NICE, or
RLIMIT_RTPRIO), so it is tried, for a moment, on the thread that asks.
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
"""Below the routers, for whom others wait; both far below what the kernel's own threads have."""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How a thread is scheduled; priority 0 is ordinary scheduling, and `reason` says why."""

    fifo_priority: int
    reason: str = ""

    def __str__(self) -> str:
        if self.fifo_priority:
            return f"real-time, priority {self.fifo_priority}"
        return f"ordinary ({self.reason})"


def scheduling_granted(wish: int | None, usual: int) -> Scheduling:
    """What a wish comes to; without one (None), the usual priority or as much as there is.

    A process that was made modest on purpose (nice, SCHED_IDLE, SCHED_BATCH) stays so unless it
    is told otherwise, and one that is real-time already keeps what it has.
    """
    if wish == 0:
        return Scheduling(0, "as configured")
    if wish is None and (modesty := _modesty()):
        return Scheduling(0, modesty)
    priority = _within_limit(usual) if wish is None else wish
    refusal = _try(priority)
    return Scheduling(0, refusal) if refusal else Scheduling(priority)


@contextmanager
def in_real_time(wish: int | None, usual: int) -> Iterator[Scheduling]:
    """This thread has what was granted within the block; those that it starts there keep it."""
    granted = scheduling_granted(wish, usual)
    if not granted.fifo_priority:
        yield granted
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(granted.fifo_priority))
    try:
        yield granted
    finally:
        os.sched_setscheduler(0, policy, parameters)


def _modesty() -> str:
    if not hasattr(os, "sched_getscheduler"):
        return "this system knows no real-time priority"
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        return "the process is scheduled otherwise already"
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        return "the process is niced"
    return ""


def _within_limit(usual: int) -> int:
    """A capability needs no limit: with a limit of 0 the usual is tried all the same."""
    if not hasattr(resource, "RLIMIT_RTPRIO"):
        return usual
    soft, _ = resource.getrlimit(resource.RLIMIT_RTPRIO)
    return min(usual, soft) if soft > 0 else usual


def _try(priority: int) -> str:
    """Why it may not be; nothing when it may."""
    if not hasattr(os, "sched_setscheduler"):
        return "this system knows no real-time priority"
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError as error:
        return str(error.strerror).lower()
    os.sched_setscheduler(0, policy, parameters)
    return ""
