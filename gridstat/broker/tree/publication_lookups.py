"""Who publishes this? Asked of the child above whose cloud the name lies, and answered upwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import structs

from gridstat.broker.requests.outcomes import refused
from gridstat.broker.tree.deadlines import Deadlines
from gridstat.model.errors import DeadlinePassed, NoSuchVariable
from gridstat.net.command.segment_messages import LookedUp, Lookup

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.tree.border_graph import BorderGraph
    from gridstat.broker.tree.tree_context import TreeContext

LOOKUP_TIMER: Final = "lookup"


@dataclass(slots=True)
class _Open:
    """A question, and what follows its answer."""

    child: str
    name: str
    until_ns: int
    then: Callable[[LookedUp], None]


class PublicationLookups:
    """Every question is answered once: by the child, or by the clock.

    Only the publisher's cloud knows that there is no such variable. A broker that knows of no such
    cloud may have lost its journal, so it answers like the clock: what is held is held on.
    """

    def __init__(self, context: TreeContext, graph: BorderGraph) -> None:
        self._context = context
        self._graph = graph
        self._open: dict[int, _Open] = {}
        self._due: Deadlines[int] = Deadlines(context, LOOKUP_TIMER)

    def ask(self, name: str, then: Callable[[LookedUp], None]) -> None:
        child = self._context.state.families.child_at(name)
        if child is None:
            absent = DeadlinePassed(
                self._unknown(name),
                hint="is that cloud's broker running, and does it reach its parent? Ask again then",
            )
            then(LookedUp(term=0, lookup=0, refused=refused(absent)))
            return
        number = self._context.next_request()
        within_ns = self._context.settings.reserve_within_ns * self._context.state.families.height
        until_ns = self._context.now_ns + within_ns
        self._open[number] = _Open(child, name, until_ns, then)
        self._due.add(until_ns, number)
        self._say(number)

    def find(self, name: str, then: Callable[[LookedUp], None]) -> None:
        """The same for an operator, who may have mistaken the name."""
        if self._context.state.families.child_at(name) is None:
            unknown = NoSuchVariable(self._unknown(name))
            then(LookedUp(term=0, lookup=0, refused=refused(unknown)))
            return
        self.ask(name, then)

    def _unknown(self, name: str) -> str:
        return f"no cloud {name.partition('/')[0]} lies below {self._context.settings.name}"

    def pass_down(self, asked: Lookup) -> None:
        """The parent asks; the answer tells how near the publisher is to the parent's borders."""

        def answer(found: LookedUp) -> None:
            child = self._context.state.families.child_at(asked.name) or ""
            starts = self._graph.starts_above(child, found.starts)
            self._context.send_parent(
                structs.replace(found, term=self._context.term, lookup=asked.lookup, starts=starts)
            )

        self.ask(asked.name, answer)

    def answered(self, child: str, message: LookedUp) -> None:
        found = self._open.get(message.lookup)
        if found is None or found.child != child:
            return
        if message.variable is not None and message.variable.name != found.name:
            self._context.note("not_looked_up", child=child, name=found.name)
            return
        del self._open[message.lookup]
        found.then(message)

    def child_joined(self, child: str) -> None:
        for number, found in self._open.items():
            if found.child == child:
                self._say(number)

    def expire(self) -> None:
        for _, number in self._due.take_due():
            found = self._open.pop(number, None)
            if found is not None:
                late = DeadlinePassed(
                    f"broker {found.child} did not tell in time who publishes {found.name}",
                    hint="is that broker running, and does it reach its parent? Ask again then",
                )
                found.then(LookedUp(term=0, lookup=number, refused=refused(late)))

    def _say(self, number: int) -> None:
        found = self._open[number]
        self._context.send_child(
            found.child, Lookup(term=self._context.term, lookup=number, name=found.name)
        )
