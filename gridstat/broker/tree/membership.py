"""Who is there: children that join and leave, and the parent that this broker itself joins.

Terms fence both ways: a child of a lower term than was heard before is another process that does
not know yet that it is over, and so is such a parent.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.broker.tree.records import ChildHeard, Placed
from gridstat.model.errors import (
    GridStatError,
    LayoutError,
    NotAuthorised,
    StaleTerm,
    StorageFailed,
)
from gridstat.net.command.tree_messages import ABOVE_MAX, CloudsChanged, JoinTree, TreeJoined

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.tree.desk import TreeDesk
    from gridstat.broker.tree.leases import Leases
    from gridstat.broker.tree.records import TreeOperation
    from gridstat.net.command.tree_messages import TreeWord


EARLY_WORDS_MAX: Final = 100_000


class Membership:
    """`child_joined` and `parent_joined` are told once a session counts, `child_left` when not."""

    def __init__(self, desk: TreeDesk, leases: Leases) -> None:
        self._desk = desk
        self._leases = leases
        self._terms: dict[str, int] = {}
        self._sessions: set[str] = set()
        self._clouds_said: tuple[str, ...] = ()
        self._early: list[TreeWord] | None = None
        self._parent_session = 0
        """Which session with the parent this is: what an earlier one began is not of this one."""
        self.child_joined: Callable[[str], None] = _nothing
        self.child_left: Callable[[str], None] = _nothing
        self.clouds_changed: Callable[[str], None] = _nothing
        self.parent_joined: Callable[[], None] = _nothing_at_all
        self.moved: Callable[[], None] = _nothing_at_all
        self.heard: Callable[[TreeWord], object] = _nothing

    # Sessions.

    def connect(self, name: str) -> None:
        if name == self._desk.settings.parent:
            self._begin_parent_session()
            self.say_joining()
        elif name not in self._desk.state.families.children:
            self._close(name, self._no_child(name))
        else:
            self._sessions.add(name)

    def disconnect(self, name: str) -> None:
        if name == self._desk.settings.parent:
            self._begin_parent_session()
            return
        self._sessions.discard(name)
        self._terms.pop(name, None)
        if name in self._desk.joined:
            self._desk.joined.discard(name)
            self.child_left(name)

    def _begin_parent_session(self) -> None:
        self._desk.is_parent_joined = False
        self._early = None
        self._parent_session += 1

    def say_joining(self) -> None:
        families = self._desk.state.families
        self._clouds_said = families.clouds()
        self._desk.send(
            f"broker/{self._desk.settings.parent}",
            JoinTree(
                term=self._desk.term,
                clouds=self._clouds_said,
                height=families.height,
                numbers_used=self._leases.numbers_used,
                journal=self._desk.state.journal,
            ),
        )

    # Children.

    def join(self, name: str, message: JoinTree) -> None:
        families = self._desk.state.families
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
            kept = self._leases.joining(name, message.numbers_used)
        except GridStatError as error:
            self._close(name, error)
            return
        self._leases.hear_journal(name, message.journal)
        heard = ChildHeard(
            name=name, term=message.term, clouds=message.clouds, height=message.height
        )
        self._sessions.add(name)
        self._terms[name] = message.term
        is_new = (known.term, known.clouds, known.height) != (
            heard.term,
            heard.clouds,
            heard.height,
        )
        operations: list[TreeOperation] = [heard, *kept] if is_new or kept else []
        if not operations:
            self._joined(name, message.term, has_changed=False)
            return
        has_changed = (known.clouds, known.height) != (heard.clouds, heard.height)
        self._desk.decide(
            operations,
            partial(self._joined, name, message.term, has_changed=has_changed or bool(kept)),
            lambda reason: self._close(name, StorageFailed(f"not taken in: {reason}")),
        )

    def _joined(self, name: str, term: int, *, has_changed: bool) -> None:
        if name not in self._sessions or self._terms.get(name) != term:
            return  # The session is gone, or another has begun.
        self._desk.joined.add(name)
        self._place(name)
        if name not in self._desk.joined:
            return
        self._desk.note("child_joined", child=name, term=term)
        if has_changed and self._desk.is_parent_joined:
            self._say_clouds()
        self.child_joined(name)

    def change_clouds(self, name: str, message: CloudsChanged) -> None:
        families = self._desk.state.families
        known = families.children[name]
        try:
            families.check(name, message.clouds)
        except GridStatError as error:
            self._close(name, error)
            return
        heard = ChildHeard(name=name, term=known.term, clouds=message.clouds, height=known.height)

        def changed() -> None:
            self._say_clouds()
            self.clouds_changed(name)

        self._desk.decide(
            [heard],
            changed,
            lambda reason: self._close(name, StorageFailed(f"not taken in: {reason}")),
        )

    def dismiss(self, name: str) -> None:
        """It is no child any more."""
        self._sessions.discard(name)
        self._close(name, self._no_child(name))

    def send_away(self, name: str, error: GridStatError) -> None:
        """End the session of a child, or with the parent; it may begin again."""
        self._desk.note("sent_away", broker=name, reason=str(error.args[0]))
        if name == self._desk.settings.parent:
            self.leave_parent(error)
        else:
            self._close(name, error)

    def hears(self, name: str, term: int) -> bool:
        """Whether a word of a child counts: it has joined, with this term."""
        return name in self._desk.joined and self._terms.get(name) == term

    def _place(self, name: str) -> None:
        """Where a child stands; not before this broker knows where it stands itself."""
        placed = self._desk.state.placed
        if self._desk.has_parent and placed is None:
            above: tuple[str, ...] = (self._desk.settings.parent, self._desk.settings.name)
        else:
            above = (*(placed.above if placed is not None else ()), self._desk.settings.name)
        if len(above) > ABOVE_MAX:
            self._close(name, self._too_deep(name))
            return
        self._desk.send_child(
            name,
            TreeJoined(term=self._desk.term, depth=self._desk.state.depth + 1, above=above),
        )

    # The parent.

    def take_answer(self, message: TreeJoined) -> None:
        placed = self._desk.state.placed
        if placed is not None and message.term < placed.term:
            self.refuse_parent(message.term, placed.term)
            return
        wanted = Placed(term=message.term, depth=message.depth, above=message.above)
        before = self._standing()
        if placed == wanted and not self._desk.pending_count:
            self._take_place(self._parent_session, before)
            return
        self._early = []
        self._desk.decide(
            [] if placed == wanted else [wanted],
            partial(self._take_place, self._parent_session, before),
            lambda reason: self.leave_parent(StorageFailed(f"not joined: {reason}")),
        )

    def keeps(self, message: TreeWord) -> bool:
        """Keep a word that comes while our place is being made durable; it is said only once."""
        if self._early is None or len(self._early) >= EARLY_WORDS_MAX:
            return False
        self._early.append(message)
        return True

    def obeys(self, term: int) -> bool:
        placed = self._desk.state.placed
        if placed is None or term >= placed.term:
            return self._desk.is_parent_joined
        self.refuse_parent(term, placed.term)
        return False

    def refuse_parent(self, term: int, known: int) -> None:
        self.leave_parent(self._stale(self._desk.settings.parent, term, known))

    def leave_parent(self, error: GridStatError) -> None:
        self._desk.is_parent_joined = False
        self._early = None
        self._desk.close(f"broker/{self._desk.settings.parent}", error)

    def _standing(self) -> tuple[int, tuple[str, ...], int] | None:
        """All that children go by; channels get the numbers of a depth when nothing is held."""
        placed = self._desk.state.placed
        if placed is None:
            return None
        return placed.depth, placed.above, self._desk.state.channels.depth

    def _take_place(self, session: int, before: tuple[int, tuple[str, ...], int] | None) -> None:
        is_present = session == self._parent_session
        is_first = is_present and not self._desk.is_parent_joined
        if is_present:
            self._desk.is_parent_joined = True
        if self._standing() != before:
            for name in sorted(self._desk.joined):
                self._place(name)
            self.moved()
        if not is_present:
            return  # The parent has not taken us in yet in the session that there is now.
        if is_first:
            self._desk.note("tree_joined", parent=self._desk.settings.parent)
            if self._clouds_said != self._desk.state.families.clouds():
                self._say_clouds()  # A child has joined while the parent's answer was on its way.
            self.parent_joined()
        early, self._early = self._early or [], None
        for message in early:
            self.heard(message)

    def _say_clouds(self) -> None:
        self._desk.send_parent(
            CloudsChanged(term=self._desk.term, clouds=self._desk.state.families.clouds())
        )

    # Small things.

    def _close(self, name: str, error: GridStatError) -> None:
        self._terms.pop(name, None)
        if name in self._desk.joined:
            self._desk.joined.discard(name)
            self.child_left(name)
        self._desk.close(f"broker/{name}", error)

    def _no_child(self, name: str) -> NotAuthorised:
        return NotAuthorised(
            f"rule tree: {name} is not among the children of {self._desk.settings.name}",
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
        return StaleTerm(f"broker {name} speaks for term {term}, and {known} was heard before")


def _nothing(_: object) -> None:
    """Nobody listens yet."""


def _nothing_at_all() -> None:
    """Nobody listens yet."""
