"""Attack: whoever reaches Spark's driver hands it tasks, which are code.

So a driver listens on this machine alone, and answers only those who know the secret of its
session, which is in no command line, log or page.
"""

from __future__ import annotations

import json
import subprocess
import sys
from http.client import HTTPConnection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from gridstat.model.errors import ConfigurationError
from gridstat.pipeline.spark_session import SparkSettings, spark_session
from tests.spark.attacked_driver import reach_driver, secret_of
from tests.spark.listeners import command_lines_of, listeners_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
SECRET_BYTES_MIN = 32


def process_of(spark: SparkSession) -> int:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    process: int = gateway.proc.pid
    return process


def test_the_driver_listens_on_this_machine_alone(spark: SparkSession) -> None:
    found = listeners_of(process_of(spark))
    ports = {int(spark.conf.get("spark.driver.port") or 0)}
    assert ports <= found.keys()
    assert len(found) > len(ports), "the block manager listens, too"
    assert {port: each for port, each in found.items() if not each.is_loopback} == {}


def test_a_client_without_the_secret_reaches_no_end_point(spark: SparkSession) -> None:
    settings = spark.sparkContext.getConf()
    host, port = settings.get("spark.driver.host"), settings.get("spark.driver.port")
    assert host is not None
    with pytest.raises(Py4JJavaError) as refused:
        reach_driver(spark, host=host, port=int(port or 0))
    assert "Unknown challenge message" in str(refused.value), "it answers, and refuses"


def test_messages_are_encrypted_and_never_fall_back_to_less(spark: SparkSession) -> None:
    settings = spark.sparkContext.getConf()
    assert settings.get("spark.authenticate") == "true"
    assert settings.get("spark.network.crypto.enabled") == "true"
    assert settings.get("spark.network.crypto.cipher") == "AES/GCM/NoPadding"
    assert settings.get("spark.network.crypto.saslFallback") == "false"


def test_the_secret_is_fresh_and_in_no_command_line_log_or_page(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = tmp_path / "driver.log"
    with (
        log.open("wb") as written,
        subprocess.Popen(
            [sys.executable, "-m", "tests.spark.attacked_driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=written,
        ) as driver,
    ):
        assert driver.stdout is not None
        facts = json.loads(driver.stdout.readline())
        secret = facts["secret"]
        assert len(secret) >= SECRET_BYTES_MIN
        assert secret != secret_of(spark)
        lines = command_lines_of(driver.pid)
        assert lines
        assert not [line for line in lines if secret.encode() in line]
        assert secret not in json.dumps(facts["settings"])
        page = urlsplit(facts["page"])
        assert page.port is not None
        found = listeners_of(driver.pid)
        assert page.port in found
        assert {port: each for port, each in found.items() if not each.is_loopback} == {}
        asked = HTTPConnection("127.0.0.1", page.port, timeout=30)
        asked.request("GET", "/environment/")
        shown = asked.getresponse().read().decode()
        asked.close()
        assert "spark.authenticate" in shown
        assert secret not in shown
        driver.communicate(b"", timeout=60)
    assert driver.returncode == 0
    assert secret not in log.read_text()


def test_a_secret_among_other_settings_is_refused() -> None:
    settings = SparkSettings(more={"spark.authenticate.secret": "on the command line"})
    with pytest.raises(ConfigurationError, match="command line"):
        spark_session(settings)
    assert SparkContext._active_spark_context is not None, "the session of the tests is untouched"
