"""System resources of this process (descriptors, threads, children), for leak detection."""

from __future__ import annotations

import gc
import multiprocessing.resource_tracker
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOR_GOOD = {"jemalloc_bg_thd"}
"""Threads that a library starts whenever it likes, and keeps: Arrow's memory is tidied by one for
each arena, and an arena is used when so many threads have been."""

ENDED = (FileNotFoundError, ProcessLookupError)
"""Errors of the kernel for a thread that ends before, or while, its file is read."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """Snapshot of the countable system resources of this process."""

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


@contextmanager
def nothing_left_behind(
    whose: str, *, within_s: float, but: Callable[[], frozenset[str]] = frozenset
) -> Iterator[None]:
    """Fails unless all that the block has gained is gone soon, `but` for these processes."""
    before = Holdings.now()
    yield
    deadline = time.monotonic() + within_s
    before = replace(before, children=before.children | but())
    is_late = False
    while complaint := Holdings.now().complaint_since(before):
        if is_late:  # It was looked once more: a busy machine may pass the time between two looks.
            pytest.fail(f"the {whose} left behind: {complaint}", pytrace=False)
        is_late = time.monotonic() > deadline
        gc.collect()
        time.sleep(0.01)


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
    return frozenset(
        f"{thread} {python.get(thread, 'of C')}"
        for thread in kernel
        if _name_of(thread) not in FOR_GOOD
    )


def _name_of(thread: int) -> str:
    try:
        return Path(f"/proc/self/task/{thread}/comm").read_text().strip()
    except ENDED:
        return ""


def _children() -> frozenset[str]:
    tracker = getattr(multiprocessing.resource_tracker._resource_tracker, "_pid", None)
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update((task / "children").read_text().split())
        except ENDED:
            continue
    return frozenset(found - {str(tracker)})
