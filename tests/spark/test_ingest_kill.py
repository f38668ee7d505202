"""Drivers killed with SIGKILL at any instant: nothing lost, nothing twice, the same tables."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from gridstat.pipeline.pipeline_folder import PipelineFolder
from lab.pipeline.driver import MORE
from lab.pipeline.killing import finish, kill_in_the_middle
from tests.spark.ingest_logs import disturbed, record_events, record_streams, steady
from tests.spark.ingest_tables import check_records, check_rollups

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
STREAMS = 4
ROWS_PER_BATCH = 150
KILLS = 3


def test_killed_drivers_lose_nothing_and_bring_nothing_in_twice(tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)
    record_streams(folder.log, STREAMS)
    rows = disturbed(steady(STREAMS, 200), seed=11)
    record_events(folder.log, rows, rows_per_frame=50)
    (tmp_path / MORE).touch()
    chance = random.Random(2)
    places = [kill_in_the_middle(folder, ROWS_PER_BATCH, chance) for _ in range(KILLS)]
    assert sorted(set(places)) == places, "a kill came before its driver had done anything"
    assert places[-1] < len(rows), "the drivers were killed when all was done"
    finish(folder, 100 * ROWS_PER_BATCH)
    check_records(folder, rows, STREAMS)
    for window_s in (1, 60, 3_600):
        check_rollups(folder, rows, STREAMS, window_s)
