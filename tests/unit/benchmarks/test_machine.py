"""Figures of the machine beside a measurement."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from benchmarks import machine
from benchmarks.machine import MachineWatch, processors_awake, shares_of, ticks_in

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_first_line_of_stat_is_that_of_all_processors() -> None:
    stat = "cpu  10 1 20 300 4 0 5 60 0 0\ncpu0 5 0 10 150 2 0 2 30 0 0\n"
    assert ticks_in(stat) == [10, 1, 20, 300, 4, 0, 5, 60]


def test_what_is_stolen_and_what_is_busy_are_shares_of_all_time() -> None:
    shares = shares_of([30, 0, 10, 45, 5, 0, 0, 10])
    assert shares == {"steal_percent": 10.0, "processors_busy": 0.5}
    assert shares_of([0] * 8)["steal_percent"] == 0.0


def test_a_watch_tells_of_the_time_since_it_began() -> None:
    figures = MachineWatch().figures()
    assert set(figures) == {"machine_load_before", "steal_percent", "processors_busy"}
    assert all(value >= 0 for value in figures.values())


def test_processors_are_told_to_wake_at_once_within_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = tmp_path / "cpu_dma_latency"
    wish.touch()
    monkeypatch.setattr(machine, "WAKE_LATENCY", wish)
    with processors_awake() as awake:
        assert awake == "yes"
        assert wish.read_bytes() == struct.pack("=i", 0)


def test_where_processors_may_sleep_it_is_said_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "WAKE_LATENCY", tmp_path / "absent")
    with processors_awake() as awake:
        assert awake == "no: no such file or directory"
    with processors_awake(is_wanted=False) as awake:
        assert awake == "no: as asked for"
