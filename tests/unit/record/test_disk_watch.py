"""The room on a disk while a recorder runs and other programs fill it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gridstat.record.log_settings import MIB, RecorderSettings
from tests.unit.record.test_recorder import free_mib, recording

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_disk_that_others_fill_raises_the_alarm_once_until_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = RecorderSettings(free_bytes_alarm=300 * MIB)
    told = []
    with free_mib(400), recording(tmp_path, settings) as recorder:
        for room_mib in (300, 299, 200, 400):
            with free_mib(room_mib):
                recorder.tend()
            figures = recorder.figures()
            told.append((figures.state, figures.free_bytes))
    states = ["recording", "nearly full", "nearly full", "recording"]
    rooms = [300 * MIB, 299 * MIB, 200 * MIB, 400 * MIB]
    assert told == list(zip(states, rooms, strict=True))
    words = [message.partition(" ")[0] for message in caplog.messages]
    assert words.count("disk_nearly_full") == 1


def test_the_alarm_is_there_from_the_start(tmp_path: Path) -> None:
    with free_mib(100), recording(tmp_path, RecorderSettings()) as recorder:
        assert recorder.figures().state == "nearly full"


def test_a_file_system_that_does_not_tell_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise OSError(5, "Input/output error")

    with recording(tmp_path, RecorderSettings(free_bytes_alarm=0)) as recorder:
        with monkeypatch.context() as patched:
            patched.setattr(os, "statvfs", fail)
            recorder.tend()
        assert recorder.figures().free_bytes is None
        assert recorder.figures().state == "recording"
