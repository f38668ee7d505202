"""Sessions with the children, which join this broker, and with the parent, which this one joins.

States of the session with the parent (`ParentSessionState`):

    ABSENT --connected; send JoinTree--> JOINING
    JOINING --TreeJoined, and the place is new--> PLACING --place durable--> JOINED
    JOINING --TreeJoined, and the place is known--> JOINED
    JOINED --TreeJoined with another place--> MOVING --place durable--> JOINED
    any state --disconnected, stale term, or the journal fails--> ABSENT

In PLACING and MOVING every other message of the parent is kept, and handled in its order once the
place is durable, because the parent sends each message only once in a session. In ABSENT and
JOINING such messages are dropped: the parent sends them again after a join.

A child sends `JoinTree`. Its term, clouds and height are made durable, then the child counts as
joined: it gets `TreeJoined` with its place, and every component sends what the child may have
missed. A child with children of its own waits until this broker knows its own place.

Terms fence both ways: a child or a parent with a lower term than was recorded is a process that
has been replaced, and its session ends.

Timeout and restart: this module sets no timer. A restarted broker has a higher term, every session
begins again, and whatever the earlier session had begun no longer counts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from msgspec import structs

from gridstat.broker.tree import channel_prefixes
from gridstat.broker.tree.tree_context import ParentSessionState
from gridstat.broker.tree.tree_operations import ChildReported, Placed
from gridstat.model.errors import (
    GridStatError,
    LayoutError,
    NotAuthorised,
    StaleTerm,
    StorageFailed,
)
from gridstat.net.command.tree_messages import ABOVE_MAX, CloudsChanged, JoinTree, TreeJoined

if TYPE_CHECKING:
    from gridstat.broker.tree.identifier_leases import IdentifierLeases
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import TreeOperation, Unplaced
    from gridstat.net.command.tree_messages import TreeMessageBase


KEPT_MESSAGES_MAX: Final = 100_000
"""Messages of the parent that are kept while a place is being written."""

Standing: TypeAlias = tuple[Placed | None, int]
"""Place of this broker, and the prefix of its channel numbers."""


class MembershipListener(Protocol):
    """Notified of children and of the parent, once the session concerned counts."""

    def child_joined(self, child: str) -> None: ...

    def child_left(self, child: str) -> None: ...

    def clouds_changed(self, child: str) -> None: ...

    def parent_joined(self) -> None: ...

    def parent_replaced(self) -> None:
        """Release what the previous parent had reserved or committed."""

    def place_changed(self) -> None: ...


class ParentMessageHandler(Protocol):
    """Dispatches messages of the parent that were kept while this broker's place was written."""

    def handle_parent_message(self, message: TreeMessageBase) -> None: ...


class Membership:
    """Sessions with the children and with the parent."""

    def __init__(
        self,
        context: TreeContext,
        leases: IdentifierLeases,
        listener: MembershipListener,
        handler: ParentMessageHandler,
    ) -> None:
        self._context = context
        self._leases = leases
        self._listener = listener
        self._handler = handler
        self._terms: dict[str, int] = {}
        """Terms of the children that have sent JoinTree in their present session."""
        self._waiting_for_place: dict[str, int] = {}
        """Terms of children that join once this broker knows its own place."""
        self._clouds_sent: tuple[str, ...] = ()
        self._kept: list[TreeMessageBase] = []
        """Messages of the parent to handle once the place is durable."""
        self._places_unwritten = 0
        """Places received from the parent in this session that are not durable yet."""
        self._parent_session = 0
        """Number of the session with the parent, by which writes of earlier ones are recognised."""

    # Sessions.

    def connect(self, name: str) -> None:
        if name == self._context.settings.parent:
            self._reset_parent_session(ParentSessionState.JOINING)
            self._send_join()
        elif name not in self._context.state.families.children:
            self._close(name, self._no_child(name))

    def disconnect(self, name: str) -> None:
        if name == self._context.settings.parent:
            self._reset_parent_session(ParentSessionState.ABSENT)
            return
        self._terms.pop(name, None)
        if name in self._context.joined:
            self._context.joined.discard(name)
            self._listener.child_left(name)

    def _reset_parent_session(self, state: ParentSessionState) -> None:
        self._context.parent_state = state
        self._kept = []
        self._places_unwritten = 0
        self._parent_session += 1

    def _send_join(self) -> None:
        families = self._context.state.families
        self._clouds_sent = families.clouds()
        self._context.send(
            f"broker/{self._context.settings.parent}",
            JoinTree(
                term=self._context.term,
                clouds=self._clouds_sent,
                height=families.height,
                numbers_used=self._leases.numbers_used,
                journal=self._context.state.journal,
                prefixes=channel_prefixes.in_scope(self._context.state),
            ),
        )

    # Children.

    def join(self, name: str, message: JoinTree) -> None:
        families = self._context.state.families
        known = families.children.get(name)
        if known is None:
            self._close(name, self._no_child(name))
            return
        if message.term < known.term:
            self._close(name, self._stale(name, message.term, known.term))
            return
        try:
            families.check(name, message.clouds)
            if not message.height and message.clouds != (name,):
                raise LayoutError(f"{name} is a cloud's broker, and may have no cloud but its own")
            kept = self._leases.identifiers_kept_by(name, message.numbers_used)
        except GridStatError as error:
            self._close(name, error)
            return
        self._leases.record_journal(name, message.journal)
        reported = ChildReported(
            name=name,
            term=message.term,
            clouds=message.clouds,
            height=message.height,
            prefixes=message.prefixes,
        )
        self._terms[name] = message.term
        has_changed = (known.clouds, known.height) != (reported.clouds, reported.height)
        is_new = has_changed or (known.term, known.prefixes) != (reported.term, reported.prefixes)
        renumbered = self._other_prefix(reported.prefixes)
        operations: list[TreeOperation] = [reported] if is_new else []
        operations += [*kept, *renumbered]
        if not operations:
            self._joined(name, message.term, has_changed=False)
            return
        # The child joins once its report is durable, since the parent gets its clouds then.
        self._context.decide(
            operations,
            partial(
                self._join_written,
                name,
                message.term,
                has_changed=has_changed or bool(kept),
                is_renumbered=bool(renumbered),
            ),
            partial(self._report_not_written, name),
        )

    def _join_written(
        self, name: str, term: int, *, has_changed: bool, is_renumbered: bool
    ) -> None:
        if is_renumbered:
            self._send_places()
        self._joined(name, term, has_changed=has_changed)

    def _report_not_written(self, name: str, reason: str) -> None:
        self._close(name, StorageFailed(f"its report could not be written: {reason}"))

    def _other_prefix(self, taken: tuple[int, ...]) -> list[Placed | Unplaced]:
        """Return an operation that gives up a prefix which a child uses too, if possible."""
        state = self._context.state
        own = state.channels.prefix
        if own not in taken or state.is_holding or not self._context.is_placed:
            return []
        above = set(channel_prefixes.taken_for_children(state)) - {own}
        below = state.families.prefixes() | set(taken)
        prefix = channel_prefixes.choose(state, above, below, depth=state.depth)
        return [] if prefix == own else [state.standing(prefix)]

    def _joined(self, name: str, term: int, *, has_changed: bool) -> None:
        if self._terms.get(name) != term:
            return  # The session has ended, or another has begun.
        if not self._context.is_placed and self._context.state.families.children[name].height:
            self._waiting_for_place[name] = term
            return  # A child may hold segments by its place, which could then not change.
        self._context.joined.add(name)
        self._send_place(name)
        if name not in self._context.joined:
            return
        self._context.note("child_joined", child=name, term=term)
        if has_changed:
            self._send_clouds()
        self._listener.child_joined(name)

    def change_clouds(self, name: str, message: CloudsChanged) -> None:
        families = self._context.state.families
        known = families.children[name]
        try:
            families.check(name, message.clouds)
        except GridStatError as error:
            self._close(name, error)
            return
        reported = ChildReported(
            name=name,
            term=known.term,
            clouds=message.clouds,
            height=known.height,
            prefixes=known.prefixes,
        )
        self._context.decide(
            [reported],
            partial(self._clouds_changed, name),
            partial(self._report_not_written, name),
        )

    def _clouds_changed(self, name: str) -> None:
        self._send_clouds()
        self._listener.clouds_changed(name)

    def dismiss(self, name: str) -> None:
        """End the session of a broker that is no longer a child; its clouds may join elsewhere."""
        self._close(name, self._no_child(name))
        self._send_clouds()

    def end_session(self, name: str, error: GridStatError) -> None:
        """End the session of a child, or with the parent; the peer may connect again."""
        self._context.note("sent_away", broker=name, reason=str(error.args[0]))
        if name == self._context.settings.parent:
            self._leave_parent(error)
        else:
            self._close(name, error)

    def accepts(self, name: str, term: int) -> bool:
        """Return whether a child has joined with this term, so that its messages count."""
        return name in self._context.joined and self._terms.get(name) == term

    def _send_place(self, name: str) -> None:
        """Send a child its place in the tree; end its session if it would be too deep."""
        placed = self._context.state.placed
        if self._context.has_parent and placed is None:
            above: tuple[str, ...] = (self._context.settings.parent, self._context.settings.name)
        else:
            above = (*(placed.above if placed is not None else ()), self._context.settings.name)
        if len(above) > ABOVE_MAX:
            self._close(name, self._too_deep(name))
            return
        self._context.send_child(
            name,
            TreeJoined(
                term=self._context.term,
                depth=self._context.state.depth + 1,
                above=above,
                prefixes=channel_prefixes.taken_for_children(self._context.state),
            ),
        )

    def _send_places(self) -> None:
        """Send every child its place after the own place or prefix has changed."""
        for name in sorted(self._context.joined):
            self._send_place(name)
        self._listener.place_changed()

    # The parent.

    def receive_place(self, message: TreeJoined) -> None:
        known = self._parent_term()
        if message.term < known:
            self._refuse_parent(message.term, known)
            return
        try:
            wanted = self._wanted(message)
        except GridStatError as error:
            self.end_session(self._context.settings.parent, error)
            return
        before = self._standing()
        is_known = before == (structs.replace(wanted, numbered_at=-1), wanted.numbered_at)
        self._places_unwritten += 1
        if is_known and not self._context.pending_count:
            # Nothing has to be written, and no earlier place is on its way to the disk.
            self._place_written(self._parent_session, before)
            return
        match self._context.parent_state:
            case ParentSessionState.ABSENT | ParentSessionState.JOINING:
                self._context.parent_state = ParentSessionState.PLACING
            case ParentSessionState.JOINED:
                self._context.parent_state = ParentSessionState.MOVING
            case ParentSessionState.PLACING | ParentSessionState.MOVING:
                pass  # The places become durable one after the other.
        is_other = before[0] is not None and not before[0].is_below(wanted.parent)
        released = self._context.state.release_parent_holdings() if is_other else []
        self._context.decide(
            [] if is_known else [wanted, *released],
            partial(self._place_written, self._parent_session, before, is_other=bool(released)),
            partial(self._place_not_written, self._parent_session),
        )

    def _place_not_written(self, session: int, reason: str) -> None:
        """End the session that sent the place; the parent sends the place again in the next."""
        if session == self._parent_session:
            self._leave_parent(StorageFailed(f"the place could not be written: {reason}"))

    def _wanted(self, message: TreeJoined) -> Placed:
        """Return the place that the parent has sent; raise if this broker cannot take it."""
        state, above = self._context.state, channel_prefixes.taken_above(message)
        self._leases.check_tree(message.above)
        below = state.families.prefixes()
        return Placed(
            term=message.term,
            depth=message.depth,
            above=message.above,
            numbered_at=channel_prefixes.choose(state, above, below, depth=message.depth),
            prefixes=message.prefixes,
            parent=self._context.settings.parent,
        )

    def _parent_term(self) -> int:
        """Return the highest recorded term of the present parent, 0 if none is recorded."""
        placed = self._context.state.placed
        is_its_own = placed is not None and placed.is_below(self._context.settings.parent)
        return placed.term if placed is not None and is_its_own else 0

    def keeps(self, message: TreeMessageBase) -> bool:
        """Keep a message that arrives while a place is being written; return whether it is kept."""
        is_placing = self._context.parent_state in {
            ParentSessionState.PLACING,
            ParentSessionState.MOVING,
        }
        if not is_placing or len(self._kept) >= KEPT_MESSAGES_MAX:
            return False
        self._kept.append(message)
        return True

    def obeys(self, term: int) -> bool:
        """Return whether a message of the parent with this term counts; end a stale session."""
        known = self._parent_term()
        if term >= known:
            return self._context.is_parent_joined
        self._refuse_parent(term, known)
        return False

    def _refuse_parent(self, term: int, known: int) -> None:
        self._leave_parent(self._stale(self._context.settings.parent, term, known))

    def _leave_parent(self, error: GridStatError) -> None:
        self._reset_parent_session(ParentSessionState.ABSENT)
        self._context.close(f"broker/{self._context.settings.parent}", error)

    def _standing(self) -> Standing:
        """Return everything that the places of children depend on, and the parent's term."""
        return self._context.state.placed, self._context.state.channels.prefix

    def _place_written(self, session: int, before: Standing, *, is_other: bool = False) -> None:
        """Continue after a place is durable, even if the session that sent it has ended."""
        is_present = session == self._parent_session
        is_first = is_present and not self._context.is_parent_joined
        if is_present:
            self._places_unwritten -= 1
            is_last = not self._places_unwritten
            self._context.parent_state = (
                ParentSessionState.JOINED if is_last else ParentSessionState.MOVING
            )
        if is_other:
            self._listener.parent_replaced()
        if not _is_same_place(self._standing(), before):
            self._send_places()
        waiting, self._waiting_for_place = self._waiting_for_place, {}
        for name, term in waiting.items():
            self._joined(name, term, has_changed=False)
        if not is_present:
            return  # The parent has not answered yet in the present session.
        if is_first:
            self._context.note("tree_joined", parent=self._context.settings.parent)
            if self._clouds_sent != self._context.state.families.clouds():
                self._send_clouds()  # A child has joined since JoinTree was sent.
            self._listener.parent_joined()
        if self._places_unwritten:
            return  # Messages from before and after the next place keep their order.
        kept, self._kept = self._kept, []
        for message in kept:
            self._handler.handle_parent_message(message)

    def _send_clouds(self) -> None:
        self._context.send_parent(
            CloudsChanged(term=self._context.term, clouds=self._context.state.families.clouds())
        )

    # Helpers.

    def _close(self, name: str, error: GridStatError) -> None:
        self._terms.pop(name, None)
        if name in self._context.joined:
            self._context.joined.discard(name)
            self._listener.child_left(name)
        self._context.close(f"broker/{name}", error)

    def _no_child(self, name: str) -> NotAuthorised:
        return NotAuthorised(
            f"rule tree: {name} is not among the children of {self._context.settings.name}",
            hint="name it in the broker's file, or add it",
        )

    @staticmethod
    def _too_deep(name: str) -> LayoutError:
        return LayoutError(
            f"{name} would have more than {ABOVE_MAX} brokers above it",
            hint="let brokers near the root have more children each",
        )

    @staticmethod
    def _stale(name: str, term: int, known: int) -> StaleTerm:
        return StaleTerm(f"broker {name} has sent term {term}, although it sent {known} before")


def _is_same_place(one: Standing, other: Standing) -> bool:
    """Return whether children would get the same places."""
    (placed, prefix), (before, prefix_before) = one, other
    if placed is None or before is None or prefix != prefix_before:
        return False
    return placed == structs.replace(before, term=placed.term)
