"""Settings of a Spark session that would open it to others are refused before Java starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import ConfigurationError
from gridstat.pipeline.spark_session import LOOPBACK, SparkSettings, check_security

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER = "spark://10.0.0.1:7077"
HERE = "10.0.0.2"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRIDSTAT_SPARK_HOST", raising=False)
    monkeypatch.delenv("GRIDSTAT_SPARK_PROPERTIES", raising=False)


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.properties"
    path.touch(mode=0o600)
    path.write_text("spark.authenticate true\nspark.authenticate.secret 0123456789abcdef\n")
    return path


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2, 3]"])
def test_a_session_on_this_machine_needs_no_setting(master: str) -> None:
    settings = SparkSettings(master=master)
    assert settings.host == LOOPBACK
    check_security(settings)


def test_variables_name_the_address_and_the_file_of_a_cluster(
    monkeypatch: pytest.MonkeyPatch, properties: Path
) -> None:
    monkeypatch.setenv("GRIDSTAT_SPARK_HOST", HERE)
    monkeypatch.setenv("GRIDSTAT_SPARK_PROPERTIES", str(properties))
    settings = SparkSettings(master=CLUSTER)
    assert (settings.host, settings.properties) == (HERE, properties)
    check_security(settings)


@pytest.mark.parametrize("master", [CLUSTER, "local-cluster[2,1,1024]"])
def test_a_cluster_without_a_secret_is_refused(master: str) -> None:
    with pytest.raises(ConfigurationError, match="needs the secret") as refused:
        check_security(SparkSettings(master=master, host=HERE))
    assert "GRIDSTAT_SPARK_PROPERTIES" in refused.value.hint


@pytest.mark.parametrize("master", ["yarn", "k8s://https://10.0.0.1:6443"])
def test_masters_that_make_a_secret_of_their_own_need_no_file(master: str) -> None:
    check_security(SparkSettings(master=master, host=HERE))


def test_authentication_is_switched_off_only_by_name() -> None:
    off = {"spark.authenticate": "false"}
    check_security(SparkSettings(master=CLUSTER, host=HERE, more=off))


@pytest.mark.parametrize("master", [CLUSTER, "yarn"])
def test_a_driver_that_its_executors_cannot_reach_is_refused(master: str, properties: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot reach") as refused:
        check_security(SparkSettings(master=master, properties=properties))
    assert "GRIDSTAT_SPARK_HOST" in refused.value.hint
    check_security(SparkSettings(master="spark://localhost:7077", properties=properties))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_secret_that_others_may_read_or_write_is_refused(properties: Path, mode: int) -> None:
    properties.chmod(mode)
    with pytest.raises(ConfigurationError, match="others may") as refused:
        check_security(SparkSettings(master=CLUSTER, host=HERE, properties=properties))
    assert "chmod 600" in refused.value.hint


@pytest.mark.parametrize(
    "text",
    ["", "spark.authenticate true", "#spark.authenticate.secret a", "spark.authenticate.secret"],
)
def test_a_file_without_a_secret_is_refused(properties: Path, text: str) -> None:
    properties.write_text(text)
    with pytest.raises(ConfigurationError, match=r"contains no spark\.authenticate\.secret"):
        check_security(SparkSettings(master=CLUSTER, host=HERE, properties=properties))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(ConfigurationError, match="cannot be read"):
        check_security(SparkSettings(master=CLUSTER, host=HERE, properties=missing))


@pytest.mark.parametrize("line", ["{}=a", "{} = a", "{}:a", "{}\ta", "  {}   a"])
def test_every_form_of_a_property_is_understood(properties: Path, line: str) -> None:
    properties.write_text(line.format("spark.authenticate.secret"))
    check_security(SparkSettings(master=CLUSTER, host=HERE, properties=properties))
