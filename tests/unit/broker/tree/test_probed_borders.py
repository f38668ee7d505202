"""Channels between clouds: their probes, and the detection time of contracts that cross them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from gridstat.broker.settings import BrokerSettings
from gridstat.broker.tree.tree_borders import TreeBorders
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.cloud import EventChannel
from gridstat.model.identifiers import ChannelId
from gridstat.model.probe_law import ProbeSettings
from gridstat.net.command.endpoint_messages import GrantedOutcome
from gridstat.net.command.operator_messages import AddChannel, SetFlooding
from tests.unit.broker.stand_ins import subscribe
from tests.unit.broker.tree.family import Family

if TYPE_CHECKING:
    from gridstat.net.command.router_messages import ChannelOrder, SourceOrder
    from gridstat.net.command.tree_messages import BorderReported

VOLTAGE = "a/pmu/voltage"
BORDER = ("a/0", "b/0")
NARROW_BYTES_PER_S = 64_000
"""An interval of 94 ms, and a silence limit of 376."""


def two_clouds(
    bandwidth_bytes_per_s: int = 0,
    *,
    probes: ProbeSettings | None = None,
    older: str = "",
    host: str = "10.0.0.1",
) -> Family:
    """Clouds a and b with a channel each way between them; a router may be an older one.

    The border router of b has the given address.
    """
    ways = {name: [(f"{name}/0", f"{name}/1"), (f"{name}/1", f"{name}/0")] for name in "ab"}
    family = Family(
        dict.fromkeys("ab", "root"),
        ways,
        {"root": [BORDER, BORDER[::-1]]},
        bandwidths={BORDER: bandwidth_bytes_per_s},
        settings=(BrokerSettings("", probes=probes or ProbeSettings()), TreeSettings("")),
    )
    for leaf in family.leaves.values():
        for name, router in leaf.routers.items():
            router.counts_data_as_life = name != older
    family.leaves["b"].routers[BORDER[1]].host = host
    family.start()
    family.leaves["a"].attach("a/pmu", "a/0", data_port=0)
    family.leaves["a"].publish(VOLTAGE, "a/0")
    family.leaves["b"].attach("b/centre", "b/1")
    family.settle()
    return family


def orders(family: Family) -> tuple[ChannelOrder, SourceOrder]:
    """Return the orders at the two ends of the channel from a to b."""
    (number,) = (
        number
        for number, account in family.brokers["root"].broker.state.channels.accounts.items()
        if account.channel.from_router == BORDER[0]
    )
    sender, receiver = family.leaves["a"].routers["a/0"], family.leaves["b"].routers["b/0"]
    return sender.table.channels[number], receiver.table.sources[number]


def contract(family: Family) -> GrantedOutcome:
    leaf = family.leaves["b"]
    number = leaf.send("b/centre", "b/1", subscribe(VOLTAGE))
    family.settle()
    (outcome,) = leaf.answers["b/centre", number]
    assert isinstance(outcome, GrantedOutcome), outcome
    return outcome


def test_both_ends_are_ordered_what_the_bandwidth_affords() -> None:
    sent, heard = orders(two_clouds(NARROW_BYTES_PER_S))
    assert (sent.probe_interval_ms, sent.probes_only_when_idle) == (94, True)
    assert heard.silent_ms_max == 376


@pytest.mark.parametrize("older", BORDER, ids=["sender", "receiver"])
def test_an_older_router_at_either_end_has_probes_beside_data(older: str) -> None:
    sent, _ = orders(two_clouds(older=older))
    assert (sent.probe_interval_ms, sent.probes_only_when_idle) == (25, False)


def test_a_cloud_that_probes_faster_does_not_where_another_broker_is_charged() -> None:
    sent, heard = orders(two_clouds(probes=ProbeSettings(10, 50)))
    assert (sent.probe_interval_ms, heard.silent_ms_max) == (25, 100)


def test_a_receiver_allows_for_the_longer_silence_of_the_senders_cloud() -> None:
    family = two_clouds()
    leaf = family.leaves["a"]
    leaf.settings = replace(leaf.settings, probes=ProbeSettings(250, 1_000))
    family.kill("a")
    family.settle()
    sent, heard = orders(family)
    assert (sent.probe_interval_ms, heard.silent_ms_max) == (250, 1_000)


@pytest.mark.parametrize(("bandwidth_bytes_per_s", "detection_ms"), [(0, 100), (64_000, 376)])
def test_a_contract_between_clouds_states_the_longest_limit_of_its_segments(
    bandwidth_bytes_per_s: int, detection_ms: int
) -> None:
    assert contract(two_clouds(bandwidth_bytes_per_s)).detection_ms == detection_ms


def test_a_child_of_the_release_before_makes_it_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an older child, which reports neither its silence limit nor the counts of data."""
    hear = TreeBorders.border_reported

    def border_reported(self: TreeBorders, message: BorderReported) -> None:
        if message.router.startswith("a/"):
            message = structs.replace(message, silent_ms_max=0, counts_data_as_life=False)
        hear(self, message)

    monkeypatch.setattr(TreeBorders, "border_reported", border_reported)
    family = two_clouds()
    assert contract(family).detection_ms is None
    sent, _ = orders(family)
    assert not sent.probes_only_when_idle


def carried(family: Family) -> tuple[int, int]:
    """The bytes a second that variables and probes are charged on the channel from a to b."""
    accounts = family.brokers["root"].broker.state.channels.accounts.values()
    (carriage,) = [each.carriage for each in accounts if each.channel.from_router == BORDER[0]]
    return int(carriage.bytes.value), int(carriage.probe_charge.value)


@pytest.mark.parametrize(
    ("host", "event_bytes", "probe_bytes", "interval_ms"),
    [("10.0.0.1", 68, 60, 94), ("2001:db8::7", 88, 80, 125)],
)
def test_a_channel_between_clouds_is_charged_the_headers_of_its_receivers_address(
    host: str, event_bytes: int, probe_bytes: int, interval_ms: int
) -> None:
    family = two_clouds(NARROW_BYTES_PER_S, host=host)
    granted = contract(family)
    charged = (60 * event_bytes, 1_000 * probe_bytes // interval_ms)
    assert carried(family) == charged
    sent, heard = orders(family)
    assert (sent.probe_interval_ms, heard.silent_ms_max) == (interval_ms, 4 * interval_ms)
    assert granted.detection_ms == 4 * interval_ms
    family.kill("root")
    family.settle()
    assert carried(family) == charged


@pytest.mark.parametrize(
    ("host", "missing"), [("10.0.0.1", ""), ("2001:db8::7", "251 of its 5080 bytes/s are missing")]
)
def test_floods_admit_a_channel_between_clouds_by_the_headers_of_its_receivers_address(
    host: str, missing: str
) -> None:
    """60 events a second take 4,080 bytes by IPv4 and 5,280 by IPv6, and probes 51 more."""
    family = two_clouds(host=host)
    flood = SetFlooding(request_id=1, name=VOLTAGE, modes=(), every=1)
    assert family.operate("root", flood).refused is None
    narrow = EventChannel(
        ChannelId(0), "a/1", BORDER[1], bandwidth_bytes_per_s=60 * 68 + 1_000, security="none"
    )
    refused = family.operate("root", AddChannel(request_id=2, channel=narrow)).refused
    assert (refused is None) == (not missing)
    assert refused is None or missing in refused.reason
