"""Wanted tables of all routers, and the confirmations that wait for them.

Only durable decisions change these tables. Changes are flushed together a moment after the first of
them, so a thousand subscriptions a second cost a router a few hundred messages, not a thousand. The
protocol with one router is described in `router_table.py`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridstat.broker.tables.confirmation import Confirmation
from gridstat.broker.tables.router_orders import variable_order
from gridstat.broker.tables.router_table import RouterTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.broker.tables.confirmation import Judge
    from gridstat.broker.tables.router_orders import RoutedOrder
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.router_messages import (
        ChangeTable,
        ChannelOrder,
        FloodOrder,
        SourceOrder,
        VariableOrder,
    )


@dataclass(slots=True)
class _Reasons:
    """Reasons why a router carries a variable: paths, local subscribers, publisher, flooding."""

    path_count: int = 0
    local_count: int = 0
    source: int = 0
    floods: tuple[FloodOrder, ...] = ()


class _Tables(dict[str, RouterTable]):
    """Tables by router; a missing one is created empty."""

    def __missing__(self, router: str) -> RouterTable:
        found = self[router] = RouterTable(router)
        return found


class _ReasonsByVariable(dict[int, _Reasons]):
    """Reasons by variable; a missing entry is created without any reason."""

    def __missing__(self, variable_id: int) -> _Reasons:
        found = self[variable_id] = _Reasons()
        return found


class RouterTables:
    """All tables; a router carries a variable exactly while there is a reason to."""

    def __init__(self) -> None:
        self._tables = _Tables()
        self._reasons: defaultdict[str, _ReasonsByVariable] = defaultdict(_ReasonsByVariable)
        """Reasons to carry a variable, by router and variable."""
        self._changed: set[str] = set()
        self._held_back: set[str] = set()
        self.without_flooding: set[str] = set()
        """Routers of old releases that do not support flooding."""
        self.with_delay: set[str] = set()
        """Routers that know the delay of a publisher's variables."""
        self._confirmations: deque[Confirmation] = deque()

    def __getitem__(self, router: str) -> RouterTable:
        return self._tables[router]

    def forget(self, router: str) -> None:
        """Remove a router that has left the cloud; a new one of its name begins empty."""
        self._tables.pop(router, None)
        self._reasons.pop(router, None)
        self.without_flooding.discard(router)
        self.with_delay.discard(router)
        self._changed.discard(router)
        self._held_back.discard(router)

    # Changes of what is wanted.

    def set_up(
        self, variable: StatusVariable, orders: Iterable[RoutedOrder], local: Iterable[str]
    ) -> None:
        """Add the paths of a subscription; `local` are the edges that serve its subscriber."""
        touched = set()
        variable_id = variable.variable_id
        for router in local:
            reasons = self._reasons[router][variable_id]
            reasons.local_count += 1
            if reasons.local_count == 1:
                touched.add(router)
        for router, order in orders:
            reasons = self._reasons[router][variable_id]
            reasons.path_count += 1
            if reasons.path_count == 1:
                touched.add(router)
            if self._tables[router].put_path(order):
                self._changed.add(router)
        if touched:
            self._order_variables(touched, variable)

    def tear_down(
        self, variable: StatusVariable, orders: Iterable[RoutedOrder], local: Iterable[str]
    ) -> None:
        """Undo `set_up` with the same arguments."""
        touched = set()
        for router in local:
            reasons = self._reasons[router][variable.variable_id]
            reasons.local_count -= 1
            if reasons.local_count == 0:
                touched.add(router)
        for router, order in orders:
            if self._tables[router].remove_path(order.path_id):
                self._changed.add(router)
            reasons = self._reasons[router][variable.variable_id]
            reasons.path_count -= 1
            if reasons.path_count == 0:
                touched.add(router)
        self._order_variables(touched, variable)

    def set_source(self, router: str, variable: StatusVariable, channel_id: int) -> None:
        """Set the channel on which the publisher's events reach this edge; 0 removes it."""
        self._reasons[router][variable.variable_id].source = channel_id
        self._order_variables((router,), variable)

    def flood(
        self, variable: StatusVariable, floods: tuple[FloodOrder, ...], routers: Iterable[str]
    ) -> None:
        """Set how these routers flood a variable; without orders they do not flood it."""
        names = tuple(routers)
        for router in names:
            self._reasons[router][variable.variable_id].floods = floods
        self._order_variables(names, variable)

    def set_flooding_support(
        self, router: str, flooded: Iterable[StatusVariable], *, is_supported: bool
    ) -> None:
        """Record whether a router's release supports flooding; one that does not gets no floods.

        Its digest could never match a table with floods. `flooded` are the variables whose orders
        may change.
        """
        if is_supported == (router in self.without_flooding):
            if is_supported:
                self.without_flooding.discard(router)
            else:
                self.without_flooding.add(router)
            for variable in flooded:
                self._order_variables((router,), variable)

    def set_delay_support(
        self, router: str, published: Iterable[StatusVariable], *, is_supported: bool
    ) -> None:
        """Record whether a router's release knows the delay of variables that are published there.

        `published` are the variables whose orders may change.
        """
        if is_supported != (router in self.with_delay):
            if is_supported:
                self.with_delay.add(router)
            else:
                self.with_delay.discard(router)
            for variable in published:
                self._order_variables((router,), variable)

    def put_channel(self, router: str, order: ChannelOrder) -> None:
        if self._tables[router].put_channel(order):
            self._changed.add(router)

    def put_source(self, router: str, order: SourceOrder) -> None:
        if self._tables[router].put_source(order):
            self._changed.add(router)

    def withhold_channel(self, router: str, channel_id: int) -> None:
        """Keep a channel closed that the router cannot open as it should, with all its paths."""
        if self._tables[router].withhold_channel(channel_id):
            self._changed.add(router)

    def remove_channel(self, router: str, channel_id: int) -> None:
        if self._tables[router].remove_channel(channel_id):
            self._changed.add(router)

    def remove_source(self, router: str, channel_id: int) -> None:
        if self._tables[router].remove_source(channel_id):
            self._changed.add(router)

    # Messages to and from the routers.

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def flush(self, *, term: int) -> list[tuple[str, ChangeTable]]:
        """Return the changes to send to connected routers.

        A router with too many unconfirmed changes collects further ones until it confirms.
        """
        changes = []
        changed, self._changed = self._changed, set()
        for router in sorted(changed):
            table = self._tables[router]
            if table.may_send:
                changes += [(router, change) for change in table.flush(term=term)]
            elif table.is_connected:
                self._held_back.add(router)
        return changes

    def confirm(
        self, router: str, number: int, digest: int, refused: dict[int, str] | None = None
    ) -> bool:
        """Handle a router's confirmation; return False if its digest is not the expected one."""
        is_equal = self._tables[router].confirm(number, digest, refused)
        if router in self._held_back and self._tables[router].may_send:
            self._held_back.discard(router)
            self._changed.add(router)
        return is_equal

    def whole(self, router: str, *, term: int) -> list[ChangeTable]:
        """Return the whole table for a router, whatever it holds."""
        self._changed.discard(router)
        self._held_back.discard(router)
        return self._tables[router].whole(term=term)

    def refusing(self, variable_id: int, routers: Iterable[str]) -> set[str]:
        """Return those of the routers whose cores cannot hold the row of a variable."""
        return {name for name in routers if variable_id in self._tables[name].refused}

    def unconfirmed(self, routers: Iterable[str]) -> set[str]:
        """Return those of the routers that have not confirmed all their orders at this moment."""
        return {name for name in routers if not self._tables[name].has_confirmed}

    def refusals(self) -> dict[str, str]:
        """Return the reasons of routers that keep refusing their tables."""
        return {name: table.refusal for name, table in self._tables.items() if table.is_refusing}

    def names(self) -> list[str]:
        return sorted(self._tables)

    def await_confirmations(
        self,
        routers: Iterable[str],
        then: Callable[[Confirmation], None],
        *,
        deadline_ns: int,
        judge: Judge | None = None,
    ) -> None:
        """Run `then` once these routers hold the tables wanted now, or at the deadline."""
        while self._confirmations and self._confirmations[0].has_ended:
            self._confirmations.popleft()
        waiting = Confirmation(then, deadline_ns, judge)
        for router in sorted(set(routers)):
            self._tables[router].await_confirmation(waiting)
        waiting.end_if_confirmed()
        if not waiting.has_ended:
            self._confirmations.append(waiting)

    def expire(self, now_ns: int) -> int | None:
        """End overdue confirmations; return the next deadline, or None if nothing waits.

        Deadlines ascend in the order of waiting, since all confirmations get the same time.
        """
        while self._confirmations:
            first = self._confirmations[0]
            if not first.has_ended and first.deadline_ns > now_ns:
                return first.deadline_ns
            self._confirmations.popleft()
            if not first.has_ended:
                first.finish()
        return None

    @property
    def is_waiting(self) -> bool:
        return bool(self._confirmations)

    def _order_variables(self, routers: Iterable[str], variable: StatusVariable) -> None:
        alike: dict[tuple[object, ...], VariableOrder] = {}
        for router in routers:
            reasons = self._reasons[router][variable.variable_id]
            floods = reasons.floods
            if reasons.path_count or reasons.source or reasons.local_count or floods:
                order = variable_order(
                    variable,
                    source=reasons.source,
                    keeps_newest=reasons.local_count > 0,
                    floods=() if router in self.without_flooding else floods,
                    takes_delay=router in self.with_delay,
                )
                key = (order.source, order.keeps_newest, order.floods, order.delay_ms)
                is_changed = self._tables[router].put_variable(alike.setdefault(key, order))
            else:
                del self._reasons[router][variable.variable_id]
                is_changed = self._tables[router].remove_variable(variable.variable_id)
            if is_changed:
                self._changed.add(router)
