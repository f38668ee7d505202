"""Capabilities of a leaf broker: what they register is merged, in the order of their list."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import pytest

from gridstat.broker.leaf_capability import LeafCapabilities, LeafCapability
from gridstat.broker.records.operation import Applied, Durable
from gridstat.broker.records.operations import ChannelRemoved, RouterRemoved
from gridstat.net.command.endpoint_messages import EndPointCommand, ListenToFloods, Subscribe
from gridstat.net.command.machine import Received
from gridstat.net.command.operator_messages import OperatorCommand, RemoveChannel, Survey
from gridstat.net.command.router_messages import ReportCounters
from tests.unit.broker.conversation import Conversation

if TYPE_CHECKING:
    from collections.abc import Callable

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


def test_two_owners_of_an_operation_are_a_bug() -> None:
    owner = LeafCapability(name="owner", operations={RouterRemoved: partial(note, [], "")})
    with pytest.raises(AssertionError, match="registered twice"):
        registered(owner, owner)


def test_an_operation_without_an_owner_cannot_be_wrapped() -> None:
    with pytest.raises(AssertionError, match="nobody owns"):
        registered(LeafCapability(name="a", around={ChannelRemoved: partial(wrap, [], "a")}))


def test_a_command_and_a_query_of_the_same_type_are_a_bug() -> None:
    handler = partial(note, [], "")
    with pytest.raises(AssertionError, match="registered twice"):
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
        LeafCapability(name="owner", asks_about=frozenset({RemoveChannel})),
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


@pytest.mark.parametrize(
    ("capability", "complaint"),
    [
        (LeafCapability(name="a", operations={RouterRemoved: print}), "no snapshot"),
        (LeafCapability(name="a", objections={RemoveChannel: print}), "nobody asks"),
        (LeafCapability(name="a", named_timers={"grace": print}), "a"),
        (LeafCapability(name="a b", modes_named=list), "key in the log"),
    ],
)
def test_what_would_never_be_used_is_not_registered(
    capability: LeafCapability, complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        registered(capability)


def test_a_row_of_the_survey_has_one_capability() -> None:
    def rows() -> dict[str, Any]:
        return {"contracts": 1}

    one, two = LeafCapability(name="a", survey=rows), LeafCapability(name="b", survey=rows)
    with pytest.raises(AssertionError, match="registered twice"):
        registered(one, two).survey()


def test_every_operation_of_a_leaf_broker_is_registered() -> None:
    known = set(Conversation().broker.operation_types)
    assert {kind for kind in Durable.__subclasses__() if kind.__module__.startswith(OURS)} <= known


def test_a_command_that_nobody_has_registered_is_refused_in_words() -> None:
    cloud = Conversation()
    del cloud.broker._capabilities.operator_commands[Survey]
    cloud.tell(Received("operator/o", Survey(request_id=7)))
    answer = cloud.operator_answers[-1]
    assert answer.refused is not None
    assert "does not support Survey" in answer.refused.reason
