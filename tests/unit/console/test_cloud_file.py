"""A broker's file: every key is read, defaults apply, errors name their key and a hint."""

from __future__ import annotations

import inspect
import re
import traceback
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.settings import BrokerSettings, Quotas
from gridstat.console.cli.up import up
from gridstat.console.config.cloud_file import load_cloud
from gridstat.console.daemons.broker_daemon import broker_settings
from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.errors import ConfigurationError
from gridstat.model.identifiers import ChannelId
from gridstat.model.keys.key_settings import KeySettings
from gridstat.model.probe_law import ProbeSettings
from gridstat.model.quota import Quota
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = """
cloud = "c1"
x = 12.5
y = 7
certificates = "keys"
journal = "c1.sqlite"
host = "127.0.0.1"
port = 7100
name_service_port = 7101
metrics_port = 9100

[[router]]
name = "e0"
role = "edge"
events_per_s_max = 50_000
x = 1
y = 2.5

[[router]]
name = "b0"
role = "border"

[[channel]]
from = "e0"
to = "b0"
both_ways = true
bandwidth_bytes_per_s = 125_000
latency_ms = 2.5
level = 2
mtu_bytes = 1_472
queue_events_max = 64

[timing]
probe_interval_ms = 10
silent_ms_max = 50
change_lead_ms = 900
grace_s = 30
quarantine_s = 60
lease_s = 1.5

[quota]
publications_max = 5
subscriptions_max = 6
sessions_max = 3
capacity_share = 0.5
commands_per_s = 7
patterns_max = 8

[parent]
name = "root"
addresses = ["127.0.0.1:7000", "[::1]:7001"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "cloud.toml"
    path.write_text(text)
    return path


@pytest.mark.feature("S0-11", reach="file")
def test_every_key_of_a_file_is_read(tmp_path: Path) -> None:
    settings, topology = load_cloud(written(tmp_path, WHOLE))
    assert settings.parent is not None
    assert settings.parent.name == "root"
    assert settings.parent.places() == [("127.0.0.1", 7_000), ("::1", 7_001)]
    assert (settings.x, settings.y) == (12.5, 7.0)
    assert (settings.certificates, settings.journal) == ("keys", "c1.sqlite")
    assert (settings.port, settings.name_service_port, settings.metrics_port) == (7100, 7101, 9100)
    assert settings.timing.model_dump() == {
        "probe_interval_ms": 10,
        "silent_ms_max": 50,
        "change_lead_ms": 900,
        "grace_s": 30.0,
        "quarantine_s": 60.0,
        "lease_s": 1.5,
    }
    told = broker_settings(settings)
    assert (told.change_lead_ns, told.grace_ns) == (900 * NS_PER_S // 1_000, 30 * NS_PER_S)
    assert told.quarantine_ns == 60 * NS_PER_S
    assert told.probes == ProbeSettings(10, 50)
    assert told.quotas == Quotas(
        publications_max=5,
        subscriptions_max=6,
        edges_max=3,
        capacity_share=0.5,
        commands_per_s=7,
        patterns_max=8,
    )
    assert settings.quota.model_dump() == {
        "publications_max": 5,
        "subscriptions_max": 6,
        "sessions_max": 3,
        "capacity_share": 0.5,
        "commands_per_s": 7,
        "patterns_max": 8,
    }
    assert topology.routers == (
        Router("c1/e0", RouterRole.EDGE, 50_000, 1.0, 2.5),
        Router("c1/b0", RouterRole.BORDER),
    )
    there = EventChannel(ChannelId(1), "c1/e0", "c1/b0", 125_000, 2_500, 2, 1_472, 64)
    back = EventChannel(ChannelId(2), "c1/b0", "c1/e0", 125_000, 2_500, 2, 1_472, 64)
    assert topology.channels == (there, back)


@pytest.mark.feature("S0-11", reach="file")
def test_defaults_stand_where_the_file_is_silent(tmp_path: Path) -> None:
    settings, topology = load_cloud(written(tmp_path, 'cloud = "c1"\n[[router]]\nname = "i0"\n'))
    assert (settings.parent, settings.x, settings.y) == (None, 100.0, 100.0)
    assert (settings.host, settings.port, settings.metrics_port) == ("127.0.0.1", 0, None)
    assert (settings.timing.probe_interval_ms, settings.timing.silent_ms_max) == (25, 100)
    assert settings.timing.change_lead_ms == 200
    told = broker_settings(settings)
    assert told == BrokerSettings(cloud="c1", quotas=told.quotas)
    assert told.quotas.of_identity == Quota(), "a new cloud's file bounds every identity"
    assert topology.routers == (Router("c1/i0"),)
    assert topology.channels == ()


def test_the_empty_parent_of_older_files_means_none(tmp_path: Path) -> None:
    text = 'cloud = "c1"\nparent = ""\n[[router]]\nname = "i0"\n'
    assert load_cloud(written(tmp_path, text))[0].parent is None


@pytest.mark.parametrize(
    ("silent_ms_max", "probe_interval_ms"), [(4, 1), (5_000, 1_250), (600_000, 60_000)]
)
def test_probes_are_as_frequent_as_the_allowed_silence_needs(
    tmp_path: Path, silent_ms_max: int, probe_interval_ms: int
) -> None:
    timing = f"[timing]\nsilent_ms_max = {silent_ms_max}\n"
    path = written(tmp_path, f'cloud = "c1"\n[[router]]\nname = "i0"\n{timing}')
    assert load_cloud(path)[0].timing.probe_interval_ms == probe_interval_ms


def test_a_silence_of_less_than_four_probes_is_refused_with_what_to_write(tmp_path: Path) -> None:
    timing = "[timing]\nsilent_ms_max = 100\nprobe_interval_ms = 26\n"
    path = written(tmp_path, f'cloud = "c1"\n[[router]]\nname = "i0"\n{timing}')
    with pytest.raises(ConfigurationError, match="100 is less than 4 probe intervals") as caught:
        load_cloud(path)
    assert "timing.silent_ms_max" in str(caught.value)
    assert caught.value.hint == "raise it to 104, or leave probe_interval_ms out"


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        ("epoch_s = 0.4", "keys.epoch_s: 0.4 is out of range"),
        ("epoch_s = 20\nreseed_s = 10", "epoch_s 20 is longer than reseed_s 10"),
        ("epoch_s = 5\nreseed_s = 10\nlife_s = 19", "reseed_s 10 is longer than half of life_s 19"),
        ("life_s = 7_000", "reseed_s 3600 is longer than half of life_s 7000"),
    ],
)
def test_times_of_keys_that_cannot_work_are_refused(
    tmp_path: Path, times: str, problem: str
) -> None:
    path = written(tmp_path, f'cloud = "c1"\n[[router]]\nname = "i0"\n[keys]\n{times}\n')
    with pytest.raises(ConfigurationError, match=re.escape(problem)) as caught:
        load_cloud(path)
    assert caught.value.hint


def test_the_shortest_times_of_keys_are_accepted(tmp_path: Path) -> None:
    times = "epoch_s = 0.5\nreseed_s = 0.5\nlife_s = 1\n"
    path = written(tmp_path, f'cloud = "c1"\n[[router]]\nname = "i0"\n[keys]\n{times}')
    assert load_cloud(path)[0].keys.settings() == KeySettings(500, 500, 1_000)


FIND = 'name = "r"\nwho = "**"\nmay = ["find"]\nwhat = "**"\n'
RULE = f'[[router]]\nname = "i0"\n[[access_rule]]\n{FIND}'
MISTAKES = {
    f'cloud = "c1"\n{RULE}role = "any"': "access_rule[0].role",
    f'cloud = "c1"\n{RULE}sessions = 3': "access_rule[0].sessions",
    'cloud = "c1"': "router: missing",
    'cloud = "c 1"\n[[router]]\nname = "i0"': "cloud: 'c 1': a name is letters",
    'cloud = "c1"\n[[router]]\nname = "i0"\nrole = "root"': "router[0].role",
    'cloud = "c1"\n[[router]]\nname = "i0"\nevents = 1': "router[0].events",
    'cloud = "c1"\n[[router]]\nname = "i0"\nevents_per_s_max = 0': "router[0].events_per_s_max",
    'cloud = "c1"\nport = 70000\n[[router]]\nname = "i0"': "port: 70000 is out of range",
    'cloud = "c1"\nhost = "here"\n[[router]]\nname = "i0"': "host: 'here': not an IP address",
    'cloud = "c1"\n[[router]]\nname = "a"\n[[router]]\nname = "a"': '"a" is already router[0]',
    'cloud = "c1"\n[[router]]\nname = "a"\n[[channel]]\nfrom = "a"\nto = "b"': 'no router "b"',
    'cloud = "c1"\n[[router]]\nname = "a"\n[[channel]]\nfrom = "a"\nto = "a"': "begins",
    'cloud = "c1"\nparent = "root"\n[[router]]\nname = "a"': "needs its parent's address",
    'cloud = "c1"\n[[router]]\nname = "a"\n[parent]\nname = "root"': "parent.addresses: missing",
    'cloud = "c1"\n[[router]]\nname = "a"\n[parent]\nname = "r"\naddresses = ["r"]': "an address",
    'cloud = "r"\n[[router]]\nname = "a"\n[parent]\nname = "r"\naddresses = ["r:1"]': "is this",
    "cloud = ": "not TOML",
    "port = " + "9" * 5_000: "a value that cannot be read",
    'cloud = "c1"\nport = 0x' + "f" * 5_000 + '\n[[router]]\nname = "i0"': "a number without end",
    "port = " + "[" * 5_000 + "]" * 5_000: "nested too deeply",
    'cloud = "c1"\nx = nan\n[[router]]\nname = "i0"': "x: nan is no number",
    'cloud = "c1"\n[[router]]\nname = "i0"\n[timing]\ngrace_s = inf': "inf is no number",
    'cloud = "c1"\n[[router]]\nname = "i0"\n[timing]\nchange_lead_ms = 0': "timing.change_lead_ms",
    'cloud = "c1"\n[[router]]\nname = "i0"\n[timing]\nchange_lead_ms = 10001': "10000",
}


@pytest.mark.feature("S0-11", reach="file")
@pytest.mark.parametrize(("text", "problem"), MISTAKES.items())
def test_a_mistake_is_told_with_its_key_and_a_hint(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as found:
        load_cloud(written(tmp_path, text))
    assert "cloud.toml" in str(found.value)
    assert problem in str(found.value)
    assert found.value.hint


@pytest.mark.parametrize(
    "journal",
    [
        'journal = ["postgresql://gridstat:secret@192.0.2.9/gridstat"]',
        'journal.url = "postgresql://gridstat:secret@192.0.2.9/gridstat"',
        'journal = "postgresql://gridstat:secret@192.0.2.9/gridstat"\n[parent]\nname = "c1"\n'
        'addresses = ["r:1"]',
    ],
)
def test_a_journal_s_place_is_not_repeated_with_its_password(tmp_path: Path, journal: str) -> None:
    text = f'cloud = "c1"\n{journal}\n[[router]]\nname = "a"\n'
    with pytest.raises(ConfigurationError) as refused:
        load_cloud(written(tmp_path, text))
    assert "secret" not in "".join(traceback.format_exception(refused.value))


def test_the_same_way_twice_is_told(tmp_path: Path) -> None:
    text = 'cloud = "c1"\n[[router]]\nname = "a"\n[[router]]\nname = "b"\n'
    text += '[[channel]]\nfrom = "a"\nto = "b"\nboth_ways = true\n[[channel]]\nfrom = "b"\nto = "a"'
    with pytest.raises(ConfigurationError, match=r"channel\[1\]: from \"b\" to \"a\" is already"):
        load_cloud(written(tmp_path, text))


def test_a_missing_file_is_told_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        load_cloud(tmp_path / "nowhere.toml")


def test_who_has_no_file_is_told_of_an_option_that_exists(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_cloud(tmp_path / "none.toml")
    (option,) = re.findall(r"gridstat up --(\w+)", refused.value.hint)
    assert option in inspect.signature(up).parameters
