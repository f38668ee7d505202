"""Bugs of a cloud that were written from the product's code alone, without the properties.

Whoever writes a bug beside a property writes one that it finds. These were written while reading
compaction, charges, admission, moves and patterns, before anybody asked what would notice them.
"""

# ruff: noqa: ANN401 — a patch knows of what it patches only what it changes.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gridstat.broker.capacity.accounts import HopAccount
from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.charges import NOTHING, ZERO, DivisorCounts, ModalSum
from gridstat.broker.capacity.latency_promises import LatencyPromises
from gridstat.broker.capacity.planning import Plan, Planner
from gridstat.broker.capacity.resources import Resources
from gridstat.broker.operators import operator_commands
from gridstat.broker.records import snapshot
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import NumbersReached
from gridstat.broker.requests import command_dispatcher
from gridstat.broker.requests.endpoint_presence import EndPointPresence
from gridstat.broker.requests.pattern_matching import PatternMatching
from gridstat.broker.requests.publication_changes import PublicationChanges
from gridstat.broker.tables import router_orders
from gridstat.model.qos import BASELINE_MODE
from lab.simulation.planting import Bug, Patch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.simulation.planting import Function


# Compaction.


def _subscriptions_one_lower(right: Function) -> Function:
    def cloud_snapshot(*arguments: Any) -> Iterator[Any]:
        for operation in right(*arguments):
            if isinstance(operation, NumbersReached):
                fewer = max(0, operation.subscription_id - 1)
                yield msgspec.structs.replace(operation, subscription_id=fewer)
            else:
                yield operation

    return cloud_snapshot


def _channels_one_lower(right: Function) -> Function:
    def cloud_snapshot(*arguments: Any) -> Iterator[Any]:
        for operation in right(*arguments):
            if isinstance(operation, NumbersReached):
                yield msgspec.structs.replace(operation, channel_id=operation.channel_id - 1)
            else:
                yield operation

    return cloud_snapshot


def _newest_records(_: Function) -> Function:
    def _moves(subscription: Any) -> Iterator[Any]:
        yield subscription.record

    return _moves


def _no_answers(_: Function) -> Function:
    def answer_snapshot(registry: Any) -> Iterator[Any]:
        del registry
        return iter(())

    return answer_snapshot


# Charges and admission.


def _nobody_late(right: Function) -> Function:
    def move(self: Any, element: Any, by_us: int) -> list[Any]:
        right(self, element, by_us)
        return []

    return move


def _first_divisor(right: Function) -> Function:
    def taken(self: Any) -> Any:
        return tuple((mode, everys[:1]) for mode, everys in right(self))

    return taken


def _no_probes(right: Function) -> Function:
    def replace_channel(self: Any, channel: Any) -> None:
        right(self, channel)
        self.probe_charge = ZERO

    return replace_channel


def _no_burst(_: Function) -> Function:
    def _charge_burst(self: Any, stream: Any) -> bool:
        del self, stream
        return False

    return _charge_burst


def _baseline_alone(_: Function) -> Function:
    def total_of(self: Any, amounts: Any) -> Any:
        del self
        return amounts.get(BASELINE_MODE, NOTHING)

    return total_of


def _not_congested(_: Function) -> Function:
    def mark_back_pressure(self: Any, *_: Any, **__: Any) -> None:
        del self

    return mark_back_pressure


def _always_disjoint(right: Function) -> Function:
    def plan(self: Any, *arguments: Any) -> Any:
        found = right(self, *arguments)
        is_found = isinstance(found, Plan)
        return msgspec.structs.replace(found, is_node_disjoint=True) if is_found else found

    return plan


def _retiring_stays(_: Function) -> Function:
    def release_retired(self: Any, subscription_id: int, *generations: int) -> None:
        del self, subscription_id, generations

    return release_retired


# Work of a broker.


def _first_step_first(_: Function) -> Function:
    def roll_back(self: Any) -> None:
        for step in self.undo:
            step()

    return roll_back


def _first_partner(right: Function) -> Function:
    def _partners(self: Any, pattern_id: int, name: str) -> Any:
        found = right(self, pattern_id, name)
        return type(found)(list(found)[:1])

    return _partners


def _grace_runs_on(right: Function) -> Function:
    def update_grace(self: Any, endpoint: Any) -> None:
        if not endpoint.is_up:
            right(self, endpoint)

    return update_grace


def _retire_at_once(_: Function) -> Function:
    def _set_timer(self: Any, name: str, from_ns: int) -> None:
        del from_ns
        self.retire_old(name)

    return _set_timer


def _same_priority(right: Function) -> Function:
    def terms_of(granted: Any, index: int) -> list[tuple[int, int, int]]:
        return [(every, 1, modes) for every, _, modes in right(granted, index)]

    return terms_of


MISSED: Final[frozenset[str]] = frozenset()
"""Bugs that no seed is known to find yet: gaps in the checks, or in what the seeds do."""

UNSEEN: Final[dict[str, Bug]] = {
    "compact-one-subscription-too-few": Bug(
        "a compacted journal forgets the last number of a subscription",
        (Patch(operator_commands, "cloud_snapshot", _subscriptions_one_lower),),
    ),
    "compact-one-channel-too-few": Bug(
        "a compacted journal forgets the last number of a channel",
        (Patch(operator_commands, "cloud_snapshot", _channels_one_lower),),
    ),
    "compact-without-old-paths": Bug(
        "a compacted journal forgets the paths that a move has not torn down yet",
        (Patch(snapshot, "_moves", _newest_records),),
    ),
    "compact-without-answers": Bug(
        "a compacted journal forgets what was answered",
        (Patch(command_dispatcher, "answer_snapshot", _no_answers),),
    ),
    "let-load-make-late": Bug(
        "new load may make older contracts late",
        (Patch(LatencyPromises, "move", _nobody_late),),
    ),
    "charge-the-first-divisor": Bug(
        "several divisors of a variable on one channel are charged as the first of them",
        (Patch(DivisorCounts, "taken", _first_divisor),),
    ),
    "charge-no-probes": Bug(
        "the probes of a channel leave all of its bandwidth to the contracts",
        (Patch(HopAccount, "replace_channel", _no_probes),),
    ),
    "count-no-burst": Bug(
        "events that arrive together are taken for events that arrive one by one",
        (Patch(HopAccount, "_charge_burst", _no_burst),),
    ),
    "charge-the-baseline-alone": Bug(
        "what is taken in a mode is not charged",
        (Patch(ModalSum, "total_of", _baseline_alone),),
    ),
    "admit-over-a-congested-channel": Bug(
        "the water mark of a channel changes nothing for new contracts",
        (Patch(Resources, "mark_back_pressure", _not_congested),),
    ),
    "call-all-paths-disjoint": Bug(
        "paths that share a router are granted as if they shared none",
        (Patch(Planner, "plan", _always_disjoint),),
    ),
    "keep-what-retired": Bug(
        "the load of old paths is never given back",
        (Patch(Allocator, "release_retired", _retiring_stays),),
    ),
    "undo-in-the-order-of-doing": Bug(
        "what a full disk undoes is undone from the first step to the last",
        (Patch(Applied, "roll_back", _first_step_first),),
    ),
    "match-the-first-alone": Bug(
        "of all names that a pattern matches the first is subscribed to",
        (Patch(PatternMatching, "_partners", _first_partner),),
    ),
    "end-who-has-come-back": Bug(
        "an end-point that was away for a moment is ended when its grace is over",
        (Patch(EndPointPresence, "update_grace", _grace_runs_on),),
    ),
    "retire-the-old-period-at-once": Bug(
        "the old identifier of a variable is dropped before its last event has arrived",
        (Patch(PublicationChanges, "_set_timer", _retire_at_once),),
    ),
    "order-one-priority": Bug(
        "all rows have the same priority",
        (Patch(router_orders, "terms_of", _same_priority),),
    ),
}
