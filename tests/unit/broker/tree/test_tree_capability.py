"""A broker above clouds is what its capabilities have registered, in their order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.context import Outside
from gridstat.broker.records.operation import Applied
from gridstat.broker.requests.outcomes import refused
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.broker.tree.tree_capability import FromChild, TreeCapabilities, TreeCapability
from gridstat.broker.tree.tree_operations import (
    ChannelRemoved,
    ChildAdded,
    ChildRemoved,
    TermBegan,
    TreeOperation,
)
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.errors import StillInUse
from gridstat.net.command.operator_messages import AddChild, RemoveChild, Survey
from gridstat.net.command.tree_messages import AskNumbers
from tests.unit.broker.stand_ins import PlainVerifier

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import RefusedOutcome


def composed(*capabilities: TreeCapability) -> TreeCapabilities:
    found = TreeCapabilities()
    found.register(capabilities)
    return found


def events_of(name: str, seen: list[str]) -> TreeCapability:
    """One that notes every event under its name."""

    def note(event: str, *_: object) -> None:
        seen.append(f"{name} {event}")

    return TreeCapability(
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
    capabilities = composed(events_of("a", seen), TreeCapability(), events_of("b", seen))
    raise_all(capabilities, event)
    assert seen == [f"a {event}", f"b {event}"]


def test_all_forget_what_a_child_reported_before_any_sends_what_it_missed() -> None:
    seen: list[str] = []
    composed(events_of("a", seen), events_of("b", seen)).child_joined("c1")
    assert seen == ["a child_returned", "b child_returned", "a child_joined", "b child_joined"]


def test_two_capabilities_with_one_message_are_a_bug() -> None:
    one = TreeCapability(child_messages={AskNumbers: FromChild(print)})
    with pytest.raises(AssertionError, match="registered twice"):
        composed(one, one)


def test_capabilities_are_registered_once() -> None:
    capabilities = composed(TreeCapability())
    with pytest.raises(AssertionError, match="once"):
        capabilities.register([TreeCapability()])


def test_a_snapshot_follows_the_list_and_orphaned_operations_come_last_first() -> None:
    def written(name: str, term: int = 0) -> list[TreeOperation]:
        return [ChildAdded(name=f"{name}{term}")]

    capabilities = composed(
        TreeCapability(snapshot=partial(written, "a"), orphaned=partial(written, "a")),
        TreeCapability(snapshot=partial(written, "b"), orphaned=partial(written, "b")),
    )
    assert list(capabilities.snapshot()) == [ChildAdded(name="a0"), ChildAdded(name="b0")]
    assert capabilities.orphaned(7) == [ChildAdded(name="b7"), ChildAdded(name="a7")]


def test_an_operation_is_applied_by_the_capability_that_has_registered_it() -> None:
    applied: list[tuple[str, TreeOperation]] = []

    def apply(name: str, operation: TreeOperation, done: Applied) -> None:
        del done
        applied.append((name, operation))

    capabilities = composed(
        TreeCapability(operations={TermBegan: partial(apply, "a")}, snapshot=tuple),
        TreeCapability(operations={ChildRemoved: partial(apply, "b")}, snapshot=tuple),
    )
    assert capabilities.operation_types == (TermBegan, ChildRemoved)
    capabilities.apply(ChildRemoved(name="c1"), Applied())
    assert applied == [("b", ChildRemoved(name="c1"))]
    with pytest.raises(KeyError):
        capabilities.apply(ChannelRemoved(channel_id=1), Applied())


def test_the_first_objection_is_the_answer() -> None:
    def object_to(reason: str, command: RemoveChild) -> RefusedOutcome | None:
        return refused(StillInUse(f"{reason} of {command.name}")) if reason else None

    capabilities = composed(
        TreeCapability(objections={RemoveChild: partial(object_to, "")}),
        TreeCapability(objections={RemoveChild: partial(object_to, "contracts")}),
        TreeCapability(objections={RemoveChild: partial(object_to, "floods")}),
        TreeCapability(asks_about=frozenset({RemoveChild})),
    )
    found = capabilities.objection(RemoveChild(request_id=1, name="c1"))
    assert found is not None
    assert found.reason == "contracts of c1"
    assert capabilities.objection(AddChild(request_id=2, name="c1")) is None
    assert capabilities.objection(Survey(request_id=3)) is None


def test_channel_numbers_are_in_use_if_one_capability_uses_them() -> None:
    assert not composed(TreeCapability(), TreeCapability()).is_holding()
    assert composed(TreeCapability(), TreeCapability(is_holding=lambda: True)).is_holding()


def test_a_timer_of_one_variable_is_found_by_its_prefix() -> None:
    fired: list[str] = []
    capabilities = composed(TreeCapability(named_timers={"flood/": fired.append}))
    capabilities.fire_named("flood/c1/pmu/voltage")
    capabilities.fire_named("flood")
    capabilities.fire_named("other/c1/pmu/voltage")
    assert fired == ["c1/pmu/voltage"]


def test_a_survey_has_the_facts_of_all_capabilities() -> None:
    first, second = TreeCapability(survey=lambda: {"a": 1}), TreeCapability(survey=lambda: {"b": 2})
    assert composed(first, second).survey() == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("capability", "complaint"),
    [
        (TreeCapability(operations={TermBegan: print}), "snapshot"),
        (TreeCapability(objections={RemoveChild: print}), "nobody asks"),
        (TreeCapability(named_timers={"flood": print}), "slash"),
    ],
)
def test_what_would_never_be_used_is_not_registered(
    capability: TreeCapability, complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        composed(capability)


def test_every_operation_of_a_broker_above_clouds_is_registered() -> None:
    broker = QosBroker(TreeSettings("root"), Outside(PlainVerifier(), lambda: 0), [], [])
    assert set(TreeOperation.__subclasses__()) == set(broker.operation_types)
