"""Between connection and recorder: what was lost before it got here is a gap as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.console.daemons.recorder_daemon import RecorderTap
from gridstat.record.kinds import EVENTS, GAPS, STREAMS
from gridstat.record.recorder import Recorder, read_rows
from gridstat.record.settings import RecorderSettings
from tests.unit.record.samples import Clock, samples, variable

if TYPE_CHECKING:
    from pathlib import Path


def test_what_the_receiver_dropped_is_a_gap_once(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, now_ns=Clock(), settings=RecorderSettings())
    tap = RecorderTap(recorder)
    tap.look({"ring_full": 0, "kernel_dropped": 0}, is_attached=True)
    tap.look({"ring_full": 5, "kernel_dropped": 0}, is_attached=True)
    tap.look({"ring_full": 5, "kernel_dropped": 2}, is_attached=True)
    tap.look({"ring_full": 8, "kernel_dropped": 2}, is_attached=True)
    recorder.close()
    rows = list(read_rows(tmp_path, GAPS))
    assert {row["reason"]: row["events"] for row in rows} == {
        "receiver full": 8,
        "socket full": None,
    }
    assert all(row["from_ns"] <= row["to_ns"] for row in rows)


def test_a_time_without_an_edge_router_is_a_gap(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, now_ns=Clock(), settings=RecorderSettings())
    tap = RecorderTap(recorder)
    tap.look({"ring_full": 0, "kernel_dropped": 0}, is_attached=False)
    recorder.close()
    assert [row["reason"] for row in read_rows(tmp_path, GAPS)] == ["not attached"]


def test_events_and_their_terms_reach_the_recorder(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, now_ns=Clock(), settings=RecorderSettings())
    tap = RecorderTap(recorder)
    tap.begin(variable(3), 2, 77)
    tap.take(samples(0, 4, variable_id=3), b"")
    recorder.close()
    (stream,) = read_rows(tmp_path, STREAMS)
    assert (stream["variable"], stream["every"], stream["subscription"]) == ("c1/a/v3", 2, 77)
    assert [row["stream"] for row in read_rows(tmp_path, EVENTS)] == [0] * 4
