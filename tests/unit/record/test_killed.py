"""Recorders killed at any call: what was recorded is there, once, in order, and can be read."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gridstat.record.archive_mark import archived_before
from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import EVENTS, KINDS, STREAMS
from gridstat.record.recorder import Recorder, read_rows
from gridstat.record.segment import SUFFIX, segment_name
from tests.unit.record import killed_recorders
from tests.unit.record.killed_recorders import SETTINGS
from tests.unit.record.samples import Clock

if TYPE_CHECKING:
    from pathlib import Path

LIVES = int(os.environ.get("GRIDSTAT_RECORDER_LIVES", "60"))
LIVES_PER_S_MIN = 2


@pytest.mark.timeout(60 + LIVES / LIVES_PER_S_MIN)
def test_whatever_kills_a_recorder_nothing_recorded_is_lost_or_doubled(tmp_path: Path) -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    words = ("-m", "tests.unit.record.killed_recorders", str(tmp_path), str(seed), str(LIVES))
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-2_000:]}"
    _, owed, killed = done.stdout.split()
    assert int(killed) > LIVES // 2, f"seed {seed}: {done.stdout}"
    Recorder(tmp_path, now_ns=Clock(), settings=SETTINGS).close()
    found = [row["word"] for row in read_rows(tmp_path, EVENTS)]
    first, end = LogReader(tmp_path, EVENTS).ends()
    assert found == list(range(first, end)), f"seed {seed}"
    assert first <= archived_before(tmp_path, EVENTS), f"seed {seed}"
    assert end >= int(owed), f"seed {seed}"
    known = [row["stream"] for row in read_rows(tmp_path, STREAMS)]
    assert known == list(range(len(known))), f"seed {seed}"
    assert {row["stream"] for row in read_rows(tmp_path, EVENTS)} <= set(known), f"seed {seed}"
    for kind in KINDS.values():
        extents = LogReader(tmp_path, kind).extents()
        ends = [extent.end_record for extent in extents]
        assert [extent.first_record for extent in extents[1:]] == ends[:-1], f"seed {seed}"
        named = {segment_name(extent.first_record) for extent in extents}
        there = {path.name for path in (tmp_path / kind.name).glob(f"*{SUFFIX}")}
        assert there == named, f"seed {seed}"


def test_a_process_that_ends_by_a_bug_is_not_taken_for_a_killed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(killed_recorders, "live", stumble)
    with pytest.raises(AssertionError, match="ended by itself"):
        killed_recorders.outlive(tmp_path, random.Random(1))
