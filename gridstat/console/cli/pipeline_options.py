"""Options of the pipeline's commands, and a Spark session for as long as a command lasts."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from gridstat.console.access import folder_from
from gridstat.model.errors import ConfigurationError, Misuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.pipeline.pipeline_folder import PipelineFolder
    from gridstat.pipeline.spark_session import Spark, SparkSettings

PACKAGES: Final = ("deltalake", "pandas", "pyarrow", "pyspark")
PLACE: Final = "pipeline"
NS_PER_US: Final = 1_000
INT64_MAX: Final = 2**63 - 1
"""Largest number in a table; in nanoseconds the year 2262."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Into = Annotated[
    Path | None,
    typer.Option(
        "--into",
        "--in",
        help="The pipeline's folder; else `pipeline` in that of the cloud.",
        show_default=False,
    ),
]
Log = Annotated[
    Path | None,
    typer.Option("--log", help="The recorder's folder; else `log` there.", show_default=False),
]
Master = Annotated[
    str,
    typer.Option(
        "--master", envvar="GRIDSTAT_MASTER", help="Where Spark runs: local[2], spark://host:7077."
    ),
]
Memory = Annotated[str, typer.Option("--driver-memory", help="Of Spark's driver: 2g, 800m.")]
MASTER: Final = "local[2]"
MEMORY: Final = "1g"


def need_spark() -> None:
    """Raises with what to install, before anything that needs it is imported."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the pipeline needs {', '.join(missing)}", hint="pip install 'gridstat[spark]'"
        )


def folder_of(folder: Path | None, into: Path | None, log: Path | None) -> PipelineFolder:
    # Needs what `need_spark` asks for.
    from gridstat.pipeline.pipeline_folder import PipelineFolder

    return PipelineFolder((into or folder_from(folder) / PLACE).absolute(), log)


def existing(place: PipelineFolder) -> PipelineFolder:
    """The same, if there is something in it."""
    if not place.path.is_dir() and not place.log.is_dir():
        raise ConfigurationError(
            f"{place.path} is no pipeline's folder", hint="start one: `gridstat pipeline run`"
        )
    return place


def spark_of(master: str, driver_memory: str) -> SparkSettings:
    from gridstat.pipeline.spark_session import SparkSettings  # As above.

    return SparkSettings(master=master, driver_memory=driver_memory)


@contextmanager
def spark_for(master: str, driver_memory: str, doing: str) -> Iterator[Spark]:
    """A session while something is done; a person sees what is waited for."""
    from gridstat.pipeline.spark_session import spark_session  # As above.

    errors = Console(stderr=True)
    with errors.status("Spark is starting"):
        spark = spark_session(spark_of(master, driver_memory))
    try:
        with errors.status(doing):
            yield spark
    finally:
        spark.stop()


def instant_ns(text: str) -> int:
    """A time as people write it, UTC unless it says otherwise, in nanoseconds since 1970."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Misuse(
            f"{text!r} is no time", hint="write 2026-11-16T12:00, or with seconds and +01:00"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    since_ns = ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * NS_PER_US
    if not 0 <= since_ns <= INT64_MAX:
        raise Misuse(f"{text} is before 1970, or after 2262", hint="events have stamps in between")
    return since_ns
