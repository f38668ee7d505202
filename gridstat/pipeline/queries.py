"""Questions in SQL over the pipeline's tables and the log, answered by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException

from gridstat.model.errors import NotReadOnly, UnknownName
from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.log_source import NAME
from gridstat.pipeline.read_only_plan import checked_plan, run_plan
from gridstat.pipeline.schemas import TABLES
from gridstat.record.record_kinds import COUNTERS, EVENTS, KINDS, LEDGERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gridstat.pipeline.pipeline_folder import PipelineFolder
    from gridstat.pipeline.row_choice import RowChoice

LOG_PREFIX: Final = "log_"
"""Kinds of the log are tables of this name: `log_events` has what is not archived yet, too."""

BOUNDED: Final = (EVENTS.name, LEDGERS.name, COUNTERS.name)
"""Kinds of the log that grow with time, so that reading only a part of them is worth it."""

SIMPLER: Final = "ask for less at once; deeply nested brackets, calls and queries are too complex"


def make_views(
    spark: SparkSession, folder: PipelineFolder, recorded_rows: RowChoice | None = None
) -> list[str]:
    """Give every table, and every kind of the log, a name for SQL; return the names.

    Of the kinds `BOUNDED` all rows are read, or only those of `recorded_rows`, for any statement.
    The others are read whole: a stream or contract that began earlier still holds.
    """
    bounds = {} if recorded_rows is None else recorded_rows.options
    names = []
    for name, schema in TABLES.items():
        if (folder.tables / name).is_dir():
            StoredTable(folder.tables, schema).read(spark).createOrReplaceTempView(name)
            names.append(name)
    for kind in KINDS:
        if (folder.log / kind).is_dir():
            source = spark.read.format(NAME).option("kind", kind)
            chosen = source.options(**bounds) if kind in BOUNDED else source
            recorded = chosen.load(str(folder.log))
            recorded.createOrReplaceTempView(f"{LOG_PREFIX}{kind}")
            names.append(f"{LOG_PREFIX}{kind}")
    return names


def run_statement(
    spark: SparkSession,
    folder: PipelineFolder,
    statement: str,
    recorded_rows: RowChoice | None = None,
) -> DataFrame:
    """Return the result of a statement that only reads these tables.

    Raise `NotReadOnly` for any other statement, and an error in plain text if Spark cannot parse
    it.
    """
    names = make_views(spark, folder, recorded_rows)
    try:
        return run_plan(spark, checked_plan(spark, statement, names))
    except (ParseException, AnalysisException) as error:
        said = str(error).strip().partition("\n")[0]
        known = ", ".join(names) or "none yet; start `gridstat pipeline run`"
        raise UnknownName(said, hint=f"tables here: {known}") from error
    except Py4JJavaError as error:
        kind = error.java_exception.getClass().getSimpleName()
        raise NotReadOnly(f"Spark cannot plan the statement: {kind}", hint=SIMPLER) from error
