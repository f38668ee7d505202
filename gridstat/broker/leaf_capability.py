"""Registration of what one capability brings to a leaf broker, and the merge of all registrations.

`leaf_broker.py` composes the ordered list of capabilities and registers it once, in
`LeafCapabilities`. The parts of the broker look up handlers there, and so know no capability by
name. Tables are merged: one handler serves a type of message or a timer. Callables run in the order
of the list. Snapshots, resumption and reactions to routers depend on that order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from gridstat.broker.capability import check_common, listed, merged
from gridstat.net.command.tree_messages import TreeJoined, TreeMessageBase

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from msgspec import Struct

    from gridstat.broker.capacity.allocation import Refusal
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.requests.request import Request
    from gridstat.net.command.router_messages import ReportRouter
    from gridstat.net.command.session_messages import Hello

    Apply: TypeAlias = Callable[[Any, Applied], None]
    """Applies an operation to the broker's state, and adds the steps that follow."""
    Around: TypeAlias = Callable[[Any, Applied, Callable[[], None]], None]
    """Runs the application of an operation, with steps of its own before or after."""
    RouterHandler: TypeAlias = Callable[[str, Any], None]
    """Handles a message of the named router."""
    Objection: TypeAlias = Callable[[Any], Refusal | None]
    """Returns why a command is refused, or raises the error that refuses it."""
    Facts: TypeAlias = dict[str, Any]

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class ReportReaction(Protocol):
    """Reaction to a router's report; `is_new` is true if the router's process is a new one."""

    def __call__(self, name: str, report: ReportRouter, /, *, is_new: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafCapability:
    """One concept of the domain, as the broker sees it; a field that is not given brings nothing.

    Tables are looked up by the type of a message, command or operation, or by the name of a timer.
    """

    name: str
    """Name in the log, as in the count of requests in undefined modes."""

    # Durable state.

    operations: Mapping[type[Operation], Apply] = field(default_factory=dict)
    """Operations of the journal that this capability owns, applied live and in a replay."""
    around: Mapping[type[Operation], Around] = field(default_factory=dict)
    """Wrappers of other capabilities' operations; the first of the list is the outermost."""
    snapshot: Callable[[], Iterable[Operation]] | None = None
    """Returns the shortest operations that build the state, for replay in the list's order."""
    orphaned: Callable[[], Sequence[Operation]] | None = None
    """Returns operations that end everything held for a former parent.

    They are written with the term of a broker that is configured without a parent; one whose parent
    is only out of reach keeps everything. The last capability comes first, since the channels
    between clouds are closed last.
    """
    resume: Callable[[], None] | None = None
    """Sets timers and restores volatile state, once the term of a start is durable."""

    # Commands and messages.

    endpoint_commands: Mapping[type[Struct], Callable[[Request, Any], None]] = field(
        default_factory=dict
    )
    """Commands of end-points; an answer is kept durably."""
    endpoint_queries: Mapping[type[Struct], Callable[[Request, Any], None]] = field(
        default_factory=dict
    )
    """Commands of end-points whose answers need not be durable: a repeat may be answered anew."""
    operator_commands: Mapping[type[Struct], Callable[[str, Any], None]] = field(
        default_factory=dict
    )
    """Commands of operators, with the peer that receives the answer."""
    objections: Mapping[type[Struct], Objection] = field(default_factory=dict)
    """Objections to other capabilities' commands, asked in order until one refuses."""
    asks_about: frozenset[type[Struct]] = frozenset()
    """Commands of this capability for which it asks the others' objections."""
    parent_messages: Mapping[type[Struct], Callable[[Any], None]] = field(default_factory=dict)
    """Messages of the parent, once it is joined; `TreeJoined` itself is of the session."""
    router_messages: Mapping[type[Struct], RouterHandler] = field(default_factory=dict)
    """Messages of routers; several capabilities may handle one type, in order."""
    timers: Mapping[str, Callable[[], None]] = field(default_factory=dict)
    """Handlers of timers, by name."""
    named_timers: Mapping[str, Callable[[str], None]] = field(default_factory=dict)
    """Handlers of timers of one router or end-point each, by the prefix of their names up to `/`;
    the handler receives the rest of the name."""

    # Peers and turns.

    router_connected: Callable[[str, Hello], None] | None = None
    """Called when the session of a router of this cloud begins."""
    router_reported: ReportReaction | None = None
    """Called when a router's report was accepted."""
    router_lost: Callable[[str], None] | None = None
    """Called when the session of a router that had reported ends."""
    parent_joined: Callable[[], None] | None = None
    """Called when the parent has joined: sends everything that the parent may have missed."""
    persisted: Callable[[], None] | None = None
    """Called after each write that became durable, and its consequences."""
    rolled_back: Callable[[], None] | None = None
    """Called after a failed write was undone."""
    turn_ended: Callable[[], None] | None = None
    """Called after each event, for messages that are collected during the turn."""

    # Operators' view.

    survey: Callable[[], Facts] | None = None
    """Returns rows of the survey; which rows does not depend on the state."""
    modes_named: Callable[[], Iterable[Collection[int]]] | None = None
    """Returns the modes that each durable request names, to find undefined ones."""

    @property
    def commands(self) -> set[type[Struct]]:
        """Commands and queries that this capability owns."""
        return {*self.endpoint_commands, *self.endpoint_queries, *self.operator_commands}


class LeafCapabilities:
    """Merged registrations of a leaf broker; empty until `register`, which is called once.

    The parts of the broker are created before: they refer to this object for what others bring.
    """

    def __init__(self) -> None:
        self._list: tuple[LeafCapability, ...] = ()
        self.operations: dict[type[Operation], Apply] = {}
        """Application of each operation with all its wrappers."""
        self.endpoint_commands: dict[type[Struct], Callable[[Request, Any], None]] = {}
        """Commands and queries of end-points."""
        self.endpoint_queries: frozenset[type[Struct]] = frozenset()
        self.operator_commands: dict[type[Struct], Callable[[str, Any], None]] = {}
        self.parent_messages: dict[type[Struct], Callable[[Any], None]] = {}
        self.router_messages: dict[type[Struct], tuple[RouterHandler, ...]] = {}
        self._timers: dict[str, Callable[[], None]] = {}
        self._named_timers: dict[str, Callable[[str], None]] = {}
        self._objections: dict[type[Struct], tuple[Objection, ...]] = {}
        self._asked: frozenset[type[Struct]] = frozenset()
        """Commands whose owners ask for objections."""
        self._persisted: tuple[Callable[[], None], ...] = ()
        self._turn_ended: tuple[Callable[[], None], ...] = ()

    def register(self, capabilities: Iterable[LeafCapability]) -> None:
        """Merge the ordered list of capabilities."""
        assert not self._list, "capabilities are registered once"
        self._list = found = tuple(capabilities)
        arounds = _in_order(each.around for each in found)
        self.operations = {
            kind: _wrapped(apply, arounds.get(kind, ()))
            for kind, apply in merged((each.name, each.operations) for each in found).items()
        }
        check_registrations(found)
        unknown = arounds.keys() - self.operations.keys()
        assert not unknown, f"nobody owns {listed(unknown)}"
        self.endpoint_queries = frozenset[type]().union(*(each.endpoint_queries for each in found))
        self.endpoint_commands = merged(
            (each.name, table)
            for each in found
            for table in (each.endpoint_queries, each.endpoint_commands)
        )
        self.operator_commands = merged((each.name, each.operator_commands) for each in found)
        self.parent_messages = merged((each.name, each.parent_messages) for each in found)
        self.router_messages = _in_order(each.router_messages for each in found)
        self._timers = merged((each.name, each.timers) for each in found)
        self._named_timers = merged((each.name, each.named_timers) for each in found)
        self._objections = _in_order(each.objections for each in found)
        self._asked = frozenset[type]().union(*(each.asks_about for each in found))
        self._persisted = tuple(run for each in found if (run := each.persisted))
        self._turn_ended = tuple(run for each in found if (run := each.turn_ended))

    # Durable state.

    def snapshot(self) -> Iterator[Operation]:
        """Yield the whole state as operations, in an order that can be replayed."""
        for each in self._list:
            if each.snapshot is not None:
                yield from each.snapshot()

    def orphaned(self) -> list[Operation]:
        """Return the operations that end everything held for a former parent."""
        return [
            operation
            for each in reversed(self._list)
            if each.orphaned is not None
            for operation in each.orphaned()
        ]

    def resume(self) -> None:
        for each in self._list:
            if each.resume is not None:
                each.resume()

    # Commands and timers.

    def objection(self, command: Struct) -> Refusal | None:
        """Return the first refusal of a command, if there is one; an objection may raise."""
        kind = type(command)
        assert kind in self._asked, f"{kind.__name__} is missing in asks_about of its owner"
        for object_to in self._objections.get(kind, ()):
            refusal = object_to(command)
            if refusal is not None:
                return refusal
        return None

    def fire_timer(self, timer: str) -> None:
        """Call the handler of a timer; one that nobody owns any more is ignored."""
        fired = self._timers.get(timer)
        if fired is not None:
            fired()
            return
        prefix, slash, name = timer.partition("/")
        fired_for = self._named_timers.get(prefix + slash)
        if fired_for is not None:
            fired_for(name)

    # Peers and turns.

    def router_connected(self, name: str, hello: Hello) -> None:
        for each in self._list:
            if each.router_connected is not None:
                each.router_connected(name, hello)

    def router_reported(self, name: str, report: ReportRouter, *, is_new: bool) -> None:
        for each in self._list:
            if each.router_reported is not None:
                each.router_reported(name, report, is_new=is_new)

    def router_lost(self, name: str) -> None:
        for each in self._list:
            if each.router_lost is not None:
                each.router_lost(name)

    def parent_joined(self) -> None:
        for each in self._list:
            if each.parent_joined is not None:
                each.parent_joined()

    def persisted(self) -> None:
        for run in self._persisted:
            run()

    def rolled_back(self) -> None:
        for each in self._list:
            if each.rolled_back is not None:
                each.rolled_back()

    def turn_ended(self) -> None:
        for run in self._turn_ended:
            run()

    # Operators' view.

    def survey(self) -> Facts:
        """Return the rows of all capabilities, in order."""
        return _survey_of(self._list)

    def modes_named(self) -> dict[str, Iterable[Collection[int]]]:
        """Return the modes that durable requests name, by capability."""
        return {
            each.name: each.modes_named() for each in self._list if each.modes_named is not None
        }


def check_registrations(capabilities: Sequence[LeafCapability]) -> None:
    """Assert that nothing is registered that would never be used."""
    check_common(capabilities)
    for each in capabilities:
        name = each.name
        assert not each.operations or each.snapshot, f"{name} has no snapshot"
        assert not each.modes_named or name.isidentifier(), f"{name} is a key in the log"
        for kind in each.parent_messages:
            is_sent = issubclass(kind, TreeMessageBase) and kind is not TreeJoined
            assert is_sent, f"{name} would never receive {kind.__name__} of the parent"
    _survey_of(capabilities)  # Two capabilities with one row are found at the start.


def _survey_of(capabilities: Iterable[LeafCapability]) -> Facts:
    return merged((each.name, each.survey()) for each in capabilities if each.survey is not None)


def _in_order(tables: Iterable[Mapping[KeyT, ValueT]]) -> dict[KeyT, tuple[ValueT, ...]]:
    """Merge tables in which several capabilities may have the same key, in order."""
    found: dict[KeyT, tuple[ValueT, ...]] = {}
    for table in tables:
        for key, value in table.items():
            found[key] = (*found.get(key, ()), value)
    return found


def _wrapped(apply: Apply, arounds: Sequence[Around]) -> Apply:
    for around in reversed(arounds):
        apply = partial(_run_around, around, apply)
    return apply


def _run_around(around: Around, change: Apply, operation: Operation, done: Applied) -> None:
    around(operation, done, partial(change, operation, done))
