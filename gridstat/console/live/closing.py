"""The account at the end: every slot that PMUs published, held against every delivery."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gridstat.console.grid import router_key
from gridstat.console.live.figures import CHANNEL_DROPS, ROUTER_DROPS, channel_total
from gridstat.console.processes.supervisor import PMUS, SUBSCRIBERS
from gridstat.console.simulation.deliveries import slots_due

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.console.grid import Grid
    from gridstat.console.processes.lines import Line
    from gridstat.console.processes.supervisor import Observation
    from gridstat.console.static_plan import StaticPlan


@dataclass(frozen=True, slots=True)
class SubscriberAccount:
    """One subscriber over the whole run: due by the slots that were published, and what came."""

    name: str
    due: int
    delivered: int
    duplicates: int
    misplaced: int

    @property
    def missing(self) -> int:
        return self.due - self.delivered


@dataclass(frozen=True, slots=True)
class RouterAccount:
    """One router's books: what came in went somewhere, and so did what was due."""

    name: str
    events_in: int
    dropped: int
    not_due: int
    dispatched: int
    due: int
    sent: int
    channel_dropped: int
    queued: int

    @property
    def is_balanced(self) -> bool:
        ended = self.dropped + self.not_due + self.dispatched
        left = self.sent + self.channel_dropped + self.queued
        return self.events_in == ended and self.due == left


@dataclass(frozen=True, slots=True)
class ClosingAccount:
    """The whole run. Exact, unless a process was started again meanwhile."""

    seconds: float
    published: int
    routers: tuple[RouterAccount, ...]
    subscribers: tuple[SubscriberAccount, ...]
    restarted: tuple[str, ...] = ()

    @property
    def is_settled(self) -> bool:
        return all(account.missing <= 0 for account in self.subscribers) and all(
            account.is_balanced for account in self.routers
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "state": "ended",
            "seconds": self.seconds,
            "published": self.published,
            "restarted": list(self.restarted),
            "routers": [
                {**asdict(account), "is_balanced": account.is_balanced} for account in self.routers
            ],
            "subscribers": [
                {**asdict(account), "missing": account.missing} for account in self.subscribers
            ],
        }

    def as_text(self) -> str:
        lines = [f"{self.published:,} events published in {self.seconds:.0f} s"]
        lines += (
            f"  {account.name}: {account.delivered:,} of {account.due:,} delivered, "
            f"{account.missing:,} missing, {account.duplicates:,} duplicates"
            for account in self.subscribers
        )
        if self.restarted:
            lines.append(
                f"started again: {', '.join(self.restarted)} (counts begin anew with that)"
            )
        return "\n".join(lines)


def closing_account(
    grid: Grid, plan: StaticPlan, observation: Observation, *, seconds: float
) -> ClosingAccount:
    progress = observation.reports.get(PMUS, {}).get("pmus", {})
    got = observation.reports.get(SUBSCRIBERS, {}).get("subscribers", {})
    return ClosingAccount(
        seconds=seconds,
        published=sum(
            _published(progress, variable.pmu.name, every=1) for variable in plan.variables
        ),
        routers=tuple(
            _router_account(router.name, observation.reports[key])
            for router in grid.routers
            if (key := router_key(router.name)) in observation.reports
        ),
        subscribers=tuple(
            SubscriberAccount(
                name=subscriber.name,
                due=sum(
                    _published(progress, variable.pmu.name, every=subscriber.every)
                    for variable in plan.variables_of(subscriber)
                ),
                delivered=got[subscriber.name]["delivered"],
                duplicates=got[subscriber.name]["duplicate"],
                misplaced=got[subscriber.name]["misplaced"],
            )
            for subscriber in grid.subscribers
            if subscriber.name in got
        ),
    )


def _router_account(name: str, report: Line) -> RouterAccount:
    counters = report["counters"]
    return RouterAccount(
        name=name,
        events_in=counters["in"],
        dropped=sum(counters[reason] for reason in ROUTER_DROPS),
        not_due=counters["not_due"],
        dispatched=counters["dispatched"],
        due=channel_total(report, "due"),
        sent=channel_total(report, "sent"),
        channel_dropped=sum(channel_total(report, reason) for reason in CHANNEL_DROPS),
        queued=channel_total(report, "queued"),
    )


def _published(progress: Mapping[str, Any], pmu: str, *, every: int) -> int:
    """How many slots of a PMU that a subscription sees were published."""
    slots = progress.get(pmu)
    if slots is None or slots["first_slot"] is None:
        return 0
    return slots_due(slots["first_slot"], slots["newest_slot"], every=every)
