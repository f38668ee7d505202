"""End of a process that must not continue, whether or not its log is read."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDED_WITHIN_S = 60.0
LEASE = (
    "from gridstat.broker.records.journal_lease import end_process; end_process('c1', 'it is lost')"
)
JOURNAL = "from gridstat.broker.records.journal import end_process; end_process()"
MACHINE = "from gridstat.net.command.driver import end_process; end_process(ValueError('a bug'))"


@contextmanager
def unread_pipe() -> Iterator[int]:
    """Return the writing end of a full pipe without a reader."""
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writing, bytes(4_096))
        os.set_blocking(writing, True)
        yield writing
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(("program", "code"), [(LEASE, 75), (JOURNAL, 70), (MACHINE, 70)])
def test_a_log_that_takes_nothing_does_not_keep_a_process_alive(program: str, code: int) -> None:
    with unread_pipe() as log:
        ended = subprocess.run(
            [sys.executable, "-c", program], stderr=log, check=False, timeout=ENDED_WITHIN_S
        )
    assert ended.returncode == code


@pytest.mark.parametrize(
    ("program", "words"), [(LEASE, "it is lost"), (JOURNAL, "journal_failed"), (MACHINE, "a bug")]
)
def test_a_log_that_is_read_says_why(program: str, words: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert words in ended.stderr


def test_a_process_without_a_thread_left_ends_without_a_word() -> None:
    program = (
        "import threading\n"
        'def start(_): raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = start\n"
    )
    ended = subprocess.run([sys.executable, "-c", program + LEASE], check=False)
    assert ended.returncode == 75
