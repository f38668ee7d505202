"""Comparison of the handed-on alarms with the table of alarms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lab.pipeline.handed_on import FILE, HandedOn, complaints, handed_again, handed_on

if TYPE_CHECKING:
    from pathlib import Path


def alarms(*onsets_ns: int, value: float = 51.0) -> pa.Table:
    rows = [
        {
            "rule": "too-high",
            "kind": "threshold",
            "variable": "lab/soak/pmu-1/frequency",
            "stream": 1,
            "onset_ns": onset_ns,
            "sequence": 7,
            "value": value,
            "limit": 50.5,
            "severity": "warning",
            "text": "too high",
        }
        for onset_ns in onsets_ns
    ]
    return pa.Table.from_pylist(rows)


KEPT = alarms(1, 2, 3)


def test_an_alarm_that_is_handed_on_again_is_the_same_alarm(tmp_path: Path) -> None:
    HandedOn(tmp_path).publish(alarms(1, 2))
    HandedOn(tmp_path).publish(alarms(2, 3))
    assert list(complaints(tmp_path, KEPT)) == []
    assert handed_again(tmp_path) == 1


def test_a_torn_line_was_not_handed_on(tmp_path: Path) -> None:
    out = HandedOn(tmp_path)
    out.publish(KEPT)
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-1])
    assert len(handed_on(tmp_path)) == 2
    (complaint,) = complaints(tmp_path, KEPT)
    assert "1 alarms never handed on" in complaint
    out.publish(alarms(3))
    assert list(complaints(tmp_path, KEPT)) == []


def test_an_alarm_that_is_not_kept_may_not_be_handed_on(tmp_path: Path) -> None:
    HandedOn(tmp_path).publish(alarms(1, 2, 3, 4))
    (complaint,) = complaints(tmp_path, KEPT)
    assert "1 handed on and not kept" in complaint


def test_an_alarm_may_not_be_handed_on_with_other_words(tmp_path: Path) -> None:
    out = HandedOn(tmp_path)
    out.publish(KEPT)
    out.publish(alarms(2, value=52.0))
    assert any("1 alarms twice handed on" in found for found in complaints(tmp_path, KEPT))


def test_an_alarm_may_not_be_kept_twice(tmp_path: Path) -> None:
    HandedOn(tmp_path).publish(KEPT)
    kept = pa.concat_tables([KEPT, alarms(2)])
    assert any("1 alarms twice in the table" in found for found in complaints(tmp_path, kept))
