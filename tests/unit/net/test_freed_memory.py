"""Freed memory goes back to the system."""

from __future__ import annotations

from gridstat.net.freed_memory import return_freed_memory


def test_the_c_library_of_linux_can_return_memory() -> None:
    assert return_freed_memory()
