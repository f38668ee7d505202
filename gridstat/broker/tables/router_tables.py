"""The tables of all routers as wanted, and the talk that keeps the routers in step with them.

Only what is durable gets here. Changes are flushed together a moment after the first of them, so
a thousand subscriptions a second cost a router a few hundred messages, not a thousand.
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
class _Carriage:
    """Why a router carries a variable: paths, subscribers that hang on it, its publisher, flood."""

    path_count: int = 0
    local_count: int = 0
    source: int = 0
    floods: tuple[FloodOrder, ...] = ()


class _Tables(dict[str, RouterTable]):
    """By router; one that is asked for the first time begins empty."""

    def __missing__(self, router: str) -> RouterTable:
        found = self[router] = RouterTable(router)
        return found


class _Carriages(dict[int, _Carriage]):
    """By variable; one that is asked for the first time is carried for nobody."""

    def __missing__(self, variable_id: int) -> _Carriage:
        found = self[variable_id] = _Carriage()
        return found


class RouterTables:
    """A router carries a variable exactly while a path or its publisher needs it there."""

    def __init__(self) -> None:
        self._tables = _Tables()
        self._carriages: defaultdict[str, _Carriages] = defaultdict(_Carriages)
        """By router and variable."""
        self._changed: set[str] = set()
        self._held_back: set[str] = set()
        self.floodless: set[str] = set()
        """Routers of releases that know no floods."""
        self._confirmations: deque[Confirmation] = deque()

    def __getitem__(self, router: str) -> RouterTable:
        return self._tables[router]

    def forget(self, router: str) -> None:
        """The router is no longer of this cloud: another of its name begins with nothing."""
        self._tables.pop(router, None)
        self._carriages.pop(router, None)
        self.floodless.discard(router)
        self._changed.discard(router)
        self._held_back.discard(router)

    # Changes of what is wanted.

    def set_up(
        self, variable: StatusVariable, orders: Iterable[RoutedOrder], local: Iterable[str]
    ) -> None:
        """Paths of a subscription; `local` are the edges at which its subscriber takes them."""
        touched = set()
        variable_id = variable.variable_id
        for router in local:
            carriage = self._carriages[router][variable_id]
            carriage.local_count += 1
            if carriage.local_count == 1:
                touched.add(router)
        for router, order in orders:
            carriage = self._carriages[router][variable_id]
            carriage.path_count += 1
            if carriage.path_count == 1:
                touched.add(router)
            if self._tables[router].put_path(order):
                self._changed.add(router)
        if touched:
            self._order_variables(touched, variable)

    def tear_down(
        self, variable: StatusVariable, orders: Iterable[RoutedOrder], local: Iterable[str]
    ) -> None:
        """The reverse of `set_up`, with the same arguments."""
        touched = set()
        for router in local:
            carriage = self._carriages[router][variable.variable_id]
            carriage.local_count -= 1
            if carriage.local_count == 0:
                touched.add(router)
        for router, order in orders:
            if self._tables[router].remove_path(order.path_id):
                self._changed.add(router)
            carriage = self._carriages[router][variable.variable_id]
            carriage.path_count -= 1
            if carriage.path_count == 0:
                touched.add(router)
        self._order_variables(touched, variable)

    def set_source(self, router: str, variable: StatusVariable, channel_id: int) -> None:
        """The channel on which the publisher's events come to this edge; 0 takes that back."""
        self._carriages[router][variable.variable_id].source = channel_id
        self._order_variables((router,), variable)

    def flood(
        self, variable: StatusVariable, floods: tuple[FloodOrder, ...], routers: Iterable[str]
    ) -> None:
        """How these routers flood a variable; with nothing, they do not."""
        names = tuple(routers)
        for router in names:
            self._carriages[router][variable.variable_id].floods = floods
        self._order_variables(names, variable)

    def mark_floodless(
        self, router: str, flooded: Iterable[StatusVariable], *, is_floodless: bool
    ) -> None:
        """A router of a release before floods is ordered none: it could not say that it has them.

        `flooded` are the variables whose orders that may change.
        """
        if is_floodless != (router in self.floodless):
            (self.floodless.add if is_floodless else self.floodless.discard)(router)
            for variable in flooded:
                self._order_variables((router,), variable)

    def put_channel(self, router: str, order: ChannelOrder) -> None:
        if self._tables[router].put_channel(order):
            self._changed.add(router)

    def put_source(self, router: str, order: SourceOrder) -> None:
        if self._tables[router].put_source(order):
            self._changed.add(router)

    def remove_channel(self, router: str, channel_id: int) -> None:
        if self._tables[router].remove_channel(channel_id):
            self._changed.add(router)

    def remove_source(self, router: str, channel_id: int) -> None:
        if self._tables[router].remove_source(channel_id):
            self._changed.add(router)

    # The talk with the routers.

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def flush(self, *, term: int) -> list[tuple[str, ChangeTable]]:
        """All that connected routers have to be told, by router.

        One that has not confirmed the last few gathers on until it does.
        """
        told = []
        changed, self._changed = self._changed, set()
        for router in sorted(changed):
            table = self._tables[router]
            if table.may_send:
                told += [(router, change) for change in table.flush(term=term)]
            elif table.is_connected:
                self._held_back.add(router)
        return told

    def confirm(
        self, router: str, number: int, digest: int, refused: dict[int, str] | None = None
    ) -> bool:
        """Take a router's confirmation; False if its table is not what it was sent."""
        is_equal = self._tables[router].confirm(number, digest, refused)
        if router in self._held_back and self._tables[router].may_send:
            self._held_back.discard(router)
            self._changed.add(router)
        return is_equal

    def whole(self, router: str, *, term: int) -> list[ChangeTable]:
        """The whole table for a router, whatever it holds."""
        self._changed.discard(router)
        self._held_back.discard(router)
        return self._tables[router].whole(term=term)

    def refusing(self, variable_id: int, routers: Iterable[str]) -> set[str]:
        """Those of the routers whose cores cannot hold the row of a variable."""
        return {name for name in routers if variable_id in self._tables[name].refused}

    def refusals(self) -> dict[str, str]:
        """Why some routers go on refusing their tables."""
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
        """Run `then` once these routers hold what is wanted now, or the time is up."""
        while self._confirmations and self._confirmations[0].is_over:
            self._confirmations.popleft()
        waiting = Confirmation(then, deadline_ns, judge)
        for router in sorted(set(routers)):
            self._tables[router].await_confirmation(waiting)
        waiting.settle()
        if not waiting.is_over:
            self._confirmations.append(waiting)

    def expire(self, now_ns: int) -> int | None:
        """Give up on what is overdue; when to come again, or None if nothing waits.

        Deadlines grow in the order of waiting, for all who wait are given the same time.
        """
        while self._confirmations:
            first = self._confirmations[0]
            if not first.is_over and first.deadline_ns > now_ns:
                return first.deadline_ns
            self._confirmations.popleft()
            if not first.is_over:
                first.finish()
        return None

    @property
    def is_waiting(self) -> bool:
        return bool(self._confirmations)

    def _order_variables(self, routers: Iterable[str], variable: StatusVariable) -> None:
        alike: dict[tuple[object, ...], VariableOrder] = {}
        for router in routers:
            carriage = self._carriages[router][variable.variable_id]
            floods = carriage.floods
            if carriage.path_count or carriage.source or carriage.local_count or floods:
                order = variable_order(
                    variable,
                    source=carriage.source,
                    keeps_newest=carriage.local_count > 0,
                    floods=() if router in self.floodless else floods,
                )
                key = (order.source, order.keeps_newest, order.floods)
                is_changed = self._tables[router].put_variable(alike.setdefault(key, order))
            else:
                del self._carriages[router][variable.variable_id]
                is_changed = self._tables[router].remove_variable(variable.variable_id)
            if is_changed:
                self._changed.add(router)
