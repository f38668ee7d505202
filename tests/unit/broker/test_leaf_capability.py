"""Capabilities of a leaf broker: what they register is merged, in the order of their list."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import pytest

from gridstat.broker.leaf_capability import LeafCapabilities, LeafCapability
from gridstat.broker.records.operation import Applied, Durable
from gridstat.broker.records.operations import ChannelRemoved, RouterRemoved
from gridstat.model.cloud import EventChannel
from gridstat.model.identifiers import ChannelId
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    EndPointCommand,
    ListenToFloods,
    Subscribe,
)
from gridstat.net.command.machine import Received
from gridstat.net.command.operator_messages import (
    AddChannel,
    AddChild,
    OperatorCommand,
    RemoveChannel,
    RemoveChild,
)
from gridstat.net.command.router_messages import ReportCounters
from gridstat.net.command.tree_messages import TreeJoined
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.segments.family import Family
from tests.unit.broker.stand_ins import PMU, VOLTAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Struct

REMOVED = RouterRemoved(name="c1/e0")
OURS = "gridstat."


def registered(*capabilities: LeafCapability) -> LeafCapabilities:
    found = LeafCapabilities()
    found.register(capabilities)
    return found


def wrap(seen: list[str], name: str, _: Any, __: Applied, change: Callable[[], None]) -> None:
    seen.append(f"before {name}")
    change()
    seen.append(f"after {name}")


def note(seen: list[str], name: str, *_: Any) -> None:
    seen.append(name)


def test_wrappers_of_an_operation_nest_in_the_order_of_the_list() -> None:
    seen: list[str] = []
    found = registered(
        LeafCapability(name="a", around={RouterRemoved: partial(wrap, seen, "a")}),
        LeafCapability(
            name="owner", operations={RouterRemoved: partial(note, seen, "owner")}, snapshot=tuple
        ),
        LeafCapability(name="b", around={RouterRemoved: partial(wrap, seen, "b")}),
    )
    found.operations[RouterRemoved](REMOVED, Applied())
    assert seen == ["before a", "before b", "owner", "after b", "after a"]


def test_what_was_held_for_a_former_parent_ends_in_the_reverse_order_of_the_list() -> None:
    found = registered(
        LeafCapability(name="a", orphaned=lambda: [ChannelRemoved(channel_id=1)]),
        LeafCapability(name="b"),
        LeafCapability(name="c", orphaned=lambda: [REMOVED]),
    )
    assert found.orphaned() == [REMOVED, ChannelRemoved(channel_id=1)]


def test_two_owners_of_an_operation_are_a_bug() -> None:
    owner = LeafCapability(name="a", operations={RouterRemoved: partial(note, [], "")})
    with pytest.raises(AssertionError, match=r"a and b both register .*RouterRemoved"):
        registered(owner, replace(owner, name="b"))


def test_an_operation_without_an_owner_cannot_be_wrapped() -> None:
    with pytest.raises(AssertionError, match="nobody owns"):
        registered(LeafCapability(name="a", around={ChannelRemoved: partial(wrap, [], "a")}))


def test_a_command_and_a_query_of_the_same_type_are_a_bug() -> None:
    handler = partial(note, [], "")
    with pytest.raises(AssertionError, match=r"both register .*Subscribe"):
        registered(
            LeafCapability(name="a", endpoint_commands={Subscribe: handler}),
            LeafCapability(name="b", endpoint_queries={Subscribe: handler}),
        )


def test_several_capabilities_handle_a_message_of_a_router_in_order() -> None:
    seen: list[str] = []
    found = registered(
        LeafCapability(name="a", router_messages={ReportCounters: partial(note, seen, "a")}),
        LeafCapability(name="b", router_messages={ReportCounters: partial(note, seen, "b")}),
    )
    for handle in found.router_messages[ReportCounters]:
        handle("c1/e0", None)
    assert seen == ["a", "b"]


def test_a_join_of_the_parent_reaches_the_capabilities_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    found = registered(
        LeafCapability(name="a", parent_joined=partial(note, seen, "a")),
        LeafCapability(name="b"),
        LeafCapability(name="c", parent_joined=partial(note, seen, "c")),
    )
    found.parent_joined()
    assert seen == ["a", "c"]

    cloud = Family()
    cloud.start()
    monkeypatch.setattr(LeafCapabilities, "parent_joined", partial(note, seen, "joined"))
    cloud.join()
    assert seen == ["a", "c", "joined"]


def test_a_timer_whose_name_has_a_slash_is_given_the_rest_of_it() -> None:
    seen: list[str] = []
    found = registered(
        LeafCapability(
            name="a",
            timers={"once": partial(note, seen, "1")},
            named_timers={"grace/": seen.append},
        )
    )
    found.fire_timer("grace/c1/pmu")
    found.fire_timer("once")
    found.fire_timer("of an earlier release")
    assert seen == ["c1/pmu", "1"]


def test_the_first_check_that_objects_raises_before_the_next_is_asked() -> None:
    seen: list[str] = []

    def refuse(_: RemoveChannel) -> None:
        raise ValueError

    found = registered(
        LeafCapability(name="a", objections={RemoveChannel: partial(note, seen, "a")}),
        LeafCapability(name="b", objections={RemoveChannel: refuse}),
        LeafCapability(name="c", objections={RemoveChannel: partial(note, seen, "c")}),
        replace(OWNER, asks_about=ASKS),
    )
    with pytest.raises(ValueError):  # noqa: PT011 — any error ends the questions.
        found.objection(RemoveChannel(request_id=1, from_router="c1/e0", to_router="c1/e1"))
    assert seen == ["a"]


def test_a_list_is_registered_once() -> None:
    found = registered(LeafCapability(name="a"))
    with pytest.raises(AssertionError):
        found.register([LeafCapability(name="b")])


def test_every_command_of_the_wire_has_a_capability() -> None:
    found = Conversation().broker._capabilities
    assert found.endpoint_commands.keys() == set(get_args(EndPointCommand))
    assert found.operator_commands.keys() == set(get_args(OperatorCommand))
    assert ListenToFloods in found.endpoint_queries
    assert Subscribe not in found.endpoint_queries


def rows() -> dict[str, Any]:
    return {"contracts": 1}


OWNER = LeafCapability(name="owner", operator_commands={RemoveChannel: print})
ASKS = frozenset({RemoveChannel})


@pytest.mark.parametrize(
    ("capabilities", "complaint"),
    [
        ([LeafCapability(name="a", operations={RouterRemoved: print})], "a has no snapshot"),
        ([OWNER, LeafCapability(name="a", objections={RemoveChannel: print})], "nobody asks a "),
        ([OWNER, LeafCapability(name="a", asks_about=ASKS)], "a asks about .*RemoveChannel.*own"),
        ([LeafCapability(name="a", named_timers={"grace": print})], "'grace' of a .*slash"),
        ([LeafCapability(name="a", timers={"grace/pmu": print})], "'grace/pmu' of a .*slash"),
        ([LeafCapability(name="a b", modes_named=list)], "a b is a key in the log"),
        ([LeafCapability(name="a", parent_messages={TreeJoined: print})], "a .*TreeJoined"),
        ([LeafCapability(name="a", parent_messages={RemoveChannel: print})], "a .*RemoveChannel"),
        (
            [LeafCapability(name="a", survey=rows), LeafCapability(name="b", survey=rows)],
            "a and b both register .*contracts",
        ),
        ([LeafCapability(name="a"), LeafCapability(name="a")], "two capabilities .* a"),
    ],
)
def test_what_would_never_be_used_is_not_registered(
    capabilities: list[LeafCapability], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        registered(*capabilities)


def test_objections_are_asked_only_about_commands_that_were_declared() -> None:
    with pytest.raises(AssertionError, match=r"RemoveChannel.* asks_about"):
        registered(OWNER).objection(
            RemoveChannel(request_id=1, from_router="c1/e0", to_router="c1/e1")
        )


def test_every_operation_of_a_leaf_broker_is_registered() -> None:
    known = set(Conversation().broker.operation_types)
    assert {kind for kind in Durable.__subclasses__() if kind.__module__.startswith(OURS)} <= known


@pytest.mark.parametrize("command", [AddChild, RemoveChild])
def test_a_command_to_brokers_above_clouds_is_refused_in_words(
    command: type[AddChild | RemoveChild],
) -> None:
    cloud = Conversation()
    cloud.tell(Received("operator/o", command(request_id=7, name="c2")))
    (answer,) = cloud.operator_answers
    assert answer.request_id == 7
    assert answer.refused is not None
    expected = f"the broker of a cloud does not support {command.__name__}"
    assert answer.refused.reason == expected
    assert answer.refused.hint == "send the command to a broker above the cloud"
    assert not cloud.closed


# Objections are really asked for.


def remove_channel(cloud: Conversation) -> None:
    command = RemoveChannel(request_id=1, from_router="c1/e0", to_router="c1/i0")
    cloud.tell(Received("operator/o", command))


def add_channel(cloud: Conversation) -> None:
    channel = EventChannel(ChannelId(0), "c1/e0", "c1/e1")
    cloud.tell(Received("operator/o", AddChannel(request_id=1, channel=channel)))


def change_publication(cloud: Conversation) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.ask(PMU, "c1/e0", ChangePublication(name=VOLTAGE, period=Period(1, 30)))


COMMANDS = {
    RemoveChannel: remove_channel,
    AddChannel: add_channel,
    ChangePublication: change_publication,
}
ASKED = sorted(Conversation().broker._capabilities._asked, key=str)


@pytest.mark.parametrize("kind", ASKED, ids=[kind.__name__ for kind in ASKED])
def test_the_owner_of_a_command_asks_for_objections(
    kind: type[Struct], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that an owner declares in `asks_about` gets a case in `COMMANDS`."""
    asked: list[type[Struct]] = []

    def object_to(_: LeafCapabilities, command: Struct) -> None:
        asked.append(type(command))

    cloud = pair()
    monkeypatch.setattr(LeafCapabilities, "objection", object_to)
    COMMANDS[kind](cloud)
    assert asked == [kind]
