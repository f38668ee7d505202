"""Probes are charged to their channel: what it can promise is its bandwidth less their rate."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.capacity.accounts import HopAccount
from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.explanation import channel_facts
from gridstat.broker.capacity.resources import Resources
from gridstat.broker.capacity.stream_costs import StreamCost
from gridstat.broker.tree.owned_channels import OwnedChannels
from gridstat.broker.tree.tree_operations import ScopePath
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.errors import ChannelFull
from gridstat.model.identifiers import ChannelId, VariableId
from gridstat.model.probe_law import ProbeSettings
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from tests.unit.broker.clouds import EVENT_BYTES, ask, grant, refuse

if TYPE_CHECKING:
    from gridstat.model.channel_security import Security

NARROW_BYTES_PER_S = 8_000
"""64 kbit/s: the law's interval is 750 ms there, and a probe of 60 bytes is 80 bytes/s."""
ENDS = ("a", "b")


def taking(number: int, bytes_per_s: int) -> StatusVariable:
    """A variable that takes exactly so much of a channel."""
    rate = Fraction(bytes_per_s, EVENT_BYTES)
    period = Period(rate.denominator, rate.numerator)
    return StatusVariable(VariableId(number), f"c1/pmu/v{number}", BuiltinType.FLOAT64, period)


def narrow(
    probes: ProbeSettings | None = None, *, bandwidth_bytes_per_s: int = NARROW_BYTES_PER_S
) -> Resources:
    resources = Resources(probes=probes or ProbeSettings())
    for name in ENDS:
        resources.add_router(Router(name))
    resources.add_channel(
        EventChannel(
            ChannelId(1), *ENDS, bandwidth_bytes_per_s=bandwidth_bytes_per_s, security="none"
        )
    )
    return resources


def test_a_channel_of_64_kbit_per_s_admits_exactly_one_percent_less() -> None:
    allocator = Allocator(narrow())
    grant(allocator, ask(1, taking(1, 7_920), ENDS))
    refusal = refuse(allocator, ask(2, taking(2, 1), ENDS))
    assert refusal.code == ChannelFull.code
    assert refusal.shortfall == "1 bytes/s"


def test_a_contract_of_the_whole_bandwidth_lacks_the_share_of_the_probes() -> None:
    refusal = refuse(Allocator(narrow()), ask(1, taking(1, NARROW_BYTES_PER_S), ENDS))
    assert refusal.code == ChannelFull.code
    assert refusal.shortfall == "80 bytes/s"
    assert "80 bytes/s of them are for probes" in refusal.reason


def test_rarer_probes_leave_more_to_promise() -> None:
    allocator = Allocator(narrow(ProbeSettings(3_000, 12_000)))
    grant(allocator, ask(1, taking(1, 7_980), ENDS))
    refuse(allocator, ask(2, taking(2, 1), ENDS))


def test_another_bandwidth_is_charged_with_other_probes() -> None:
    resources = narrow(bandwidth_bytes_per_s=1_000_000)
    facts = channel_facts(resources, 1)
    assert (facts["probe_bytes_per_s"], facts["free_bytes_per_s"]) == (2_400, 997_600)
    assert (facts["probe_interval_ms"], facts["silent_ms_max"]) == (25, 100)


def test_a_survey_states_what_the_probes_take_and_what_is_left() -> None:
    facts = channel_facts(narrow(), 1)
    assert facts["bytes_per_s"] == 0
    assert facts["probe_bytes_per_s"] == 80
    assert facts["free_bytes_per_s"] == 7_920
    assert (facts["probe_interval_ms"], facts["silent_ms_max"]) == (750, 3_000)


def test_a_channel_without_a_bandwidth_is_charged_nothing() -> None:
    resources = narrow(bandwidth_bytes_per_s=0)
    facts = channel_facts(resources, 1)
    assert (facts["probe_bytes_per_s"], facts["free_bytes_per_s"]) == (0, None)
    grant(Allocator(resources), ask(1, taking(1, 10 * NARROW_BYTES_PER_S), ENDS))


def test_what_was_promised_before_the_charge_stays_and_nothing_more_is_admitted() -> None:
    """The journal from before an upgrade holds a contract that uses the whole bandwidth."""
    before = Allocator(narrow(bandwidth_bytes_per_s=10 * NARROW_BYTES_PER_S))
    held = grant(before, ask(1, taking(1, NARROW_BYTES_PER_S), ENDS))
    allocator = Allocator(narrow())
    allocator.restore(held)
    assert allocator.resources.channel(1).is_overloaded
    assert refuse(allocator, ask(2, taking(2, 1), ENDS)).code == ChannelFull.code
    assert allocator.contract(1) == held
    assert channel_facts(allocator.resources, 1)["free_bytes_per_s"] == -80
    allocator.release(1)
    grant(allocator, ask(2, taking(2, 7_920), ENDS))


def test_a_channel_between_clouds_is_charged_at_its_owner() -> None:
    channels = OwnedChannels(
        [
            EventChannel(
                ChannelId(1),
                "c1/a",
                "c2/b",
                bandwidth_bytes_per_s=NARROW_BYTES_PER_S,
                security="none",
            )
        ]
    )
    ((number, account),) = channels.accounts.items()
    assert account.free_bytes_per_s() == {0: 7_920}
    way = ScopePath(0, 0, (number,), (10**9,))
    channels.charge(taking(1, 7_920), {0: 1}, (way,))
    assert channels.obstacles([number]) == []
    assert account.free_bytes_per_s() == {0: 0}
    channels.charge(taking(2, 1), {0: 1}, (way,))
    (obstacle,) = channels.obstacles([number])
    assert obstacle.refusal().shortfall == "1 bytes/s"


@pytest.mark.parametrize(("security", "event_bytes"), [("none", 68), ("hop", 84)])
def test_the_tag_of_a_sealed_datagram_is_charged(security: Security, event_bytes: int) -> None:
    channel = EventChannel(
        ChannelId(1), *ENDS, bandwidth_bytes_per_s=NARROW_BYTES_PER_S, security=security
    )
    account = HopAccount((), (), channel)
    account.add(StreamCost(taking(1, 6_800)), {0: 1})
    assert account.bytes.value == 100 * event_bytes
