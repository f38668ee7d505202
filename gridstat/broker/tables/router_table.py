"""One router's table as its broker wants it, what the router has not been told, and its session.

Changes gather here until they are flushed as one `ChangeTable`; the router's `TableChanged` then
confirms all up to a number. A router whose digest differs from what it was sent gets the whole
table again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from gridstat.net.command.order_table import OrderTable
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    PathOrder,
    SourceOrder,
    VariableOrder,
)
from gridstat.net.command.session_messages import MANY_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.broker.tables.confirmation import Confirmation

UNSEEN_MAX: Final = 1_024
"""Confirmations that wait for an absent router before those that are over are thrown out."""
REFUSALS_MAX: Final = 4
"""Refusals of a table after which its router counts as one that cannot be used."""
UNCONFIRMED_MAX: Final = 8
"""Changes on their way to one router; more gather meanwhile and go as one."""

Order = TypeVar("Order", ChannelOrder, SourceOrder, VariableOrder, PathOrder)


class RouterTable:
    """`wanted` is the truth; a key in one of the `_changed` sets has not been sent as it stands.

    Without a session nothing is owed: the digests are compared when the router comes back.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.wanted = OrderTable()
        self.is_connected = False
        self.sent_number = 0
        self.confirmed_number = 0
        self.confirmed_digest = 0
        self._anew_number = 0
        """Of the table that the router said it holds, when it last said so."""
        self.refusal_count = 0
        self.refusal = ""
        """Why the router has refused its table, until it takes one."""
        self.refused: dict[int, str] = {}
        """Why the router's core cannot hold the rows of some variables."""
        self._changed_channels: set[int] = set()
        self._changed_sources: set[int] = set()
        self._changed_variables: set[int] = set()
        self._changed_paths: set[int] = set()
        self._digests: deque[tuple[int, int]] = deque()
        self._unsent: list[Confirmation] = []
        self._unconfirmed: deque[tuple[int, Confirmation]] = deque()
        self._unseen: list[Confirmation] = []

    # Changes of what is wanted.

    def put_channel(self, order: ChannelOrder) -> bool:
        return self._put(self.wanted.channels, self._changed_channels, order.channel_id, order)

    def put_source(self, order: SourceOrder) -> bool:
        return self._put(self.wanted.sources, self._changed_sources, order.channel_id, order)

    def put_variable(self, order: VariableOrder) -> bool:
        return self._put(self.wanted.variables, self._changed_variables, order.variable_id, order)

    def put_path(self, order: PathOrder) -> bool:
        return self._put(self.wanted.paths, self._changed_paths, order.path_id, order)

    def remove_channel(self, channel_id: int) -> bool:
        return self._remove(self.wanted.channels, self._changed_channels, channel_id)

    def remove_source(self, channel_id: int) -> bool:
        return self._remove(self.wanted.sources, self._changed_sources, channel_id)

    def remove_variable(self, variable_id: int) -> bool:
        return self._remove(self.wanted.variables, self._changed_variables, variable_id)

    def remove_path(self, path_id: int) -> bool:
        return self._remove(self.wanted.paths, self._changed_paths, path_id)

    # What goes to the router.

    @property
    def is_changed(self) -> bool:
        return bool(
            self._changed_paths
            or self._changed_variables
            or self._changed_channels
            or self._changed_sources
        )

    @property
    def is_in_step(self) -> bool:
        """Whether the router holds exactly what is wanted, as far as it has said."""
        return (
            self.is_connected
            and not self.is_changed
            and self.confirmed_number == self.sent_number
            and not self.refusal_count
            and not self.refused
        )

    @property
    def is_refusing(self) -> bool:
        """Whether it has refused its table so often that nobody should wait for it."""
        return self.refusal_count >= REFUSALS_MAX

    @property
    def may_send(self) -> bool:
        return self.is_connected and self.sent_number - self.confirmed_number < UNCONFIRMED_MAX

    def begin_session(self, *, term: int, digest: int) -> list[ChangeTable]:
        """The router is back with this digest; the changes that it needs, if any."""
        self.is_connected = True
        self._accept()
        self.confirmed_digest = digest
        self._begin_numbers()
        if digest == self.wanted.digest:
            self.refused = {}
            self._forget_changes()
            self._see_all()
            return []
        return self.whole(term=term)

    def end_session(self) -> None:
        """The session is gone; what was not confirmed will be seen in the next digest."""
        self.is_connected = False
        lost = [*self._unsent, *(waiting for _, waiting in self._unconfirmed)]
        self._unsent.clear()
        self._unconfirmed.clear()
        self._digests.clear()
        self._unseen.extend(waiting for waiting in lost if not waiting.is_over)
        for waiting in lost:
            waiting.lose(self.name)

    def whole(self, *, term: int) -> list[ChangeTable]:
        """The whole table, as changes that begin anew; all that waits is confirmed with it."""
        self._forget_changes()
        self._anew_number = self.sent_number + 1
        changes = list(self.wanted.whole(term=term, number=self._anew_number))
        self._sent(changes[-1].number)
        self._unconfirmed.extend((self.sent_number, waiting) for waiting in self._unseen)
        for waiting in self._unseen:
            waiting.absent.discard(self.name)
            waiting.missing.add(self.name)
        self._unseen.clear()
        return changes

    def flush(self, *, term: int) -> list[ChangeTable]:
        """What has changed since the last flush: one bounded change, or the few that it takes."""
        if not (self.is_changed and self.may_send):
            return []
        changes = list(_bounded(self._as_one(term)))
        self._forget_changes()
        self._sent(changes[-1].number)
        return changes

    # What comes back.

    def refuse(self, reason: str) -> None:
        """The router does not take its table as it stands."""
        self.refusal_count += 1
        self.refusal = reason

    def confirm(self, number: int, digest: int, refused: dict[int, str] | None = None) -> bool:
        """Take a confirmation; False if the router's table is not what it was sent.

        Then nobody is told that it is, before the whole table has been confirmed. A word about
        what was sent before a whole table says nothing any more.
        """
        before = max(self.confirmed_number, self._anew_number - 1)
        if not before < number <= self.sent_number:
            return True
        self.confirmed_number = number
        self.confirmed_digest = digest
        self.refused = refused or {}
        expected: int | None = None
        while self._digests and self._digests[0][0] <= number:
            sent_number, sent_digest = self._digests.popleft()
            expected = sent_digest if sent_number == number else None
        if expected is None:
            return True  # A piece of a change: the last of them counts.
        if expected != digest:
            return False
        self._accept()
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            self._unconfirmed.popleft()[1].confirm(self.name)
        return True

    def await_confirmation(self, waiting: Confirmation) -> None:
        """Notify `waiting` once the router holds all that is wanted at this moment."""
        if not self.is_connected:
            waiting.absent.add(self.name)
            self._unseen.append(waiting)
            if len(self._unseen) > UNSEEN_MAX:
                self._unseen = [found for found in self._unseen if not found.is_over]
        elif self.is_changed:
            waiting.missing.add(self.name)
            self._unsent.append(waiting)
        elif self.confirmed_number < self.sent_number:
            waiting.missing.add(self.name)
            self._unconfirmed.append((self.sent_number, waiting))

    def _accept(self) -> None:
        self.refusal_count = 0
        self.refusal = ""

    def _begin_numbers(self) -> None:
        self.sent_number = 0
        self.confirmed_number = 0
        self._anew_number = 0
        self._digests.clear()

    def _see_all(self) -> None:
        seen, self._unseen = self._unseen, []
        for waiting in seen:
            waiting.confirm(self.name)

    def _sent(self, number: int) -> None:
        self.sent_number = number
        self._digests.append((number, self.wanted.digest))
        self._unconfirmed.extend((number, waiting) for waiting in self._unsent)
        self._unsent.clear()

    def _forget_changes(self) -> None:
        self._changed_channels.clear()
        self._changed_sources.clear()
        self._changed_variables.clear()
        self._changed_paths.clear()

    def _put(self, held: dict[int, Order], changed: set[int], key: int, order: Order) -> bool:
        if held.get(key) == order:
            return False
        self.wanted.put(held, key, order)
        changed.add(key)
        return True

    def _remove(self, held: dict[int, Order], changed: set[int], key: int) -> bool:
        if key not in held:
            return False
        self.wanted.remove(held, key)
        changed.add(key)
        return True

    def _as_one(self, term: int) -> ChangeTable:
        """All that has changed, as `ChangeTable` does it in one go."""
        torn_down, paths = _split(self._changed_paths, self.wanted.paths)
        dropped, variables = _split(self._changed_variables, self.wanted.variables)
        closed_channels, channels = _split(self._changed_channels, self.wanted.channels)
        closed_sources, sources = _split(self._changed_sources, self.wanted.sources)
        return ChangeTable(
            term=term,
            number=self.sent_number + 1,
            torn_down=torn_down,
            dropped=dropped,
            closed_channels=closed_channels,
            closed_sources=closed_sources,
            channels=channels,
            sources=sources,
            variables=variables,
            paths=paths,
        )


KINDS: Final = (
    "torn_down",
    "dropped",
    "closed_channels",
    "closed_sources",
    "channels",
    "sources",
    "variables",
    "paths",
)
"""In the order in which a change is done."""


def _bounded(change: ChangeTable) -> Iterator[ChangeTable]:
    """The change itself, or the same by slices, in the order in which it would be done."""
    if all(len(getattr(change, kind)) <= MANY_MAX for kind in KINDS):
        yield change
        return
    number = change.number
    for kind in KINDS:
        orders = getattr(change, kind)
        for at in range(0, len(orders), MANY_MAX):
            piece = ChangeTable(term=change.term, number=number)
            yield msgspec.structs.replace(piece, **{kind: orders[at : at + MANY_MAX]})
            number += 1


def _split(changed: set[int], held: dict[int, Order]) -> tuple[tuple[int, ...], tuple[Order, ...]]:
    """The changed keys that are gone, and the orders of those that are not."""
    keys = sorted(changed)
    gone = tuple([key for key in keys if key not in held])
    return gone, tuple([held[key] for key in keys if key in held])
