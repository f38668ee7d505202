"""The file that says how far a pipeline is."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from gridstat.pipeline.progress import PROGRESS_FILE, Progress, read_progress, write_progress

if TYPE_CHECKING:
    from pathlib import Path

SOME = Progress("running", 1, 10, 9, 8, 1, 0, 5.0, 0.5, 7, 8)


def test_what_was_written_last_is_read(tmp_path: Path) -> None:
    write_progress(tmp_path, SOME)
    assert read_progress(tmp_path) == asdict(SOME)
    assert [path.name for path in tmp_path.iterdir()] == [PROGRESS_FILE]


@pytest.mark.parametrize("text", ["", "{", "[1]", "null"])
def test_a_file_that_says_nothing_is_no_progress(tmp_path: Path, text: str) -> None:
    (tmp_path / PROGRESS_FILE).write_text(text)
    assert read_progress(tmp_path) == {}


def test_before_the_first_batch_there_is_none(tmp_path: Path) -> None:
    assert read_progress(tmp_path) == {}
