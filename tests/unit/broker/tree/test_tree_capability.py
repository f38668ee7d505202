"""A broker above clouds is what its capabilities have registered, in their order."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import pytest

from gridstat.broker.context import Outside
from gridstat.broker.records.operation import Applied
from gridstat.broker.requests.outcomes import refused
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.broker.tree.tree_capability import FromChild, TreeCapabilities, TreeCapability
from gridstat.broker.tree.tree_operations import (
    ChildAdded,
    ChildRemoved,
    TreeChannelRemoved,
    TreeOperation,
    TreeTermBegan,
)
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.errors import StillInUse
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.machine import Connected, Received
from gridstat.net.command.messages import Hello
from gridstat.net.command.operator_messages import (
    Account,
    AddChannel,
    AddChild,
    AddRouter,
    GrantAccess,
    ListAccess,
    OperatorCommand,
    RemoveChannel,
    RemoveChild,
    RemoveRouter,
    RevokeAccess,
    SetAccessMode,
    TreeCommand,
    WhyAccess,
)
from gridstat.net.command.segment_messages import SegmentMessage
from gridstat.net.command.tree_messages import AskNumbers, JoinTree, TreeJoined, TreeMessage
from tests.unit.broker.stand_ins import PlainVerifier
from tests.unit.broker.tree.family import QosNode

if TYPE_CHECKING:
    from msgspec import Struct

    from gridstat.net.command.endpoint_messages import RefusedOutcome


OWNER = TreeCapability(name="owner", operator_commands={RemoveChild: print})
ASKS = frozenset({RemoveChild})


OF_CLOUDS_ALONE: set[type[Struct]] = {
    Account,
    AddRouter,
    RemoveRouter,
    GrantAccess,
    RevokeAccess,
    ListAccess,
    WhyAccess,
    SetAccessMode,
}
OF_SESSIONS: set[type[Struct]] = {JoinTree, TreeJoined}


def root() -> QosBroker:
    return QosBroker(TreeSettings("root"), Outside(PlainVerifier(), lambda: 0), [], [])


def composed(*capabilities: TreeCapability) -> TreeCapabilities:
    found = TreeCapabilities()
    found.register(capabilities)
    return found


def events_of(name: str, seen: list[str]) -> TreeCapability:
    """One that notes every event under its name."""

    def note(event: str, *_: object) -> None:
        seen.append(f"{name} {event}")

    return TreeCapability(
        name=name,
        channel_added=partial(note, "channel_added"),
        channel_removed=partial(note, "channel_removed"),
        channels_renumbered=partial(note, "channels_renumbered"),
        resume=partial(note, "resume"),
        child_returned=partial(note, "child_returned"),
        child_joined=partial(note, "child_joined"),
        child_left=partial(note, "child_left"),
        child_removed=partial(note, "child_removed"),
        clouds_changed=partial(note, "clouds_changed"),
        parent_joined=partial(note, "parent_joined"),
        parent_replaced=partial(note, "parent_replaced"),
        place_changed=partial(note, "place_changed"),
    )


def raise_all(capabilities: TreeCapabilities, event: str) -> None:
    arguments: dict[str, tuple[object, ...]] = {
        "channel_added": (1, Applied()),
        "channel_removed": (1, Applied()),
        "child_joined": ("c1",),
        "child_left": ("c1",),
        "child_removed": ("c1",),
        "clouds_changed": ("c1",),
    }
    getattr(capabilities, event)(*arguments.get(event, ()))


@pytest.mark.parametrize(
    "event",
    [
        "channel_added",
        "channel_removed",
        "channels_renumbered",
        "resume",
        "child_left",
        "child_removed",
        "clouds_changed",
        "parent_joined",
        "parent_replaced",
        "place_changed",
    ],
)
def test_an_event_reaches_the_capabilities_in_their_order(event: str) -> None:
    seen: list[str] = []
    capabilities = composed(events_of("a", seen), TreeCapability(name="c"), events_of("b", seen))
    raise_all(capabilities, event)
    assert seen == [f"a {event}", f"b {event}"]


def test_all_forget_what_a_child_reported_before_any_sends_what_it_missed() -> None:
    seen: list[str] = []
    composed(events_of("a", seen), events_of("b", seen)).child_joined("c1")
    assert seen == ["a child_returned", "b child_returned", "a child_joined", "b child_joined"]


def test_two_capabilities_with_one_message_are_a_bug() -> None:
    one = TreeCapability(name="a", child_messages={AskNumbers: FromChild(print)})
    with pytest.raises(AssertionError, match=r"a and b both register .*AskNumbers"):
        composed(one, replace(one, name="b"))


def test_capabilities_are_registered_once() -> None:
    capabilities = composed(TreeCapability(name="a"))
    with pytest.raises(AssertionError, match="once"):
        capabilities.register([TreeCapability(name="a")])


def test_a_snapshot_follows_the_list_and_orphaned_operations_come_last_first() -> None:
    def written(name: str, term: int = 0) -> list[TreeOperation]:
        return [ChildAdded(name=f"{name}{term}")]

    capabilities = composed(
        TreeCapability(name="a", snapshot=partial(written, "a"), orphaned=partial(written, "a")),
        TreeCapability(name="b", snapshot=partial(written, "b"), orphaned=partial(written, "b")),
    )
    assert list(capabilities.snapshot()) == [ChildAdded(name="a0"), ChildAdded(name="b0")]
    assert capabilities.orphaned(7) == [ChildAdded(name="b7"), ChildAdded(name="a7")]


def test_an_operation_is_applied_by_the_capability_that_has_registered_it() -> None:
    applied: list[tuple[str, TreeOperation]] = []

    def apply(name: str, operation: TreeOperation, done: Applied) -> None:
        del done
        applied.append((name, operation))

    capabilities = composed(
        TreeCapability(name="a", operations={TreeTermBegan: partial(apply, "a")}, snapshot=tuple),
        TreeCapability(name="b", operations={ChildRemoved: partial(apply, "b")}, snapshot=tuple),
    )
    assert capabilities.operation_types == (TreeTermBegan, ChildRemoved)
    capabilities.apply(ChildRemoved(name="c1"), Applied())
    assert applied == [("b", ChildRemoved(name="c1"))]
    with pytest.raises(KeyError):
        capabilities.apply(TreeChannelRemoved(channel_id=1), Applied())


def test_the_first_objection_is_the_answer() -> None:
    def object_to(reason: str, command: RemoveChild) -> RefusedOutcome | None:
        return refused(StillInUse(f"{reason} of {command.name}")) if reason else None

    capabilities = composed(
        TreeCapability(name="a", objections={RemoveChild: partial(object_to, "")}),
        TreeCapability(name="b", objections={RemoveChild: partial(object_to, "contracts")}),
        TreeCapability(name="c", objections={RemoveChild: partial(object_to, "floods")}),
        replace(OWNER, asks_about=ASKS),
    )
    found = capabilities.objection(RemoveChild(request_id=1, name="c1"))
    assert found is not None
    assert found.reason == "contracts of c1"
    with pytest.raises(AssertionError, match=r"AddChild.* asks_about"):
        capabilities.objection(AddChild(request_id=2, name="c1"))


def test_channel_numbers_are_in_use_if_one_capability_uses_them() -> None:
    unused = TreeCapability(name="a"), TreeCapability(name="b")
    assert not composed(*unused).is_holding()
    assert composed(*unused, TreeCapability(name="c", is_holding=lambda: True)).is_holding()


def test_a_timer_of_one_variable_is_found_by_its_prefix() -> None:
    fired: list[str] = []
    capabilities = composed(TreeCapability(name="a", named_timers={"flood/": fired.append}))
    capabilities.fire_named("flood/c1/pmu/voltage")
    capabilities.fire_named("flood")
    capabilities.fire_named("other/c1/pmu/voltage")
    assert fired == ["c1/pmu/voltage"]


def test_a_survey_has_the_facts_of_all_capabilities() -> None:
    first = TreeCapability(name="a", survey=lambda: {"a": 1})
    second = TreeCapability(name="b", survey=lambda: {"b": 2})
    assert composed(first, second).survey() == {"a": 1, "b": 2}


def rows() -> dict[str, Any]:
    return {"contracts": 1}


@pytest.mark.parametrize(
    ("capabilities", "complaint"),
    [
        ([TreeCapability(name="a", operations={TreeTermBegan: print})], "a has no snapshot"),
        ([OWNER, TreeCapability(name="a", objections={RemoveChild: print})], "nobody asks a "),
        ([OWNER, TreeCapability(name="a", asks_about=ASKS)], "a asks about .*RemoveChild.*own"),
        ([TreeCapability(name="a", named_timers={"flood": print})], "'flood' of a .*slash"),
        ([TreeCapability(name="a", timers={"flood/c1": print})], "'flood/c1' of a .*slash"),
        ([TreeCapability(name="a", parent_messages={TreeJoined: print})], "a .*TreeJoined"),
        ([TreeCapability(name="a", child_messages={JoinTree: FromChild(print)})], "a .*JoinTree"),
        (
            [TreeCapability(name="a", survey=rows), TreeCapability(name="b", survey=rows)],
            "a and b both register .*contracts",
        ),
        ([TreeCapability(name="a"), TreeCapability(name="a")], "two capabilities .* a"),
    ],
)
def test_what_would_never_be_used_is_not_registered(
    capabilities: list[TreeCapability], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        composed(*capabilities)


def test_every_operation_of_a_broker_above_clouds_is_registered() -> None:
    assert set(TreeOperation.__subclasses__()) == set(root().operation_types)


def test_every_command_and_message_of_the_wire_has_a_capability() -> None:
    found = root()._capabilities
    commands = {*get_args(OperatorCommand), *get_args(TreeCommand)}
    assert found.operator_commands.keys() == commands - OF_CLOUDS_ALONE
    messages = {*get_args(TreeMessage), *get_args(SegmentMessage)}
    received = found.child_messages.keys() | found.parent_messages.keys()
    assert received == messages - OF_SESSIONS


@pytest.mark.parametrize(
    "command",
    [
        Account(request_id=7),
        AddRouter(request_id=7, router=Router("c1/e0")),
        RemoveRouter(request_id=7, name="c1/e0"),
        RevokeAccess(request_id=7, identifier="open"),
        ListAccess(request_id=7),
        WhyAccess(request_id=7, is_observed=True),
        SetAccessMode(request_id=7, is_enforced=True),
    ],
)
def test_a_command_to_clouds_alone_is_refused_in_words(command: OperatorCommand) -> None:
    assert type(command) in OF_CLOUDS_ALONE
    node = QosNode(TreeSettings("root"), [], [])
    node.start()
    node.tell(Received("operator/o", command))
    (answer,) = node.answers
    assert answer.refused is not None
    assert f"does not support {type(command).__name__}" in answer.refused.reason
    assert answer.refused.hint == "send the command to the broker of the cloud concerned"


# Objections are really asked for.

COMMANDS: dict[type[Struct], OperatorCommand | TreeCommand] = {
    AddChannel: AddChannel(
        request_id=1, channel=EventChannel(ChannelId(0), "c2/w", "c1/w", latency_us=1)
    ),
    RemoveChannel: RemoveChannel(request_id=1, from_router="c1/w", to_router="c2/w"),
    RemoveChild: RemoveChild(request_id=1, name="c3"),
}
ASKED = sorted(root()._capabilities._asked, key=str)


@pytest.mark.parametrize("kind", ASKED, ids=[kind.__name__ for kind in ASKED])
def test_the_owner_of_a_command_asks_for_objections(
    kind: type[Struct], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that an owner declares in `asks_about` gets a case in `COMMANDS`."""
    asked: list[type[Struct]] = []

    def object_to(_: TreeCapabilities, command: Struct) -> None:
        asked.append(type(command))

    node = QosNode(
        TreeSettings("root"), ["c1", "c2", "c3"], [EventChannel(ChannelId(0), "c1/w", "c2/w")]
    )
    node.start()
    for child in "c1", "c2":
        peer = f"broker/{child}"
        node.tell(Connected(peer, Hello(role="broker", name=child, instance="1")))
        node.tell(Received(peer, JoinTree(term=1, clouds=(child,))))
    monkeypatch.setattr(TreeCapabilities, "objection", object_to)
    node.tell(Received("operator/o", COMMANDS[kind]))
    assert asked == [kind]
