"""The search for leaks finds each kind of leak."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.holdings import Holdings


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


@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError])
def test_a_thread_that_ends_while_it_is_looked_at_is_none(
    monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    def ended(_: Path) -> str:
        raise error

    monkeypatch.setattr(Path, "read_text", ended)
    assert Holdings.now().children == frozenset()


def test_a_running_child_is_a_complaint() -> None:
    before = Holdings.now()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert f"child processes ['{child.pid}']" in Holdings.now().complaint_since(before)
        child.communicate(b"\n")


def test_a_product_after_a_fork_starts_no_thread() -> None:
    before = Holdings.now()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    np.dot(np.ones((256, 256)), np.ones((256, 256)))
    assert Holdings.now().complaint_since(before) == ""
