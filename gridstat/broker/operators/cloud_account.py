"""Account of a cloud, for archives: every contract and ledger, and all counters.

Unlike the survey the account is complete. It is read in pages, so that each answer fits into a
frame and none delays the broker.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final

from gridstat.broker.operators.survey import ledger_facts
from gridstat.model.qos import BASELINE_MODE
from gridstat.model.type_text import type_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gridstat.broker.context import BrokerContext
    from gridstat.model.qos import Qos
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import LedgerEntry
    from gridstat.net.command.router_messages import ReportCounters

PAGE_CONTRACTS_MAX: Final = 500
PAGE_BYTES_MAX: Final = 1024 * 1024
"""Estimated size of a page, on the low side; a frame holds four times as much."""
_CONTRACT_BYTES: Final = 1_200
_PATH_BYTES: Final = 300
US_PER_MS: Final = 1_000

Facts = dict[str, Any]


class CloudAccount:
    """Reads the registry and changes nothing."""

    def __init__(
        self, context: BrokerContext, counters: Callable[[], Mapping[str, ReportCounters]]
    ) -> None:
        self._context = context
        self._counters = counters

    def page(self, after: int) -> Facts:
        """Return the contracts with numbers above `after`, as many as fit."""
        numbers = self._numbers()
        start = bisect_right(numbers, after)
        contracts: list[Facts] = []
        size_bytes = 0
        for number in numbers[start : start + PAGE_CONTRACTS_MAX]:
            reported, ledger = self._contract(number)
            size_bytes += _bytes_of(ledger)
            if contracts and size_bytes > PAGE_BYTES_MAX:
                break
            contracts.append(
                reported | {"ledger": None if ledger is None else ledger_facts(ledger)}
            )
        has_more = start + len(contracts) < len(numbers)
        return {
            "contracts": contracts,
            "counters": [] if after else list(self._counter_facts()),
            "next": contracts[-1]["subscription"] if has_more else 0,
        }

    def _numbers(self) -> list[int]:
        """Return the numbers of all contracts of this cloud's end-points, without segments."""
        registry = self._context.registry
        inside = (
            number for number, one in registry.subscriptions.items() if not one.record.contract
        )
        across = (number for number, one in registry.tree.asked.items() if one.granted is not None)
        return sorted((*inside, *across))

    def _contract(self, number: int) -> tuple[Facts, LedgerEntry | None]:
        registry = self._context.registry
        if (asked := registry.tree.asked.get(number)) is not None:
            assert asked.granted is not None
            reported = asked.granted
            facts = self._facts(asked.record.subscriber, reported.variable, reported.granted)
            return {"subscription": number, **facts}, asked.ledger
        found = registry.subscriptions[number]
        facts = self._facts(found.record.subscriber, found.variable, found.record.granted)
        return {"subscription": number, **facts}, found.ledger

    def _facts(
        self, subscriber: str, variable: StatusVariable, qualities: Mapping[int, Qos]
    ) -> Facts:
        publication = self._context.registry.publications.get(variable.name)
        fastest = min(qualities.values(), key=lambda qos: qos.every)
        granted = qualities.get(BASELINE_MODE, fastest)
        period = variable.period
        return {
            "endpoint": subscriber,
            "variable": variable.name,
            "publisher": "" if publication is None else publication.publisher,
            "value_type": type_text(variable.value_type),
            "period_seconds": None if period is None else period.seconds,
            "period_per_seconds": None if period is None else period.per_seconds,
            "phase_ns": variable.phase_ns,
            "every": granted.every,
            "latency_ms": granted.latency_us / US_PER_MS,
            "redundancy": granted.redundancy,
            "priority": granted.priority,
        }

    def _counter_facts(self) -> Iterator[Facts]:
        """Yield the counters of routers and of the channels between them.

        Events to end-points are counted in the ledgers.
        """
        channels = self._context.registry.channels
        for router, reported in sorted(self._counters().items()):
            yield {"router": router, "channel": "", "counters": dict(reported.router)}
            for number in sorted(
                channels.keys() & (reported.channels.keys() | reported.sources.keys())
            ):
                received = reported.sources.get(number, {})
                channel = channels[number]
                counters = {
                    **reported.channels.get(number, {}),
                    **{f"heard_{name}": count for name, count in received.items()},
                }
                if (
                    number in reported.channels
                ):  # Not a counter, but needed to compute the used share.
                    counters["bandwidth_bytes_per_s"] = channel.bandwidth_bytes_per_s
                yield {"router": router, "channel": channel.label, "counters": counters}


def _bytes_of(ledger: LedgerEntry | None) -> int:
    paths = () if ledger is None else ledger.paths
    names = sum(
        len(name) for path in paths for name in (path.name, *path.routers, *path.channel_names)
    )
    return _CONTRACT_BYTES + _PATH_BYTES * len(paths) + names
