"""What this process holds of the system (descriptors, threads, children), to find leaks by."""

from __future__ import annotations

import multiprocessing.resource_tracker
import os
import threading
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Holdings:
    """What this process holds of the system's countable things."""

    descriptors: frozenset[str]
    threads: frozenset[str]
    children: frozenset[str]

    @staticmethod
    def now() -> Holdings:
        return Holdings(_descriptors(), _threads(), _children())

    def complaint_since(self, before: Holdings) -> str:
        gained = {
            "file descriptors": self.descriptors - before.descriptors,
            "threads": self.threads - before.threads,
            "child processes": self.children - before.children,
        }
        return "; ".join(f"{what} {sorted(new)}" for what, new in gained.items() if new)


def _descriptors() -> frozenset[str]:
    tracker = getattr(multiprocessing.resource_tracker._resource_tracker, "_fd", None)
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except FileNotFoundError:
            continue  # The descriptor of this very listing.
        if entry != str(tracker):
            found.add(f"{entry}={target}")
    return frozenset(found)


def _threads() -> frozenset[str]:
    """Threads of Python by name and of C by kernel identifier."""
    python = {thread.native_id: thread.name for thread in threading.enumerate()}
    kernel = {int(entry) for entry in os.listdir("/proc/self/task")}
    return frozenset(f"{thread} {python.get(thread, 'of C')}" for thread in kernel)


def _children() -> frozenset[str]:
    tracker = getattr(multiprocessing.resource_tracker._resource_tracker, "_pid", None)
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update((task / "children").read_text().split())
        except FileNotFoundError:
            continue  # The thread ended meanwhile.
    return frozenset(found - {str(tracker)})
