"""A driver with Spark's web page on, for attacks from outside: prints what they need to know.

It prints one line in JSON and ends when its standard input does.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from gridstat.pipeline.spark_session import QUICK_JAVA, SparkSettings, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> None:
    more = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.log.level": "INFO"}
    settings = SparkSettings(driver_memory="512m", java_options=QUICK_JAVA, more=more)
    spark = spark_session(settings)
    spark.range(10).count()
    facts = {
        "page": spark.sparkContext.uiWebUrl,
        "secret": secret_of(spark),
        "settings": dict(spark.sparkContext.getConf().getAll()),
    }
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    spark.stop()


def secret_of(spark: SparkSession) -> str:
    """Return the secret of a session on this machine, which only its own Java knows."""
    java = _java(spark)
    user = java.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()
    secret = user.getCredentials().getSecretKey(java.org.apache.hadoop.io.Text("sparkCookie"))
    return "" if secret is None else bytes(secret).decode()


def reach_driver(spark: SparkSession, *, host: str, port: int) -> None:
    """Look up an end-point of a driver as a client of Spark without a secret; raise if refused."""
    java = _java(spark)
    settings = java.org.apache.spark.SparkConf(False)
    for name in ("spark.rpc.askTimeout", "spark.rpc.lookupTimeout"):
        settings.set(name, "20s")
    manager = java.org.apache.spark.SecurityManager
    file = getattr(manager, "$lessinit$greater$default$3")()
    security = manager(settings, java.scala.Option.empty(), file)
    client = java.org.apache.spark.rpc.RpcEnv.create(
        "intruder",
        "127.0.0.1",
        -1,
        settings,
        security,
        True,
    )
    try:
        address = java.org.apache.spark.rpc.RpcAddress(host, port)
        client.setupEndpointRef(address, "HeartbeatReceiver")
    finally:
        client.shutdown()
        client.awaitTermination()


def _java(spark: SparkSession) -> Any:
    return spark._jvm


if __name__ == "__main__":
    main()
