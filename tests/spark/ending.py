"""The end of a Spark session together with its Java process.

A session that only stops leaves Java running, and the bridge to it opens a connection whenever
Python frees an object of Java. In a worker that goes on with other tests, one of those would
seem to leave a socket behind.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from pyspark import SparkContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def end_with_java(session: SparkSession) -> None:
    """Stops the session, closes the bridge, and waits for the end of Java."""
    gateway = SparkContext._gateway
    session.stop()
    if gateway is None:
        return
    gc.collect()  # Objects of Java in cycles are freed now, and not during a later test.
    gateway.shutdown()
    gc.collect()  # So are the connections that the bridge had.
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
