"""Capabilities of a broker above clouds, and what each of them registers.

A broker above clouds is an ordered list of capabilities, which `components.py` composes. A
capability is one concept of the domain: children, channels, segments, contracts, floods. Its
registration, a `TreeCapability`, names everything that it brings: the messages, commands,
operations and timers that it handles, and what it does when a child or the parent comes and goes.
The dispatcher, the state and the broker look handlers up in the merged tables of
`TreeCapabilities`, and so know no capability by name.

Each event reaches the capabilities in the order of the list, except where a field says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from gridstat.broker.capability import check_common, merged
from gridstat.net.command.tree_messages import JoinTree, TreeJoined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gridstat.broker.records.operation import Applied
    from gridstat.broker.tree.tree_operations import TreeOperation
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.operator_messages import OperatorCommand, TreeCommand
    from gridstat.net.command.tree_messages import TreeMessageBase

Facts: TypeAlias = dict[str, Any]
"""Answer to an operator, as JSON shows it."""

Apply: TypeAlias = "Callable[[Any, Applied], None]"
Command: TypeAlias = "OperatorCommand | TreeCommand"
Objection: TypeAlias = "Callable[[Any], RefusedOutcome | None]"


def _is_any(_child: str, _message: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class FromChild:
    """Handler of one type of message from a child.

    `is_own` returns whether such a message is about the child's own part of the tree. Otherwise
    the message is logged and dropped.
    """

    handle: Callable[[str, Any], None]
    is_own: Callable[[str, Any], bool] = _is_any


# Defaults of the fields of a capability.


def _do_nothing() -> None:
    pass


def _ignore_child(_child: str) -> None:
    pass


def _ignore_channel(_channel_id: int, _done: Applied) -> None:
    pass


def _holds_nothing() -> bool:
    return False


def _no_facts() -> Facts:
    return {}


def _no_operations() -> tuple[TreeOperation, ...]:
    return ()


def _nothing_orphaned(_term: int) -> tuple[TreeOperation, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeCapability:
    """Registration of one capability; an omitted field means that it brings nothing of the kind."""

    name: str
    """Name in the assertions about registrations."""

    # Messages and commands.

    child_messages: Mapping[type[TreeMessageBase], FromChild] = field(default_factory=dict)
    """Handlers of messages from children that have joined, by type, other than `JoinTree`."""
    parent_messages: Mapping[type[TreeMessageBase], Callable[[Any], None]] = field(
        default_factory=dict
    )
    """Handlers of messages from the parent, by type, once this broker's place is durable.

    `TreeJoined`, which brings the place, is of the membership.
    """
    operator_commands: Mapping[type[Command], Callable[[str, Any], None]] = field(
        default_factory=dict
    )
    """Handlers of commands of operators, by type; each gets the operator's peer name."""
    objections: Mapping[type[Command], Objection] = field(default_factory=dict)
    """Objections to commands of other capabilities, by type: a refusal, or None.

    The capability that handles the command asks for them; the first refusal is the answer.
    """
    asks_about: frozenset[type[Command]] = frozenset()
    """Commands of this capability for which it asks the others' objections."""
    survey: Callable[[], Facts] = _no_facts
    """Return the facts for metrics and for the survey of operators.

    The names of the facts do not depend on the state.
    """

    # Durable state.

    operations: Mapping[type[TreeOperation], Apply] = field(default_factory=dict)
    """Types of the journal's operations, and the change of state that each makes."""
    snapshot: Callable[[], Iterable[TreeOperation]] = _no_operations
    """Return the shortest journal of the capability's state, as a part of the whole snapshot."""
    orphaned: Callable[[int], Iterable[TreeOperation]] = _nothing_orphaned
    """Return operations that end everything held for a former parent, in this new term.

    They are written with the term of a broker that starts without a parent. The last capability
    comes first, since the place in the tree is given up last.
    """
    is_holding: Callable[[], bool] = _holds_nothing
    """Return whether channel numbers are in use below, and so cannot change."""
    channel_added: Callable[[int, Applied], None] = _ignore_channel
    """Called after an operation has added a channel of this broker."""
    channel_removed: Callable[[int, Applied], None] = _ignore_channel
    """Called before an operation removes a channel of this broker."""
    channels_renumbered: Callable[[], None] = _do_nothing
    """Called before the channels get other numbers."""

    # Timers.

    timers: Mapping[str, Callable[[], None]] = field(default_factory=dict)
    """Handlers of timers, by name."""
    named_timers: Mapping[str, Callable[[str], None]] = field(default_factory=dict)
    """Handlers of timers of one variable each, by the prefix of their names up to `/`."""

    # Events.

    resume: Callable[[], None] = _do_nothing
    """Called after a start, once the new term is durable: continue the work in the journal."""
    child_returned: Callable[[str], None] = _ignore_child
    """Called when a child has joined, before `child_joined` of any capability.

    Drop what the child reported in an earlier session, since it sends its reports again.
    """
    child_joined: Callable[[str], None] = _ignore_child
    """Called when a child has joined: send everything that the child may have missed."""
    child_left: Callable[[str], None] = _ignore_child
    """Called when the session of a joined child has ended."""
    child_removed: Callable[[str], None] = _ignore_child
    """Called once the removal of a child is durable, before its session ends."""
    clouds_changed: Callable[[str], None] = _ignore_child
    """Called when other clouds than before lie below a child."""
    parent_joined: Callable[[], None] = _do_nothing
    """Called when the parent counts this broker as joined: send what the parent may have missed."""
    parent_replaced: Callable[[], None] = _do_nothing
    """Called when everything that a former parent had reserved is to be released."""
    place_changed: Callable[[], None] = _do_nothing
    """Called after children have received the new place of this broker."""

    @property
    def commands(self) -> set[type[Command]]:
        """Commands that this capability owns."""
        return {*self.operator_commands}


class TreeCapabilities:
    """Capabilities of one broker in their order, and their merged tables.

    The state of a broker applies operations by these tables, and the components that handle the
    operations need the state. The list is therefore filled once, when all components are there.
    """

    def __init__(self) -> None:
        self._all: tuple[TreeCapability, ...] = ()
        self.child_messages: Mapping[type[TreeMessageBase], FromChild] = {}
        self.parent_messages: Mapping[type[TreeMessageBase], Callable[[Any], None]] = {}
        self.operator_commands: Mapping[type[Command], Callable[[str, Any], None]] = {}
        self.timers: Mapping[str, Callable[[], None]] = {}
        self._named_timers: Mapping[str, Callable[[str], None]] = {}
        self._operations: Mapping[type[TreeOperation], Apply] = {}
        self._asked: frozenset[type[Command]] = frozenset()
        """Commands whose owners ask for objections."""

    def register(self, capabilities: Sequence[TreeCapability]) -> None:
        assert not self._all, "the capabilities of a broker are registered once"
        self._all = tuple(capabilities)
        check_registrations(self._all)
        self.child_messages = merged((one.name, one.child_messages) for one in self._all)
        self.parent_messages = merged((one.name, one.parent_messages) for one in self._all)
        self.operator_commands = merged((one.name, one.operator_commands) for one in self._all)
        self.timers = merged((one.name, one.timers) for one in self._all)
        self._named_timers = merged((one.name, one.named_timers) for one in self._all)
        self._operations = merged((one.name, one.operations) for one in self._all)
        self._asked = frozenset[type]().union(*(one.asks_about for one in self._all))

    # Commands and timers.

    def objection(self, command: Command) -> RefusedOutcome | None:
        """Return the first objection of any capability to a command."""
        kind = type(command)
        assert kind in self._asked, f"{kind.__name__} is missing in asks_about of its owner"
        for one in self._all:
            object_to = one.objections.get(kind)
            refusal = None if object_to is None else object_to(command)
            if refusal is not None:
                return refusal
        return None

    def survey(self) -> Facts:
        return _survey_of(self._all)

    def fire_named(self, timer: str) -> None:
        """Handle the timer of one variable; one that no capability has registered is ignored."""
        prefix, slash, name = timer.partition("/")
        fired = self._named_timers.get(prefix + slash)
        if fired is not None:
            fired(name)

    # Durable state.

    @property
    def operation_types(self) -> tuple[type[TreeOperation], ...]:
        return tuple(self._operations)

    def apply(self, operation: TreeOperation, done: Applied) -> None:
        self._operations[type(operation)](operation, done)

    def snapshot(self) -> Iterator[TreeOperation]:
        for one in self._all:
            yield from one.snapshot()

    def orphaned(self, term: int) -> list[TreeOperation]:
        return [found for one in reversed(self._all) for found in one.orphaned(term)]

    def is_holding(self) -> bool:
        return any(one.is_holding() for one in self._all)

    def channel_added(self, channel_id: int, done: Applied) -> None:
        for one in self._all:
            one.channel_added(channel_id, done)

    def channel_removed(self, channel_id: int, done: Applied) -> None:
        for one in self._all:
            one.channel_removed(channel_id, done)

    def channels_renumbered(self) -> None:
        for one in self._all:
            one.channels_renumbered()

    # Events.

    def resume(self) -> None:
        for one in self._all:
            one.resume()

    def child_joined(self, child: str) -> None:
        for one in self._all:
            one.child_returned(child)
        for one in self._all:
            one.child_joined(child)

    def child_left(self, child: str) -> None:
        for one in self._all:
            one.child_left(child)

    def child_removed(self, child: str) -> None:
        for one in self._all:
            one.child_removed(child)

    def clouds_changed(self, child: str) -> None:
        for one in self._all:
            one.clouds_changed(child)

    def parent_joined(self) -> None:
        for one in self._all:
            one.parent_joined()

    def parent_replaced(self) -> None:
        for one in self._all:
            one.parent_replaced()

    def place_changed(self) -> None:
        for one in self._all:
            one.place_changed()


def check_registrations(capabilities: Sequence[TreeCapability]) -> None:
    """Assert that nothing is registered that would never be used."""
    check_common(capabilities)
    for one in capabilities:
        has_snapshot = one.snapshot is not _no_operations
        assert not one.operations or has_snapshot, f"{one.name} has no snapshot"
        assert TreeJoined not in one.parent_messages, f"{one.name} would never receive TreeJoined"
        assert JoinTree not in one.child_messages, f"{one.name} would never receive JoinTree"
    _survey_of(capabilities)  # Two capabilities with one fact are found at the start.


def _survey_of(capabilities: Iterable[TreeCapability]) -> Facts:
    return merged((one.name, one.survey()) for one in capabilities)
