"""Table of one router as its broker wants it, and the protocol that brings the router in sync.

States of a router: without a session; in sync; with changes that are not sent yet; with sent
changes that are not confirmed yet; refusing its table.

Messages to the router: `ChangeTable`, numbered from 1 in each session. It holds one change, a slice
of a large change, or a slice of the whole table. Changes collect here until `flush` sends them
together, and at most UNCONFIRMED_MAX changes are on their way.

Messages from the router:
- Report with a digest at the begin of a session. An equal digest confirms everything; otherwise the
  router gets its whole table.
- `TableChanged` confirms all changes up to its number, with the digest of the router's table and
  the variables whose rows its core cannot hold. A digest that differs from the expected one means
  that the tables have diverged: the router gets its whole table, and only that confirms anything.
- `TableRefused` means that the router keeps its old table. `router_sessions.py` sends the whole
  table again, at growing intervals.

Timeout: a `Confirmation` ends at its own deadline; the changes stay and count as unconfirmed.
Restart of the broker: the table is built anew from the journal, and the digest in the router's
report shows whether anything has to be sent. Restart of the router: its report shows the same.
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

WAITING_FOR_SESSION_MAX: Final = 1_024
"""Number of confirmations waiting for an absent router at which the ended ones are removed."""
REFUSALS_MAX: Final = 4
"""Number of refusals of a table after which its router counts as unusable."""
UNCONFIRMED_MAX: Final = 8
"""Limit of changes on their way to one router; later changes are combined into one."""

Order = TypeVar("Order", ChannelOrder, SourceOrder, VariableOrder, PathOrder)


class RouterTable:
    """Wanted table of a router; keys in the `_changed` sets are not sent yet in their present form.

    Without a session nothing is sent: the digests are compared when the router returns.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.wanted = OrderTable()
        self.is_connected = False
        self.sent_number = 0
        self.confirmed_number = 0
        self.confirmed_digest = 0
        self._whole_table_number = 0
        """Number of the first change of the last whole table; earlier confirmations are ignored."""
        self.refusal_count = 0
        self.refusal = ""
        """Reason of the router's last refusal, until it accepts a table."""
        self.refused: dict[int, str] = {}
        """Reasons, by variable, why the router's core cannot hold its row."""
        self._changed_channels: set[int] = set()
        self._changed_sources: set[int] = set()
        self._changed_variables: set[int] = set()
        self._changed_paths: set[int] = set()
        self._digests: deque[tuple[int, int]] = deque()
        self._unsent: list[Confirmation] = []
        self._unconfirmed: deque[tuple[int, Confirmation]] = deque()
        self._waiting_for_session: list[Confirmation] = []
        self._withheld: dict[int, dict[int, PathOrder]] = {}
        """Paths over channels that the router cannot open, by channel."""

    # Changes of what is wanted.

    def put_channel(self, order: ChannelOrder) -> bool:
        withheld = self._withheld.pop(order.channel_id, {})
        for path in withheld.values():
            self.put_path(path)
        return self._put(self.wanted.channels, self._changed_channels, order.channel_id, order)

    def put_source(self, order: SourceOrder) -> bool:
        return self._put(self.wanted.sources, self._changed_sources, order.channel_id, order)

    def put_variable(self, order: VariableOrder) -> bool:
        return self._put(self.wanted.variables, self._changed_variables, order.variable_id, order)

    def put_path(self, order: PathOrder) -> bool:
        if order.channel_id in self._withheld:
            self._withheld[order.channel_id][order.path_id] = order
            return self._remove(self.wanted.paths, self._changed_paths, order.path_id)
        return self._put(self.wanted.paths, self._changed_paths, order.path_id, order)

    def withhold_channel(self, channel_id: int) -> bool:
        """Order neither the channel nor any path over it, until the channel is ordered again."""
        paths = [each for each in self.wanted.paths.values() if each.channel_id == channel_id]
        withheld = self._withheld.setdefault(channel_id, {})
        for path in paths:
            withheld[path.path_id] = path
            self.remove_path_order(path.path_id)
        is_removed = self._remove(self.wanted.channels, self._changed_channels, channel_id)
        return is_removed or bool(paths)

    def remove_channel(self, channel_id: int) -> bool:
        """Remove a channel for good; nothing that was withheld comes back."""
        self._withheld.pop(channel_id, None)
        return self._remove(self.wanted.channels, self._changed_channels, channel_id)

    def remove_source(self, channel_id: int) -> bool:
        return self._remove(self.wanted.sources, self._changed_sources, channel_id)

    def remove_variable(self, variable_id: int) -> bool:
        return self._remove(self.wanted.variables, self._changed_variables, variable_id)

    def remove_path(self, path_id: int) -> bool:
        for withheld in self._withheld.values():
            withheld.pop(path_id, None)
        return self.remove_path_order(path_id)

    def remove_path_order(self, path_id: int) -> bool:
        return self._remove(self.wanted.paths, self._changed_paths, path_id)

    # Messages to the router.

    @property
    def is_changed(self) -> bool:
        return bool(
            self._changed_paths
            or self._changed_variables
            or self._changed_channels
            or self._changed_sources
        )

    @property
    def has_confirmed(self) -> bool:
        """True if the router has confirmed all orders; it may refuse rows of them."""
        return (
            self.is_connected and not self.is_changed and self.confirmed_number == self.sent_number
        )

    @property
    def is_in_step(self) -> bool:
        """True if the router has confirmed that it holds exactly the wanted table."""
        return self.has_confirmed and not self.refusal_count and not self.refused

    @property
    def is_refusing(self) -> bool:
        """True if the router has refused its table so often that it counts as unusable."""
        return self.refusal_count >= REFUSALS_MAX

    @property
    def may_send(self) -> bool:
        return self.is_connected and self.sent_number - self.confirmed_number < UNCONFIRMED_MAX

    def begin_session(self, *, term: int, digest: int) -> list[ChangeTable]:
        """Begin a session with a router of this digest; return the changes that it needs."""
        self.is_connected = True
        self._accept()
        self.confirmed_digest = digest
        self._begin_numbers()
        if digest == self.wanted.digest:
            self.refused = {}
            self._forget_changes()
            self._confirm_all()
            return []
        return self.whole(term=term)

    def end_session(self) -> None:
        """End the session; the next report's digest shows which changes arrived."""
        self.is_connected = False
        lost = [*self._unsent, *(waiting for _, waiting in self._unconfirmed)]
        self._unsent.clear()
        self._unconfirmed.clear()
        self._digests.clear()
        self._waiting_for_session.extend(waiting for waiting in lost if not waiting.has_ended)
        for waiting in lost:
            waiting.session_ended(self.name)

    def whole(self, *, term: int) -> list[ChangeTable]:
        """Return the whole table as changes; their confirmation confirms all that is waiting."""
        self._forget_changes()
        self._whole_table_number = self.sent_number + 1
        changes = list(self.wanted.whole(term=term, number=self._whole_table_number))
        self._sent(changes[-1].number)
        self._unconfirmed.extend(
            (self.sent_number, waiting) for waiting in self._waiting_for_session
        )
        for waiting in self._waiting_for_session:
            waiting.absent.discard(self.name)
            waiting.missing.add(self.name)
        self._waiting_for_session.clear()
        return changes

    def flush(self, *, term: int) -> list[ChangeTable]:
        """Return the changes since the last flush, as one message or several bounded ones."""
        if not (self.is_changed and self.may_send):
            return []
        changes = list(_bounded(self._combined_change(term)))
        self._forget_changes()
        self._sent(changes[-1].number)
        return changes

    # Messages from the router.

    def refuse(self, reason: str) -> None:
        """Record that the router refused its table."""
        self.refusal_count += 1
        self.refusal = reason

    def confirm(self, number: int, digest: int, refused: dict[int, str] | None = None) -> bool:
        """Handle a confirmation; return False if the router's digest is not the expected one.

        In that case no waiting confirmation is notified before the whole table is confirmed.
        Confirmations of changes that were sent before a whole table are ignored.
        """
        before = max(self.confirmed_number, self._whole_table_number - 1)
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
            return True  # A slice of a change: only the last slice counts.
        if expected != digest:
            return False
        self._accept()
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            self._unconfirmed.popleft()[1].confirm(self.name)
        return True

    def await_confirmation(self, waiting: Confirmation) -> None:
        """Notify `waiting` once the router holds all orders that are wanted at this moment."""
        if not self.is_connected:
            waiting.absent.add(self.name)
            self._waiting_for_session.append(waiting)
            if len(self._waiting_for_session) > WAITING_FOR_SESSION_MAX:
                self._waiting_for_session = [
                    found for found in self._waiting_for_session if not found.has_ended
                ]
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
        self._whole_table_number = 0
        self._digests.clear()

    def _confirm_all(self) -> None:
        seen, self._waiting_for_session = self._waiting_for_session, []
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

    def _combined_change(self, term: int) -> ChangeTable:
        """Return all collected changes as one message, possibly too large to send."""
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
"""Fields of `ChangeTable`, in the order in which a router applies them."""


def _bounded(change: ChangeTable) -> Iterator[ChangeTable]:
    """Yield the change itself, or slices of it in the order in which a router applies them."""
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
    """Return the changed keys that were removed, and the orders of the others."""
    keys = sorted(changed)
    removed = tuple([key for key in keys if key not in held])
    return removed, tuple([held[key] for key in keys if key in held])
