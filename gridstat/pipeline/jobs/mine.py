"""Mine: statistics of history from the rollups and the counters of routers; all tables are
replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.model.robust_score import SCORE_LIMIT
from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.schemas import (
    ANOMALIES,
    AVERAGES,
    BOTTLENECKS,
    CORRELATIONS,
    PROFILES,
    ROLLUP_1M,
    ROLLUP_1S,
)
from gridstat.pipeline.stages.anomalies import anomalies
from gridstat.pipeline.stages.bottlenecks import bottlenecks
from gridstat.pipeline.stages.correlations import VARIABLES_MAX, correlations
from gridstat.pipeline.stages.profiles import averages, profiles
from gridstat.record.record_kinds import COUNTERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gridstat.pipeline.pipeline_folder import PipelineFolder
    from gridstat.pipeline.schemas import TableSchema

JOB: Final = "mine"


@dataclass(frozen=True, slots=True)
class MineSettings:
    """Settings of the job."""

    score_limit: float = SCORE_LIMIT
    """Deviations from the usual value from which on a minute is an anomaly."""
    variables_max: int = VARIABLES_MAX
    """Most variables among which correlations are computed: those with the most events."""


def run_mine(
    spark: SparkSession, folder: PipelineFolder, settings: MineSettings | None = None
) -> dict[str, int]:
    """Compute all tables of the job; return the number of rows of each."""
    wanted = MineSettings() if settings is None else settings
    with folder.lock(JOB):
        minutes = StoredTable(folder.tables, ROLLUP_1M).read(spark)
        seconds = StoredTable(folder.tables, ROLLUP_1S).read(spark)
        source = spark.read.format("gridstat").option("kind", COUNTERS.name)
        counters = source.load(str(folder.log))
        stored: dict[str, int] = {}

        def keep(table: TableSchema, found: DataFrame) -> DataFrame:
            kept = StoredTable(folder.tables, table)
            kept.overwrite(found.toArrow())
            kept.refresh()
            stored[table.name] = kept.rows()
            return kept.read(spark)

        keep(AVERAGES, averages(minutes))
        usual = keep(PROFILES, profiles(minutes))
        keep(ANOMALIES, anomalies(minutes, usual, limit=wanted.score_limit))
        keep(CORRELATIONS, correlations(seconds, variables_max=wanted.variables_max))
        keep(BOTTLENECKS, bottlenecks(counters))
    return stored
