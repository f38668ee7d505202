"""A QoS broker's file: every key is read, defaults apply, errors name key and hint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.console.cli.broker import plan_of
from gridstat.console.config.tree_file import load_tree
from gridstat.console.daemons.broker_daemon import BrokerPlan
from gridstat.console.daemons.tree_daemon import TreePlan
from gridstat.model.cloud import EventChannel
from gridstat.model.errors import ConfigurationError
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.tree_messages import BORDERS_MAX

if TYPE_CHECKING:
    from pathlib import Path

SHORT = 'broker = "root"\n[[child]]\nname = "c1"\n[[child]]\nname = "c2"\n'
WHOLE = """
broker = "north"
certificates = "keys"
journal = "north.sqlite"
host = "127.0.0.2"
port = 7000
metrics_port = 9100

[parent]
name = "root"
addresses = ["127.0.0.1:7000"]

[[child]]
name = "c1"

[[child]]
name = "c2"

[[channel]]
from = "c1/b0"
to = "c2/b0"
both_ways = true
bandwidth_bytes_per_s = 125_000
latency_ms = 2.5
mtu_bytes = 1_472
queue_events_max = 64

[log]
level = "debug"
"""
CHANNEL = '[[channel]]\nfrom = "c1/b0"\nto = "c2/b0"\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "tree.toml"
    path.write_text(text)
    return path


def test_every_key_of_a_file_is_read(tmp_path: Path) -> None:
    settings, channels = load_tree(written(tmp_path, WHOLE))
    assert (settings.broker, settings.children) == ("north", ("c1", "c2"))
    assert settings.parent is not None
    assert (settings.parent.name, settings.parent.places()) == ("root", [("127.0.0.1", 7_000)])
    assert (settings.certificates, settings.journal) == ("keys", "north.sqlite")
    assert (settings.host, settings.port, settings.metrics_port) == ("127.0.0.2", 7_000, 9_100)
    there = EventChannel(ChannelId(1), "c1/b0", "c2/b0", 125_000, 2_500, 0, 1_472, 64)
    back = EventChannel(ChannelId(2), "c2/b0", "c1/b0", 125_000, 2_500, 0, 1_472, 64)
    assert channels == (there, back)


def test_defaults_stand_where_the_file_is_silent(tmp_path: Path) -> None:
    settings, channels = load_tree(written(tmp_path, SHORT))
    assert (settings.parent, settings.port, settings.metrics_port) == (None, 0, None)
    assert (settings.host, channels) == ("127.0.0.1", ())


def test_the_file_says_which_kind_of_broker_it_is(tmp_path: Path) -> None:
    above = plan_of(written(tmp_path, SHORT))
    assert isinstance(above, TreePlan)
    assert above.name == "root"
    leaf = plan_of(written(tmp_path, 'cloud = "c1"\n[[router]]\nname = "e0"\n'))
    assert isinstance(leaf, BrokerPlan)
    assert leaf.name == "c1"
    with pytest.raises(ConfigurationError, match="cloud: missing") as found:
        plan_of(written(tmp_path, "port = 7000\n"))
    assert "broker = " in found.value.hint


MISTAKES = {
    'broker = "root"': "child: missing",
    SHORT.replace('"c2"', '"c1"'): 'child[1].name: "c1" is child[0] already',
    SHORT.replace('"c2"', '"root"'): '"root" is this broker itself',
    SHORT.replace('"c2"', '"c/2"'): 'child[1].name ("c/2")',
    SHORT + "colour = 1": 'child[1].colour ("c2"): unknown key',
    SHORT + '[parent]\nname = "c1"\naddresses = ["r:1"]': 'child[0].name: "c1" is its parent',
    SHORT + '[parent]\nname = "root"\naddresses = ["r:1"]': 'parent.name: "root" is this broker',
    SHORT + CHANNEL.replace("c1/b0", "b0"): "channel[0].from: 'b0': a router of which cloud?",
    SHORT + CHANNEL.replace("c1/b0", "c2/b1"): "channel[0].to: both ends are in cloud c2",
    SHORT + CHANNEL + "latency_ms = -1": "channel[0].latency_ms",
    SHORT + CHANNEL + CHANNEL: "is already channel[0]",
}


@pytest.mark.parametrize(("text", "problem"), MISTAKES.items())
def test_a_mistake_is_told_with_its_key_and_a_hint(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as found:
        load_tree(written(tmp_path, text))
    assert "tree.toml" in str(found.value)
    assert problem in str(found.value)
    assert found.value.hint


def test_a_border_router_more_than_a_cloud_can_tell_of_is_a_mistake(tmp_path: Path) -> None:
    channels = [f'[[channel]]\nfrom = "c1/b{at}"\nto = "c2/b0"\n' for at in range(BORDERS_MAX + 1)]
    assert len(load_tree(written(tmp_path, SHORT + "".join(channels[:-1])))[1]) == BORDERS_MAX
    with pytest.raises(ConfigurationError, match=r"257th border router of cloud c1") as caught:
        load_tree(written(tmp_path, SHORT + "".join(channels)))
    assert "begin or end at one of the 256" in caught.value.hint
