"""Loop that every role shares: a line in, a line out, until stdin closes."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

PR_SET_TIMERSLACK = 29

Question = Mapping[str, Any]
Answer = dict[str, Any]


class Role(Protocol):
    """Work of a process: its first message, its answers, and its end."""

    def ready(self) -> Answer: ...

    def answer(self, question: Question) -> Answer: ...

    def close(self) -> None: ...


def converse(build: Callable[[Question], Role]) -> int:
    """Build the role from the first line, then answer until end-of-file."""
    sharpen_sleep()
    plan = sys.stdin.readline()
    if not plan:
        return 1
    role = build(json.loads(plan))
    try:
        print_answer(role.ready())
        for line in sys.stdin:
            try:
                print_answer(role.answer(json.loads(line)))
            except Exception as error:  # The one place that reports a role's failure to its parent.
                print_answer({"error": f"{type(error).__name__}: {error}"})
                raise
    finally:
        role.close()
    return 0


def print_answer(answer: Answer) -> None:
    """Print one JSON line, at once."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def step_back() -> None:
    """Give way to any other process that needs a processor; every thread started later does too."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def sharpen_sleep() -> None:
    """Ask for 1 ns of timer slack instead of 50 µs, so that a load's millisecond is exact."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
