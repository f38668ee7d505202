"""A Spark session as the pipeline wants it; the master is the one setting of where it runs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

import gridstat
from gridstat.model.errors import ConfigurationError
from gridstat.pipeline import log_source, slice_source
from gridstat.pipeline.cache_folder import cache_folder
from gridstat.pipeline.class_archive import archive_options, archive_path
from gridstat.pipeline.java import java_home, write_once

if TYPE_CHECKING:
    from collections.abc import Mapping

Spark: TypeAlias = SparkSession
"""Type of a session, for callers that import no Spark."""
MASTER_DEFAULT: Final = "local[2]"
QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options that start sooner and compile less; for tests and other short lives."""
_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_LOGGING: Final = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{1}
"""
"""Errors only, each without the rows of Java's stack: what failed is raised in Python as well."""


_PYTHON: Final = """#!/bin/bash
kept=
IFS=: read -ra parts <<< "$PYTHONPATH"
for part in "${{parts[@]}}"; do
    [[ "$part" == */pyspark.zip ]] || kept+="${{kept:+:}}$part"
done
export PYTHONPATH="$kept"
exec '{python}' "$@"
"""
"""Spark puts its Python before all else as a zip, which is compiled anew by every worker, and gives
a worker ten seconds to start; the installed one takes a quarter of the time."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Master and resources of Spark; the same jobs run on any master."""

    master: str = MASTER_DEFAULT
    name: str = "gridstat"
    driver_memory: str = "2g"
    shuffle_partitions: int = 2
    cache: Path = field(default_factory=lambda: cache_folder(os.environ))
    java_options: str = ""
    has_archive: bool = True
    worker_python: str = ""
    """Python of the workers; by default this one."""
    more: Mapping[str, str] = field(default_factory=dict)


def spark_session(settings: SparkSettings | None = None) -> SparkSession:
    """The session, with `gridstat` registered as a format; raises if there is no Java."""
    wanted = SparkSettings() if settings is None else settings
    home = java_home(os.environ, wanted.cache)
    os.environ["JAVA_HOME"] = str(home)
    # Workers would take the `python3` of the path; they need this one, and this package.
    os.environ["PYSPARK_PYTHON"] = wanted.worker_python or _python_of(wanted)
    builder = SparkSession.builder.master(wanted.master).appName(wanted.name)
    for key, value in {**_configuration(wanted, home), **wanted.more}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise ConfigurationError(
            f"Spark did not start on {home}: {error}",
            hint=f"Java's own words are above; {wanted.driver_memory} of memory may be too much",
        ) from error
    log_source.register(spark)
    slice_source.register(spark)
    return spark


def _python_of(settings: SparkSettings) -> str:
    """Return the Python of the workers: this one, or on this machine a script that starts
    sooner."""
    if not settings.master.startswith("local"):
        return sys.executable
    script = settings.cache / f"python-{sha256(sys.executable.encode()).hexdigest()[:16]}"
    write_once(script, _PYTHON.format(python=sys.executable), mode=0o755)
    return str(script)


def _configuration(settings: SparkSettings, home: Path) -> dict[str, str]:
    return {
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(_java_options(settings, home)),
        "spark.executorEnv.PYTHONPATH": str(Path(gridstat.__file__).parent.parent),
        "spark.log.level": "ERROR",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _java_options(settings: SparkSettings, home: Path) -> list[str]:
    logging = settings.cache / "log4j2.properties"
    write_once(logging, _LOGGING)
    archive = archive_path(home, settings.cache) if settings.has_archive else None
    return [
        f"-Dlog4j2.configurationFile={logging}",
        archive_options(archive) if archive is not None else "",
        settings.java_options,
    ]
