"""Operators change the cloud at run time, durably, and never under the feet of a contract."""

from __future__ import annotations

import pytest

from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.errors import (
    LayoutError,
    NoSuchChannel,
    NoSuchRouter,
    NoSuchVariable,
    StillInUse,
    StorageFailed,
    WrongCloud,
)
from gridstat.model.identifiers import ChannelId
from gridstat.model.qos import QosRequest
from gridstat.net.command.endpoint_messages import Unsubscribe
from gridstat.net.command.machine import Connected, Received
from gridstat.net.command.messages import (
    AddChannel,
    AddRouter,
    ChannelStateChanged,
    Explain,
    Hello,
    OperatorAnswer,
    OperatorCommand,
    RemoveChannel,
    RemoveRouter,
)
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, VOLTAGE, FakeRouter

NEW = Router("c1/i9", RouterRole.INNER)


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    return found


def operate(cloud: Conversation, command: OperatorCommand) -> OperatorAnswer:
    cloud.tell(Received("operator/c1/alice", command))
    cloud.settle()
    return cloud.operator_answers[-1]


def code(cloud: Conversation, command: OperatorCommand) -> int:
    answer = operate(cloud, command)
    assert answer.request_id == command.request_id
    return 0 if answer.refused is None else answer.refused.code


def channel(start: str, end: str, number: int = 0) -> EventChannel:
    return EventChannel(ChannelId(number), f"c1/{start}", f"c1/{end}", latency_us=10)


@pytest.mark.feature("S0-127")
def test_a_new_router_and_its_channels_carry_new_paths(cloud: Conversation) -> None:
    assert code(cloud, AddRouter(request_id=1, router=NEW)) == 0
    for number, ends in enumerate((("e0", "i9"), ("i9", "e2"), ("e1", "i9"), ("i9", "e3"))):
        answer = operate(cloud, AddChannel(request_id=2 + number, channel=channel(*ends)))
        assert answer.facts["channel_id"] > 0
    for silent in ("c1/i0", "c1/i1"):  # The only way left is by the new router.
        cloud.disconnect(silent)
    cloud.advance(cloud.settings.confirm_within_ns)
    cloud.routers[NEW.name] = FakeRouter(NEW.name, 20_000)
    cloud.connect(NEW.name)
    cloud.settle()

    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)

    assert NEW.name in granted.paths[0].routers
    assert cloud.routers["c1/e0"].table.channels[granted.paths[0].channel_ids[0]].data_port in {
        20_000
    }
    cloud.routers_given = [*cloud.routers_given]
    cloud.kill_broker()
    cloud.start()
    assert NEW.name in cloud.broker.registry.routers
    assert granted.subscription_id in cloud.broker.registry.subscriptions
    assert [name for name in cloud.differing() if name not in {"c1/i0", "c1/i1"}] == []


def test_a_router_that_has_not_reported_yet_gets_no_paths(cloud: Conversation) -> None:
    operate(cloud, AddRouter(request_id=1, router=NEW))
    for ends in (("e0", "i9"), ("i9", "e2")):
        operate(cloud, AddChannel(request_id=2, channel=channel(*ends)))
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    assert NEW.name not in granted.paths[0].routers


@pytest.mark.feature("S0-127", "S3-41")
def test_what_contracts_depend_on_is_not_removed_before_they_end(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    start, end = granted.paths[0].routers[:2]
    number = granted.paths[0].channel_ids[0]
    remove = RemoveChannel(request_id=1, from_router=start, to_router=end)
    assert code(cloud, remove) == StillInUse.code
    assert code(cloud, RemoveRouter(request_id=2, name="c1/i0")) == StillInUse.code
    assert code(cloud, RemoveRouter(request_id=3, name="c1/e0")) == StillInUse.code

    cloud.ask(CENTRE, "c1/e2", Unsubscribe())

    assert code(cloud, remove) == 0
    assert number not in cloud.routers[start].table.channels
    assert number not in cloud.routers[end].table.sources
    assert code(cloud, RemoveRouter(request_id=4, name="c1/i0")) == StillInUse.code  # Channels.


def test_a_channel_is_not_removed_while_a_contract_is_just_leaving_it(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    start, end = granted.paths[0].routers[:2]
    dead = granted.paths[0].channel_ids[0]
    cloud.hear(end, ChannelStateChanged(channel_id=dead, is_up=False))
    cloud.settle()
    remove = RemoveChannel(request_id=1, from_router=start, to_router=end)
    assert code(cloud, remove) == StillInUse.code
    cloud.advance(1_000_000_000)
    assert code(cloud, remove) == 0
    assert cloud.differing() == []


def test_a_removed_router_is_sent_away_and_stays_removed(cloud: Conversation) -> None:
    remove_channels_of(cloud, "c1/i0")
    assert code(cloud, RemoveRouter(request_id=2, name="c1/i0")) == 0
    assert (cloud.closed[-1].peer, cloud.closed[-1].code) == ("router/c1/i0", NoSuchRouter.code)

    cloud.kill_broker()
    cloud.start()
    assert "c1/i0" not in cloud.broker.registry.routers
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    assert "c1/i0" not in granted.paths[0].routers


def remove_channels_of(cloud: Conversation, router: str) -> None:
    for found in list(cloud.broker.registry.channels.values()):
        if router in {found.from_router, found.to_router}:
            command = RemoveChannel(
                request_id=1, from_router=found.from_router, to_router=found.to_router
            )
            assert code(cloud, command) == 0


def test_a_router_that_reports_while_it_is_being_removed_is_sent_away(
    cloud: Conversation,
) -> None:
    remove_channels_of(cloud, "c1/i0")
    cloud.disconnect("c1/i0")
    hello = Hello(role="router", name="c1/i0", instance=cloud.routers["c1/i0"].instance)
    cloud.tell(Connected("router/c1/i0", hello))
    cloud.is_journal_held = True
    cloud.tell(Received("operator/c1/alice", RemoveRouter(request_id=2, name="c1/i0")))
    cloud.hear("c1/i0", cloud.routers["c1/i0"].report())
    assert (cloud.closed[-1].peer, cloud.closed[-1].code) == ("router/c1/i0", NoSuchRouter.code)

    cloud.is_journal_held = False
    cloud.write()
    assert cloud.operator_answers[-1].refused is None


def test_what_was_down_is_down_still_when_the_disk_does_not_take_its_removal(
    cloud: Conversation,
) -> None:
    resources = cloud.broker.reservations.resources
    down = next(
        number
        for number, found in cloud.broker.registry.channels.items()
        if found.from_router == "c1/i1" and found.to_router.startswith("c1/e")
    )
    found = cloud.broker.registry.channels[down]
    lost = ChannelStateChanged(channel_id=down, is_up=False, silent_ms=100)
    cloud.hear(found.to_router, lost)
    remove_channels_of(cloud, "c1/i0")
    cloud.disconnect("c1/i0")
    cloud.advance(cloud.settings.confirm_within_ns)
    cloud.is_disk_full = True
    ends = {"from_router": found.from_router, "to_router": found.to_router}
    assert code(cloud, RemoveChannel(request_id=2, **ends)) == StorageFailed.code
    assert code(cloud, RemoveRouter(request_id=3, name="c1/i0")) == StorageFailed.code

    assert resources.down_channels() == {down}
    assert "c1/i0" in resources.down_routers()


def test_commands_that_make_no_sense_are_refused_with_their_codes(cloud: Conversation) -> None:
    strange = Router("c2/i0", RouterRole.INNER)
    other = Router("c1/i0", RouterRole.EDGE)
    cases: list[tuple[OperatorCommand, int]] = [
        (AddRouter(request_id=1, router=strange), WrongCloud.code),
        (AddRouter(request_id=2, router=other), LayoutError.code),
        (RemoveRouter(request_id=3, name="c1/x"), NoSuchRouter.code),
        (AddChannel(request_id=4, channel=channel("e0", "x")), NoSuchRouter.code),
        (AddChannel(request_id=5, channel=channel("e0", "e1", 1)), LayoutError.code),
        (AddChannel(request_id=6, channel=channel("e0", "e1", 1 << 20)), LayoutError.code),
        (AddChannel(request_id=7, channel=channel("e0", "i0")), LayoutError.code),
        (RemoveChannel(request_id=8, from_router="a", to_router="b"), NoSuchChannel.code),
        (Explain(request_id=9, name="c1/nothing"), NoSuchVariable.code),
    ]
    for command, expected in cases:
        assert code(cloud, command) == expected


def test_a_repeated_command_is_answered_like_the_first(cloud: Conversation) -> None:
    assert code(cloud, AddRouter(request_id=1, router=NEW)) == 0
    assert code(cloud, AddRouter(request_id=1, router=NEW)) == 0
    first = operate(cloud, AddChannel(request_id=2, channel=channel("e0", "i9")))
    again = operate(cloud, AddChannel(request_id=2, channel=channel("e0", "i9")))
    assert first == again
