"""A Spark session as the pipeline wants it; the master is the one setting of where it runs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

import gridstat
from gridstat.pipeline.java import java_home
from gridstat.pipeline.log_source import register

if TYPE_CHECKING:
    from collections.abc import Mapping

MASTER_DEFAULT: Final = "local[2]"
_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs and with how much; the same jobs run on any master."""

    master: str = MASTER_DEFAULT
    name: str = "gridstat"
    driver_memory: str = "2g"
    shuffle_partitions: int = 2
    cache: Path = field(default_factory=lambda: Path.home() / ".cache" / "gridstat")
    java_options: str = ""
    more: Mapping[str, str] = field(default_factory=dict)


def spark_session(settings: SparkSettings | None = None) -> SparkSession:
    """The session, with `gridstat` registered as a format; raises if there is no Java."""
    wanted = SparkSettings() if settings is None else settings
    os.environ["JAVA_HOME"] = str(java_home(os.environ, wanted.cache))
    # Workers would take whatever `python3` the path has; they need this one, and our package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    packages = str(Path(gridstat.__file__).parent.parent)
    builder = SparkSession.builder.master(wanted.master).appName(wanted.name)
    for key, value in {**_configuration(wanted, packages), **wanted.more}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _configuration(settings: SparkSettings, packages: str) -> dict[str, str]:
    return {
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": settings.java_options,
        "spark.executorEnv.PYTHONPATH": packages,
        "spark.log.level": "ERROR",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
