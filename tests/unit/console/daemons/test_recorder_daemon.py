"""Path from connection to recorder: events that are lost before the recorder are a gap as well."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from gridstat.console.daemons.recorder_daemon import RecorderDaemon, RecorderPlan, RecorderTap
from gridstat.console.daemons.recorder_rows import AccountRows
from gridstat.endpoint.options import qos
from gridstat.model.errors import Misuse
from gridstat.pipeline.stream_catalog import FOR_EVER_NS, known_streams
from gridstat.record.log_settings import RecorderSettings
from gridstat.record.record_kinds import CONTRACTS, EVENTS, GAPS, STREAMS
from gridstat.record.recorder import Recorder, read_rows
from tests.unit.record.batches import BEGAN_NS
from tests.unit.record.samples import Clock, samples, variable

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.console.access import Access


def test_what_the_receiver_dropped_is_a_gap_once(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, now_ns=Clock(), settings=RecorderSettings())
    tap = RecorderTap(recorder, AccountRows())
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
    tap = RecorderTap(recorder, AccountRows())
    tap.look({"ring_full": 0, "kernel_dropped": 0}, is_attached=False)
    recorder.close()
    assert [row["reason"] for row in read_rows(tmp_path, GAPS)] == ["not attached"]


def test_events_and_their_terms_reach_the_recorder(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, now_ns=Clock(), settings=RecorderSettings())
    tap = RecorderTap(recorder, AccountRows())
    tap.begin(variable(3), 2, 77)
    tap.take(samples(0, 4, variable_id=3), b"")
    recorder.close()
    (stream,) = read_rows(tmp_path, STREAMS)
    assert (stream["variable"], stream["every"], stream["subscription"]) == ("c1/a/v3", 2, 77)
    assert [row["stream"] for row in read_rows(tmp_path, EVENTS)] == [0] * 4


class RefusingEdge:
    """A connection whose first contract brings events, and whose second is refused."""

    is_connected = True

    def __init__(self, log: Path) -> None:
        self._log = log
        self._tap: Any = None
        self.told_at_tap: list[str] = []

    def tap(self, tap: Any) -> None:
        self._tap = tap
        self.told_at_tap = [row["reason"] for row in read_rows(self._log, GAPS)]

    async def run(self, call: Any, *words: Any, **options: Any) -> Any:
        return call(*words, **options)

    def subscribe(self, name: str, **_: Any) -> None:
        if name == "c1/a/refused":
            raise Misuse("no such variable")
        self._tap.begin(variable(), 1, 7)
        self._tap.take(samples(0, 5, at_ns=BEGAN_NS + 3_600 * 10**9), b"")

    def counters(self) -> dict[str, dict[str, int]]:
        return {"received": {"ring_full": 0, "kernel_dropped": 0}}

    def close(self) -> None:
        pass


def test_an_outage_is_told_also_if_the_start_after_it_fails_with_events_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Recorder(tmp_path, now_ns=Clock(), settings=RecorderSettings())
    before.begin(variable(), 1, 7)
    before.take(samples(0, 5))
    last_ns = BEGAN_NS + 4 * 1_000_000 + 500
    before.close()
    edge = RefusingEdge(tmp_path)

    async def connect(*_: Any, **__: Any) -> RefusingEdge:
        return edge

    monkeypatch.setattr("gridstat.console.daemons.recorder_daemon.connect_async", connect)
    access = SimpleNamespace(
        cloud="c1",
        certificates=SimpleNamespace(path=tmp_path),
        files_of=lambda *_: None,
    )
    plan = RecorderPlan(
        access=cast("Access", access),
        into=tmp_path,
        end_point="c1/recorder",
        edges=(),
        names=("c1/a/v1", "c1/a/refused"),
        qos=qos(),
        settings=RecorderSettings(),
    )

    async def start_and_fail() -> None:
        daemon = RecorderDaemon(plan)
        try:
            with pytest.raises(Misuse):
                await daemon.start()
        finally:
            await daemon.close()

    asyncio.run(start_and_fail())
    assert len(list(read_rows(tmp_path, EVENTS))) == 10
    assert edge.told_at_tap == ["recorder down"]
    (gap,) = read_rows(tmp_path, GAPS)
    assert (gap["reason"], gap["from_ns"]) == ("recorder down", last_ns)


def test_the_end_of_a_contract_is_in_the_log_without_any_account(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, now_ns=Clock(), settings=RecorderSettings())
    tap = RecorderTap(recorder, AccountRows(end_point="c1/recorder"))
    for number in (3, 4):
        tap.begin(variable(number), 2, 70 + number)
        tap.take(samples(0, 4, variable_id=number), b"")
    tap.end(variable(3), 2, 73)
    tap.record_ends()
    tap.record_ends()
    recorder.sync()
    (row,) = read_rows(tmp_path, CONTRACTS)
    assert (row["subscription"], row["variable"], row["is_over"]) == (73, "c1/a/v3", True)
    assert known_streams(tmp_path).column("until_ns").to_pylist() == [row["time_ns"], FOR_EVER_NS]
    recorder.close()
