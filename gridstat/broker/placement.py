"""Placement of contracts whose routers or channels are no longer in the broker's file.

A restart with an edited file can leave contracts of the journal without a path; the registry lists
them as `unplaced`. Each one is allocated anew at the start and whenever a router reports, because
routers of the file may report late. After the grace time a contract that has no path ends, and its
subscriber receives `Unpublished`. A failed write is tried again by a timer; a restart begins the
grace time anew.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.allocation import AllocationRequest, Refusal
from gridstat.broker.effects.contract_effects import uses_its_gates
from gridstat.broker.leaf_capability import LeafCapability
from gridstat.broker.records.operations import Moved, Unsubscribed
from gridstat.broker.requests.subscriptions import renewed
from gridstat.broker.routers.router_health import ends_of
from gridstat.model.errors import RedundancyNotSatisfiable
from gridstat.net.command.endpoint_messages import Unpublished

if TYPE_CHECKING:
    from gridstat.broker.capacity.allocation import Allocation
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.recovery import SegmentListener
    from gridstat.broker.requests.contract_notices import ContractNotices
    from gridstat.broker.requests.notices import Notices
    from gridstat.net.command.router_messages import ReportRouter

PLACEMENT_TIMER: Final = "placement"
NO_PATH: Final = "the cloud was changed, and no path of the requested quality is left in it"
"""Reason of the end of a contract whose variable is still published."""


class Placement:
    """Each contract without a path gets one before `_end_ns`, or ends."""

    def __init__(
        self,
        context: BrokerContext,
        notices: Notices,
        contract_notices: ContractNotices,
        segments: SegmentListener,
    ) -> None:
        self._context = context
        self._notices = notices
        self._contract_notices = contract_notices
        self._segments = segments
        self._end_ns = 0

    def capability(self) -> LeafCapability:
        """Register the placement of contracts without a path."""
        return LeafCapability(
            name="placement",
            resume=self.resume,
            timers={PLACEMENT_TIMER: self.try_again},
            router_reported=self._router_reported,
        )

    def _router_reported(self, _: str, __: ReportRouter, *, is_new: bool) -> None:
        """Try again with a router that may complete a path, whether it has restarted or not."""
        del is_new
        self.try_again()

    def resume(self) -> None:
        """Begin the grace time, after a start."""
        self._end_ns = self._context.now_ns + self._context.settings.grace_ns
        self.try_again()
        if self._context.registry.unplaced:
            self._context.set_timer(PLACEMENT_TIMER, self._context.settings.grace_ns)

    def try_again(self) -> None:
        is_last = self._context.now_ns >= self._end_ns
        for record in list(self._context.registry.unplaced.values()):
            allocated = self._allocate(record)
            if allocated is not None:
                self._place(record, allocated)
            elif is_last or not self._is_wanted(record):
                self._end(record)

    def _is_wanted(self, record: Subscribed) -> bool:
        registry = self._context.registry
        is_published = record.foreign is not None or record.name in registry.publications
        return is_published and (bool(record.exits) or record.subscriber in registry.endpoints)

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
            charged_to=record.charged_to,
            every_worst=record.every_worst,
            is_paired=record.is_paired,
        )
        if not request.sources or not request.targets:
            return None
        allocated = self._context.reservations.allocate(request, is_kept=True)
        if isinstance(allocated, Refusal):
            return None
        if uses_its_gates(renewed(record, allocated)):
            return allocated
        self._context.reservations.release(record.subscription_id)
        return None

    def _place(self, record: Subscribed, allocated: Allocation) -> None:
        placed = renewed(record, allocated)
        moved = Moved(subscription=placed, until_retired=True)
        self._context.commit([moved], partial(self._notify_placed, placed), self._retry_later)

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
            partial(self._push_end, record.subscriber, notice),
            self._retry_later,
        )

    def _push_end(self, subscriber: str, notice: Unpublished, _: Applied) -> None:
        self._notices.push(subscriber, notice)

    def _notify_placed(self, placed: Subscribed, _: Applied) -> None:
        found = self._context.registry.subscriptions.get(placed.subscription_id)
        if found is None:
            return
        if placed.contract:
            self._segments.segment_changed(found)
        else:
            self._contract_notices.push_present(found)

    def _retry_later(self, _: str) -> None:
        """Try again after a failed write."""
        self._context.set_timer(PLACEMENT_TIMER, self._context.settings.retry_after_ns)
