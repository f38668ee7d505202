"""Contracts from the journal whose routers or channels the broker's file has lost look for a way.

Routers that the edited file names may not have reported yet, so a contract has the grace time to
find a place, with a new try whenever a router reports; then it ends.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.allocation import AllocationRequest, Refusal
from gridstat.broker.effects.contract_effects import uses_its_gates
from gridstat.broker.records.operations import Moved, Unsubscribed
from gridstat.broker.requests.outcomes import granted
from gridstat.broker.requests.subscriptions import renewed
from gridstat.broker.routers.router_health import ends_of
from gridstat.model.errors import RedundancyNotSatisfiable
from gridstat.net.command.endpoint_messages import ContractChanged, Unpublished

if TYPE_CHECKING:
    from gridstat.broker.capacity.allocation import Allocation
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.recovery import SegmentListener
    from gridstat.broker.requests.notices import Notices

HOUSE_TIMER: Final = "house"
NO_PATH: Final = "the cloud was changed, and no path of the asked quality is left in it"
"""Why a contract ends whose variable is still published."""


class Placement:
    """A homeless contract is housed or ended; until `_end_ns` it is tried again."""

    def __init__(
        self,
        context: BrokerContext,
        notices: Notices,
        segments: SegmentListener,
    ) -> None:
        self._context = context
        self._notices = notices
        self._segments = segments
        self._end_ns = 0

    def resume(self) -> None:
        """After a start."""
        self._end_ns = self._context.now_ns + self._context.settings.grace_ns
        self.try_again()
        if self._context.registry.homeless:
            self._context.set_timer(HOUSE_TIMER, self._context.settings.grace_ns)

    def try_again(self) -> None:
        is_last = self._context.now_ns >= self._end_ns
        for record in list(self._context.registry.homeless.values()):
            allocated = self._allocate(record)
            if allocated is not None:
                self._move_in(record, allocated)
            elif is_last or not self._is_wanted(record):
                self._end(record)

    def _is_wanted(self, record: Subscribed) -> bool:
        registry = self._context.registry
        is_there = record.foreign is not None or record.name in registry.publications
        return is_there and (bool(record.exits) or record.subscriber in registry.endpoints)

    def _allocate(self, record: Subscribed) -> Allocation | None:
        registry = self._context.registry
        if not self._is_wanted(record):
            return None
        sources, targets = ends_of(registry, record)
        request = AllocationRequest(
            subscription_id=record.subscription_id,
            variable=record.foreign or registry.publications[record.name].variable,
            sources=tuple(name for name in sources if name in registry.routers),
            targets=tuple(name for name in targets if name in registry.routers),
            qos=record.qos,
            subscriber=record.subscriber,
            entries=record.entries,
            exits=record.exits,
        )
        if not request.sources or not request.targets:
            return None
        allocated = self._context.reservations.allocate(request)
        if isinstance(allocated, Refusal):
            return None
        if uses_its_gates(renewed(record, allocated)):
            return allocated
        self._context.reservations.release(record.subscription_id)
        return None

    def _move_in(self, record: Subscribed, allocated: Allocation) -> None:
        housed = renewed(record, allocated)
        moved = Moved(subscription=housed, until_retired=True)
        self._context.commit([moved], partial(self._told, housed), self._later)

    def _end(self, record: Subscribed) -> None:
        is_wanted = self._is_wanted(record)
        notice = Unpublished(
            subscription_id=record.subscription_id,
            name=record.name,
            code=RedundancyNotSatisfiable.code if is_wanted else 0,
            reason=NO_PATH if is_wanted else "",
        )
        self._context.commit(
            [Unsubscribed(subscription_id=record.subscription_id)],
            lambda _: self._notices.push(record.subscriber, notice),
            self._later,
        )

    def _told(self, housed: Subscribed, _: Applied) -> None:
        found = self._context.registry.subscriptions.get(housed.subscription_id)
        if found is None:
            return
        if housed.contract:
            self._segments.segment_changed(found)
        else:
            outcome = granted(
                found.record, found.variable, found.troubles, detection=self._context.detection
            )
            self._notices.push(housed.subscriber, ContractChanged(granted=outcome))

    def _later(self, _: str) -> None:
        """The disk is full."""
        self._context.set_timer(HOUSE_TIMER, self._context.settings.retry_after_ns)
