"""A router's file: it is read strictly, and every error names its key and a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gridstat.console.config.metrics_tls import MetricsTls
from gridstat.console.config.router_file import (
    BrokerSection,
    CommandSection,
    LimitsSection,
    ListenSection,
    RouterSettings,
    ThreadSection,
    load_router,
)
from gridstat.model.cloud import RouterRole
from gridstat.model.errors import ConfigurationError
from gridstat.model.keys.key_settings import KeySettings

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "router-file.md"
LEAST = """
name = "c1/e0"
[broker]
addresses = ["127.0.0.1:7100"]
"""
WHOLE = """
name = "c1/e0"
role = "edge"
certificates = "keys"
versions_max = 1
metrics_port = 9100
metrics_host = "10.0.0.7"
[broker]
name = "c1"
name_service = ["[::1]:7101", "broker.example:7102"]
[listen]
host = "0.0.0.0"
data_port = 5000
urgent_port = 5001
advertised_host = "10.0.0.7"
[command]
host = "::"
port = 6000
advertised_host = "fd00::7"
[limits]
variables_max = 100
rings_max = 10
channels_max = 20
pool_small = 30
pool_large = 4
end_points_max = 5
[keys]
epoch_s = 1
reseed_s = 2.5
life_s = 60
[thread]
cpu = 1
fifo_priority = 10
locks_memory = true
[metrics_tls]
certificate = "metrics.pem"
key = "metrics.key"
client_authority = "monitoring.pem"
[log]
level = "debug"
json = true
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "e0.toml"


def test_little_is_needed_and_the_rest_has_sound_defaults(file: Path) -> None:
    file.write_text(LEAST)
    plan = load_router(file)
    assert (plan.name, plan.role, plan.cloud) == ("c1/e0", RouterRole.INNER, "c1")
    assert plan.brokers == (("127.0.0.1", 7100),)
    assert plan.listen == ("127.0.0.1", 0, 0)
    assert plan.command == ("127.0.0.1", 0)
    assert plan.certificates == file.parent / "certificates"
    assert (plan.versions_max, plan.metrics_port, plan.is_edge) == (3, None, False)
    assert plan.fifo_priority is None  # Real-time where it may be.


def test_everything_that_is_written_is_taken(file: Path) -> None:
    file.write_text(WHOLE)
    plan = load_router(file)
    assert plan.is_edge
    assert plan.brokers == ()
    assert plan.name_services == (("::1", 7101), ("broker.example", 7102))
    assert plan.listen == ("0.0.0.0", 5000, 5001)
    assert (plan.advertised_host, plan.command_advertised_host) == ("10.0.0.7", "fd00::7")
    assert plan.command == ("::", 6000)
    assert (plan.limits.variables_max, plan.limits.pool_large) == (100, 4)
    assert (plan.end_points_max, plan.versions_max, plan.metrics_port) == (5, 1, 9100)
    assert plan.metrics_host == "10.0.0.7"
    assert plan.metrics_tls == MetricsTls(
        certificate=file.parent / "metrics.pem",
        key=file.parent / "metrics.key",
        client_authority=file.parent / "monitoring.pem",
    )
    assert plan.keys == KeySettings(epoch_ms=1_000, reseed_ms=2_500, life_ms=60_000)
    assert (plan.cpu, plan.fifo_priority, plan.locks_memory) == (1, 10, True)
    assert (plan.log_level, plan.is_log_json) == ("debug", True)


@pytest.mark.parametrize(
    ("before", "after", "key", "problem"),
    [
        ('"c1/e0"', '"e0"', "name", "begins with its cloud"),
        ('"c1/e0"', '"c1/e 0"', "name", "c1/e 0"),
        ('name = "c1/e0"', "", "name", "missing"),
        ('name = "c1/e0"', 'name = "c1/e0"\nrole = "middle"', "role", "middle"),
        ('name = "c1/e0"', 'name = "c1/e0"\nversions_max = 9', "versions_max", "9"),
        ("[broker]", "[keys]\nepoch_s = 121\n[broker]", "keys.epoch_s", "121"),
        ("[broker]", "[keys]\n[broker]", "keys", "for edge routers"),
        (
            'name = "c1/e0"',
            'name = "c1/b0"\nrole = "border"\nendpoint_security = "hop"',
            "endpoint_security",
            'role is "border"',
        ),
        ("[broker]", "[keys]\nreseed_s = 0\n[broker]", "keys.reseed_s", "0"),
        ('name = "c1/e0"', 'name = "c1/e0"\nmetrics_port = 70000', "metrics_port", "70000"),
        (
            'name = "c1/e0"',
            'name = "c1/e0"\nmetrics_port = 0\nmetrics_host = "0.0.0.0"',
            "metrics_host",
            "anybody could read the metrics",
        ),
        (
            'name = "c1/e0"',
            'name = "c1/e0"\nmetrics_host = "127.0.0.1"',
            "metrics_host",
            "there is no metrics_port",
        ),
        ('name = "c1/e0"', 'name = "c1/e0"\nnmae = 1', "nmae", "unknown key"),
        ('"127.0.0.1:7100"', '"127.0.0.1"', "broker.addresses[0]", "not an address"),
        ('"127.0.0.1:7100"', '"127.0.0.1:0"', "broker.addresses[0]", "not an address"),
        ('["127.0.0.1:7100"]', "[]", "broker", "not where it is"),
        ("addresses", 'name_service = ["[::1]:1"]\naddresses', "broker", "both"),
        ("addresses", 'name = "c2"\naddresses', "broker.name", "c2"),
        ("[broker]", '[listen]\nhost = "0.0.0.0"\n[broker]', "listen.host", "every address"),
        ("[broker]", '[command]\nhost = "::"\n[broker]', "command.host", "every address"),
        ("[broker]", '[listen]\nhost = "here"\n[broker]', "listen.host", "not an IP address"),
        (
            "[broker]",
            "[listen]\ndata_port = 7\nurgent_port = 7\n[broker]",
            "listen.urgent_port",
            "data port",
        ),
        ("[broker]", '[thread]\ncpu = "1"\n[broker]', "thread.cpu", "whole number"),
        ("[broker]", "[limits]\nvariables_max = 0\n[broker]", "limits.variables_max", "0"),
    ],
)
def test_a_mistake_is_told_with_its_key_and_a_remedy(
    file: Path, before: str, after: str, key: str, problem: str
) -> None:
    assert before in LEAST
    file.write_text(LEAST.replace(before, after))
    with pytest.raises(ConfigurationError) as caught:
        load_router(file)
    message = str(caught.value.args[0])
    assert message.startswith(f"{file}: {key}")
    assert problem in message
    assert caught.value.hint


def test_the_documented_file_is_taken_and_shows_every_key(file: Path) -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    [text] = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    file.write_text(text)
    assert load_router(file).name == "c1/e0"
    sections = (BrokerSection, ListenSection, CommandSection, LimitsSection, ThreadSection)
    for section in (*sections, RouterSettings):
        for key in section.model_fields.keys() - {"name", "log"}:
            assert re.search(rf"\b{key}\b", text), key


def test_a_file_that_is_not_there_is_told(file: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        load_router(file)
