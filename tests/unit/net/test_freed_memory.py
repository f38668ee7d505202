"""Freed memory goes back to the system."""

from __future__ import annotations

import gc
import weakref

from gridstat.net.freed_memory import return_freed_memory


def test_the_c_library_of_linux_can_return_memory() -> None:
    assert return_freed_memory()


def test_what_refers_to_itself_is_returned_too() -> None:
    class Connection:
        def __init__(self) -> None:
            self.itself = self

    gc.disable()
    try:
        left = weakref.ref(Connection())
        assert left() is not None
        return_freed_memory()
    finally:
        gc.enable()
    assert left() is None
