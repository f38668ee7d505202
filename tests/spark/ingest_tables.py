"""Content of a pipeline's tables, read without Spark, against the oracle of `ingest_logs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from deltalake import DeltaTable

from tests.spark.ingest_logs import judged, rolled_up

if TYPE_CHECKING:
    import pyarrow as pa

    from gridstat.pipeline.pipeline_folder import PipelineFolder
    from tests.spark.ingest_logs import Made

NAMES = {1: "rollup_1s", 60: "rollup_1m", 3_600: "rollup_1h"}
EXACT = ["count", "expected", "minimum", "maximum", "first", "last"]
REAL = ["completeness", "mean", "deviation", "p95", "latency_ms_mean", "latency_ms_max"]


def table(folder: PipelineFolder, name: str) -> pa.Table:
    return DeltaTable(str(folder.tables / name)).to_pyarrow_table()


def check_records(folder: PipelineFolder, rows: list[Made], streams: int) -> None:
    """Archive and quarantine together hold every record once, for the right reason."""
    wanted = judged(rows, streams)
    archived = table(folder, "events").to_pandas()
    quarantined = table(folder, "quarantine").to_pandas()
    good = wanted[wanted.reason.isna()]
    assert sorted(archived.record) == list(good.record)
    bad = dict(zip(quarantined.record, quarantined.reason, strict=True))
    assert len(bad) == len(quarantined)
    assert bad == dict(wanted.dropna(subset="reason")[["record", "reason"]].to_numpy())
    archived = archived.sort_values("record")
    for name in ("stream", "created_ns", "received_ns", "sequence", "value"):
        assert np.array_equal(archived[name], good[name]), name
    assert (archived.day == archived.created.dt.date).all()


def check_rollups(folder: PipelineFolder, rows: list[Made], streams: int, window_s: int) -> None:
    """Every window of every stream is there once and says what the rows say."""
    found = table(folder, NAMES[window_s]).to_pandas()
    since = found.window_start - pd.Timestamp(0, tz="UTC")
    found["start_s"] = since // pd.Timedelta(seconds=1)
    assert (found.window_s == window_s).all()
    indexed = found.set_index(["stream", "start_s"]).sort_index()
    assert indexed.index.is_unique
    wanted = rolled_up(rows, streams, window_s)
    assert list(indexed.index) == list(wanted.index)
    for name in EXACT:
        pd.testing.assert_series_equal(
            indexed[name], wanted[name], check_dtype=False, check_index_type=False, rtol=0
        )
    for name in REAL:
        pd.testing.assert_series_equal(
            indexed[name], wanted[name], check_index_type=False, rtol=1e-9, atol=1e-12
        )
