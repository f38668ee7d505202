"""A leaf broker gives seeds to both ends of its sealed channels, and writes none of them down."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.settings import BrokerSettings
from gridstat.model.errors import SecurityNotSatisfiable
from gridstat.model.keys.key_settings import KeySettings
from gridstat.model.qos import QosRequest
from gridstat.net.command.machine import Connected, Received, Send
from gridstat.net.command.operator_messages import RemoveChannel
from gridstat.net.command.router_messages import ChannelSeed
from gridstat.net.command.session_messages import Hello
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, ring, subscribe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.model.channel_security import Security

QUICK = BrokerSettings("c1", keys=KeySettings(epoch_ms=1_000, reseed_ms=10_000))


def seeds(cloud: Conversation, channel_id: int) -> tuple[list[ChannelSeed], list[ChannelSeed]]:
    """The seeds that the receiver and the sender of a channel were given, in order."""
    found = [
        each
        for router in cloud.routers.values()
        for each in router.seeds
        if each.channel_id == channel_id
    ]
    offered = [each for each in found if each.first_epoch < 0]
    return offered, [each for each in found if each.first_epoch >= 0]


def numbers(given: Iterable[ChannelSeed]) -> list[int]:
    return [each.number for each in given]


def survey(cloud: Conversation) -> dict[str, object]:
    return dict(cloud.broker.survey()["keys"])


def test_both_ends_get_the_same_seed_and_the_receiver_gets_it_first() -> None:
    cloud = Conversation().start()
    for channel in cloud.channels_given:
        offered, given = seeds(cloud, channel.channel_id)
        assert numbers(offered)[-1:] == numbers(given) != []
        assert offered[-1].secret == given[0].secret
    sent = [
        (each.message.channel_id, each.message.first_epoch >= 0)
        for each in cloud.instructions
        if isinstance(each, Send) and isinstance(each.message, ChannelSeed)
    ]
    assert sent.index((1, False)) < sent.index((1, True))


def test_a_restarted_sender_gets_a_seed_that_no_process_had_before() -> None:
    cloud = Conversation().start()
    _, before = seeds(cloud, 1)
    sender = next(each for each in cloud.channels_given if each.channel_id == 1).from_router
    cloud.disconnect(sender)
    cloud.routers[sender].crash()
    cloud.connect(sender)
    _, after = seeds(cloud, 1)
    assert len(after) == len(before) + 1
    assert len({each.secret for each in after}) == len(after)


def test_fresh_seeds_come_by_time() -> None:
    cloud = Conversation(settings=QUICK).start()
    _, before = seeds(cloud, 1)
    cloud.advance(60 * 10**9)
    _, after = seeds(cloud, 1)
    assert len(after) >= len(before) + 5


def test_a_router_without_a_session_makes_a_seed_overdue() -> None:
    cloud = Conversation(settings=QUICK).start()
    cloud.disconnect("c1/i0")
    cloud.advance(60 * 10**9)
    assert "c1/e0→c1/i0" in survey(cloud)["overdue"]  # type: ignore[operator]
    assert any(note.word == "seed_overdue" and note.is_warning for note in cloud.notes)


def test_the_time_of_a_seed_comes_while_the_removal_of_its_channel_is_written() -> None:
    """The seed has no channel then: once the broker failed, and with it all other seeds."""
    cloud = Conversation(settings=QUICK).start()
    channel = cloud.channels_given[0]
    removal = RemoveChannel(
        request_id=6, from_router=channel.from_router, to_router=channel.to_router
    )
    cloud.is_journal_held = True
    cloud.tell(Connected("operator/alice", Hello(role="operator", name="alice", instance="a")))
    cloud.tell(Received("operator/alice", removal))
    cloud.advance(60 * 10**9)
    others = [each.channel_id for each in cloud.channels_given[1:]]
    assert all(len(seeds(cloud, number)[0]) > 1 for number in others)


def test_a_router_that_restarts_while_a_removal_fails_gets_a_seed_again() -> None:
    cloud = Conversation().start()
    channel = cloud.channels_given[0]
    removal = RemoveChannel(
        request_id=6, from_router=channel.from_router, to_router=channel.to_router
    )
    cloud.tell(Connected("operator/alice", Hello(role="operator", name="alice", instance="a")))
    cloud.is_journal_held = True
    cloud.tell(Received("operator/alice", removal))
    cloud.disconnect(channel.from_router)
    cloud.routers[channel.from_router].crash()
    cloud.connect(channel.from_router)
    before = len(seeds(cloud, channel.channel_id)[1])
    cloud.is_journal_held = False
    cloud.fail_first_write()
    cloud.settle()
    assert channel.channel_id in cloud.broker.registry.channels
    assert len(seeds(cloud, channel.channel_id)[1]) == before + 1


def test_no_seed_is_in_the_journal_or_in_a_text() -> None:
    cloud = pair()
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    secrets = [each.secret for router in cloud.routers.values() for each in router.seeds]
    assert secrets
    written = b"".join(cloud.journal)
    shown = "".join(map(repr, (*cloud.instructions, *cloud.notes)))
    for secret in secrets:
        assert secret not in written
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown


def test_a_channel_to_a_router_that_cannot_seal_stays_closed_in_words() -> None:
    cloud = Conversation(ring())
    cloud.routers["c1/i0"].versions = (1, 2)
    cloud.start()
    closed = survey(cloud)["closed"]
    assert isinstance(closed, list)
    assert any("c1/i0 cannot seal" in reason and "none" in reason for reason in closed)
    assert 1 not in cloud.routers["c1/e0"].table.channels
    assert cloud.differing() == []


def test_contracts_leave_a_router_that_returns_without_sealing_and_come_back() -> None:
    cloud = pair()
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    cloud.disconnect("c1/i0")
    cloud.routers["c1/i0"].crash()
    cloud.routers["c1/i0"].versions = (1, 2)
    cloud.connect("c1/i0")
    cloud.settle()
    assert cloud.differing() == []
    assert survey(cloud)["closed"]
    cloud.disconnect("c1/i0")
    cloud.routers["c1/i0"].crash()
    cloud.routers["c1/i0"].versions = (1, 2, 3)
    cloud.connect("c1/i0")
    cloud.settle()
    assert survey(cloud)["closed"] == []
    assert cloud.differing() == []


@pytest.mark.parametrize("security", ["hop", "none"])
def test_a_contract_that_demands_sealing_is_refused_below_it_with_the_channel(
    security: str,
) -> None:
    cloud = Conversation(ring(security="hop" if security == "hop" else "none")).start()
    cloud.attach(PMU, "c1/e0", data_port=0)
    cloud.attach(CENTRE, "c1/e2")
    cloud.publish(VOLTAGE, "c1/e0")
    outcomes = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE, QosRequest(security="hop")))
    if security == "hop":
        assert outcomes[0].subscription_id  # type: ignore[union-attr]
        return
    refused = refusal(outcomes)
    assert refused.code == SecurityNotSatisfiable.code
    assert "channel c1/e0→" in refused.reason
    assert refused.bottleneck.startswith("channel c1/e0→")


def test_a_contract_that_demands_sealing_needs_it_up_to_its_end_points() -> None:
    cloud = Conversation(ring())
    cloud.routers["c1/e2"].endpoint_security = "none"
    cloud.start()
    cloud.attach(PMU, "c1/e0", data_port=0)
    cloud.attach(CENTRE, "c1/e2", security="none")
    cloud.publish(VOLTAGE, "c1/e0")
    refused = refusal(cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE, QosRequest(security="hop"))))
    assert refused.code == SecurityNotSatisfiable.code
    assert f"{CENTRE} and c1/e2 are not sealed" in refused.reason


def test_identifiers_of_end_points_channels_are_not_counted_up() -> None:
    cloud = Conversation().start()
    found = [
        number
        for at in range(8)
        for each in cloud.attach(f"c1/n/p{at}", "c1/e0")
        for number in (each.up_channel_id, each.down_channel_id)
    ]
    assert len(set(found)) == len(found)
    gaps = {abs(one - other) for one, other in pairwise(found)}
    assert min(gaps) > 1
    assert all(1 << 20 <= number < 1 << 31 for number in found)


def test_the_plain_channels_of_an_end_point_close_when_its_edge_demands_sealed_ones() -> None:
    cloud = Conversation(ring())
    cloud.routers["c1/e2"].endpoint_security = "none"
    cloud.start()
    [outcome] = cloud.attach(CENTRE, "c1/e2", security="none")
    cloud.attach(PMU, "c1/e0")
    assert survey(cloud)["plain_end_points"] == {"c1/e2": 1}
    table = cloud.routers["c1/e2"].table
    assert outcome.up_channel_id in table.sources
    assert outcome.down_channel_id in table.channels
    cloud.disconnect("c1/e2")
    cloud.routers["c1/e2"].endpoint_security = "hop"
    cloud.connect("c1/e2")
    cloud.settle()
    assert outcome.up_channel_id not in table.sources
    assert outcome.down_channel_id not in table.channels


def with_plain_subscriber() -> Conversation:
    """A cloud with a contract of a plain end-point, whose edge demands sealed channels by now."""
    cloud = Conversation(ring())
    for edge in ("c1/e2", "c1/e3"):
        cloud.routers[edge].endpoint_security = "none"
    cloud.start()
    cloud.attach(PMU, "c1/e0", data_port=0)
    cloud.attach(CENTRE, "c1/e2", security="none")
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    restart(cloud, "c1/e2", "hop")
    return cloud


def restart(cloud: Conversation, edge: str, security: Security) -> None:
    """Stop an edge router and start it with another security of its end-points' channels."""
    cloud.disconnect(edge)
    cloud.routers[edge].crash()
    cloud.routers[edge].endpoint_security = security
    cloud.connect(edge)
    cloud.settle()


def test_an_edge_that_demands_seals_serves_although_a_plain_end_point_has_a_contract() -> None:
    cloud = with_plain_subscriber()
    assert cloud.differing() == []
    table = cloud.routers["c1/e2"].table
    assert table.channels
    assert not [path for path in table.paths.values() if path.channel_id not in table.channels]


def test_a_plain_contract_goes_on_when_its_edge_takes_plain_channels_again() -> None:
    cloud = with_plain_subscriber()
    assert not cloud.path_orders("c1/e2")
    restart(cloud, "c1/e2", "none")
    cloud.attach(CENTRE, "c1/e2", security="none")
    cloud.settle()
    assert cloud.differing() == []
    assert cloud.path_orders("c1/e2")


def test_a_plain_subscriber_that_connects_anew_is_served_sealed() -> None:
    cloud = with_plain_subscriber()
    [outcome] = cloud.attach(CENTRE, "c1/e2", incarnation="b")
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    assert cloud.differing() == []
    assert [path.channel_id for path in cloud.path_orders("c1/e2")] == [outcome.down_channel_id]
