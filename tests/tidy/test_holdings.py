"""The search for leaks finds each kind of leak."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from tests.holdings import Holdings

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_gained_is_no_complaint() -> None:
    before = Holdings.now()
    assert Holdings.now().complaint_since(before) == ""


def test_an_open_file_is_a_complaint(tmp_path: Path) -> None:
    before = Holdings.now()
    with (tmp_path / "open").open("w"):
        assert "file descriptors" in Holdings.now().complaint_since(before)


def test_a_running_thread_is_a_complaint() -> None:
    before = Holdings.now()
    may_end = threading.Event()
    thread = threading.Thread(target=may_end.wait)
    thread.start()
    complaint = Holdings.now().complaint_since(before)
    may_end.set()
    thread.join()
    assert "threads" in complaint


def test_a_running_child_is_a_complaint() -> None:
    before = Holdings.now()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert f"child processes ['{child.pid}']" in Holdings.now().complaint_since(before)
        child.communicate(b"\n")
