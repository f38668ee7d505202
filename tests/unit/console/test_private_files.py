"""Modes of files that need no daemon to be made."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.records.sqlite_store import SqliteStore
from gridstat.record.log_writer import LogWriter
from gridstat.record.record_kinds import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def permissive() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_a_journal_is_readable_by_its_user_only_whatever_the_umask_is(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "journal.sqlite")
    try:
        assert modes(tmp_path) == {0o600}
    finally:
        store.close()


def test_a_log_is_readable_by_its_user_only_whatever_the_umask_is(tmp_path: Path) -> None:
    with LogWriter(tmp_path, EVENTS, now_ns=lambda: 1):
        assert modes(tmp_path / EVENTS.name) == {0o600}
