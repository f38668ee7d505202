"""Look-ups of publications: ask the child above the publisher's cloud who publishes a variable.

Messages. `Lookup` goes down from broker to broker to the publisher's cloud; `LookedUp` returns the
variable, or the reason why there is none, with the distances from the publisher to the borders.

Timeout. A look-up that gets no answer in time ends with `DeadlinePassed`. A child that joins gets
its open look-ups again.

Restart. Look-ups are not durable: the component that needs one starts it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from msgspec import structs

from gridstat.broker.requests.outcomes import refused
from gridstat.broker.tree.deadlines import Deadlines
from gridstat.broker.tree.tree_capability import FromChild, TreeCapability
from gridstat.model.errors import DeadlinePassed, NoSuchVariable
from gridstat.net.command.segment_messages import LookedUp, Lookup

if TYPE_CHECKING:
    from gridstat.broker.tree.border_graph import BorderGraph
    from gridstat.broker.tree.tree_context import TreeContext

LOOKUP_TIMER: Final = "lookup"


RequestT = TypeVar("RequestT")
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)


class LookupOwner(Protocol[RequestT_contra]):
    """Component that continues a request with the answer to its look-up."""

    def looked_up(self, request: RequestT_contra, found: LookedUp) -> None: ...


@dataclass(slots=True)
class _Open(Generic[RequestT]):
    """Open look-up, and the request that waits for its answer."""

    child: str
    name: str
    reader: str
    is_flood: bool
    until_ns: int
    owner: LookupOwner[RequestT]
    request: RequestT

    def end(self, found: LookedUp) -> None:
        self.owner.looked_up(self.request, found)


class PublicationLookups:
    """Open look-ups; each one gets one answer, from the child or at its deadline.

    Only the publisher's cloud knows that a variable does not exist. A broker that does not know the
    cloud may have lost its journal, so it replies as if the deadline had passed, and contracts of
    the variable are kept.
    """

    def __init__(self, context: TreeContext, graph: BorderGraph) -> None:
        self._context = context
        self._graph = graph
        self._open: dict[int, _Open[Any]] = {}
        self._due: Deadlines[int] = Deadlines(context, LOOKUP_TIMER)

    def look_up(
        self,
        name: str,
        owner: LookupOwner[RequestT],
        request: RequestT,
        *,
        reader: str = "",
        is_flood: bool = False,
    ) -> None:
        """Search a variable for an end-point, its reader, or for an operator who floods it."""
        child = self._context.state.families.child_at(name)
        if child is None:
            absent = DeadlinePassed(
                self._no_such_cloud(name),
                hint="is that cloud's broker running, and does it reach its parent? Try again then",
            )
            owner.looked_up(request, LookedUp(term=0, lookup=0, refused=refused(absent)))
            return
        number = self._context.next_request()
        # Every level of the tree below this broker may need as long as one round trip.
        within_ns = self._context.settings.reserve_within_ns * self._context.state.families.height
        until_ns = self._context.now_ns + within_ns
        self._open[number] = _Open(child, name, reader, is_flood, until_ns, owner, request)
        self._due.add(until_ns, number)
        self._send(number)

    def capability(self) -> TreeCapability:
        """Return the registration of look-ups."""
        return TreeCapability(
            name="look-ups",
            child_messages={LookedUp: FromChild(self.receive)},
            parent_messages={Lookup: self.answer_parent},
            timers={LOOKUP_TIMER: self.expire},
            child_joined=self.child_joined,
        )

    def look_up_for_operator(
        self, name: str, owner: LookupOwner[RequestT], request: RequestT
    ) -> None:
        """Search a name that an operator has typed, and may have mistyped."""
        if self._context.state.families.child_at(name) is None:
            unknown = NoSuchVariable(self._no_such_cloud(name))
            owner.looked_up(request, LookedUp(term=0, lookup=0, refused=refused(unknown)))
            return
        self.look_up(name, owner, request, is_flood=True)

    def _no_such_cloud(self, name: str) -> str:
        return f"no cloud {name.partition('/')[0]} lies below {self._context.settings.name}"

    def answer_parent(self, request: Lookup) -> None:
        """Reply to a Lookup of the parent, with distances from the publisher to its borders."""
        self.look_up(request.name, self, request, reader=request.reader, is_flood=request.is_flood)

    def looked_up(self, request: Lookup, found: LookedUp) -> None:
        """Send the answer to a look-up of the parent."""
        child = self._context.state.families.child_at(request.name) or ""
        starts = self._graph.starts_above(child, found.starts)
        self._context.send_parent(
            structs.replace(found, term=self._context.term, lookup=request.lookup, starts=starts)
        )

    def receive(self, child: str, message: LookedUp) -> None:
        found = self._open.get(message.lookup)
        if found is None or found.child != child:
            return
        if message.variable is not None and message.variable.name != found.name:
            # A faulty child; the look-up stays open until its deadline.
            self._context.note("not_looked_up", child=child, name=found.name)
            return
        del self._open[message.lookup]
        found.end(message)

    def child_joined(self, child: str) -> None:
        for number, found in self._open.items():
            if found.child == child:
                self._send(number)

    def expire(self) -> None:
        for _, number in self._due.take_due():
            found = self._open.pop(number, None)
            if found is not None:
                late = DeadlinePassed(
                    f"broker {found.child} did not report in time who publishes {found.name}",
                    hint="is that broker running, and does it reach its parent? Try again then",
                )
                found.end(LookedUp(term=0, lookup=number, refused=refused(late)))

    def _send(self, number: int) -> None:
        found = self._open[number]
        self._context.send_child(
            found.child,
            Lookup(
                term=self._context.term,
                lookup=number,
                name=found.name,
                reader=found.reader,
                is_flood=found.is_flood,
            ),
        )
