"""A Spark session as the pipeline wants it; the master is the one setting of where it runs.

Whoever reaches a driver of Spark and may speak to it can hand it code. So a driver listens on
this machine alone unless `SparkSettings.host` says otherwise, and all its connections are
authenticated and encrypted, with a secret that is never on a command line: on this machine Spark
makes a fresh one for every session; on a cluster all processes read it from the operator's file.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
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
LOOPBACK: Final = "127.0.0.1"
HOST_VARIABLE: Final = "GRIDSTAT_SPARK_HOST"
PROPERTIES_VARIABLE: Final = "GRIDSTAT_SPARK_PROPERTIES"
SECURE: Final = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
}
"""Settings that driver, executors and the processes of a cluster must share."""
_SECRET: Final = "spark.authenticate.secret"
_SECRET_LINE: Final = re.compile(
    rf"^[ \t]*{re.escape(_SECRET)}[ \t]*[ \t=:][ \t]*[^\s=:]", re.MULTILINE
)
_ON_THIS_MACHINE: Final = re.compile(r"local(\[(\*|\d+)(\s*,\s*\d+)?\])?")
_LOOPBACK: Final = re.compile(r"127\.\d+\.\d+\.\d+|::1|\[::1\]|localhost")
_REACHED_BY_LOOPBACK: Final = re.compile(rf"local.*|spark://({_LOOPBACK.pattern}):.*")
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
    host: str = field(default_factory=lambda: os.environ.get(HOST_VARIABLE) or LOOPBACK)
    """Address of this machine on which the driver and its web page listen."""
    properties: Path | None = field(default_factory=lambda: _path_in(PROPERTIES_VARIABLE))
    """File of Spark's properties with the secret of a cluster, for its owner alone."""
    more: Mapping[str, str] = field(default_factory=dict)


def spark_session(settings: SparkSettings | None = None) -> SparkSession:
    """The session, with `gridstat` registered as a format; raises if there is no Java."""
    wanted = SparkSettings() if settings is None else settings
    check_security(wanted)
    home = java_home(os.environ, wanted.cache)
    os.environ["JAVA_HOME"] = str(home)
    # Workers would take the `python3` of the path; they need this one, and this package.
    os.environ["PYSPARK_PYTHON"] = wanted.worker_python or _python_of(wanted)
    # Spark's web page knows no other setting of where it listens.
    os.environ["SPARK_LOCAL_IP"] = wanted.host
    if wanted.properties is not None:
        # Spark itself reads the secret: what Python sets is on the command line of its Java.
        file = shlex.quote(str(wanted.properties.absolute()))
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {file} pyspark-shell"
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


def check_security(settings: SparkSettings) -> None:
    """Raise if a session would tell its secret, would have none, or could not be reached."""
    if _SECRET in settings.more:
        raise ConfigurationError(
            f"{_SECRET} would be on a command line, which all users of this machine can read",
            hint=f"write it into a file of Spark's properties and set {PROPERTIES_VARIABLE}",
        )
    if settings.properties is not None:
        _check_properties(settings.properties)
    if _LOOPBACK.fullmatch(settings.host) and not _REACHED_BY_LOOPBACK.fullmatch(settings.master):
        raise ConfigurationError(
            f"executors of {settings.master} cannot reach a driver on {settings.host}",
            hint=f"set {HOST_VARIABLE} to the address of this machine that they reach",
        )
    makes_secret = re.match(r"yarn|k8s://", settings.master) is not None
    makes_secret |= _ON_THIS_MACHINE.fullmatch(settings.master) is not None
    is_secured = settings.more.get("spark.authenticate") != "false"
    if is_secured and not makes_secret and settings.properties is None:
        raise ConfigurationError(
            f"{settings.master} needs the secret that all processes of the cluster share",
            hint=f"set {PROPERTIES_VARIABLE} to the file of properties with {_SECRET} that its "
            "master and workers were started with; docs/operating/spark.md has an example",
        )


def _check_properties(path: Path) -> None:
    """Raise if a file of Spark's properties has no secret, or if others may read it."""
    try:
        mode, text = path.stat().st_mode, path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error}",
            hint=f"{PROPERTIES_VARIABLE} names a file of Spark's properties",
        ) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigurationError(
            f"others may read or write {path}, which contains the secret of a cluster",
            hint=f"chmod 600 {path}, and take a new secret",
        )
    if _SECRET_LINE.search(text) is None:
        raise ConfigurationError(
            f"{path} contains no {_SECRET}", hint="docs/operating/spark.md has an example"
        )


def _path_in(variable: str) -> Path | None:
    text = os.environ.get(variable, "")
    return Path(text) if text else None


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
        **SECURE,
        "spark.driver.bindAddress": settings.host,
        "spark.driver.host": settings.host,
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(_java_options(settings, home)),
        "spark.executorEnv.PYTHONPATH": str(Path(gridstat.__file__).parent.parent),
        "spark.log.level": "ERROR",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        # Else `${env:NAME}` in a statement is the value of a variable of this process.
        "spark.sql.variable.substitute": "false",
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
