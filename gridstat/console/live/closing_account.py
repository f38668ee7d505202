"""The account at the end: every slot that was published, held against every delivery."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gridstat.console.shown_text import shown_text
from gridstat.console.simulation.deliveries import slots_due

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gridstat.console.processes.lines import Line

    Gaps: TypeAlias = Sequence[Sequence[int]]
    """Pairs of the first and the last slot that were left out."""


@dataclass(frozen=True, slots=True)
class SubscriptionAccount:
    """One contract: what was due from its grant to the last slot published."""

    subscriber: str
    variable: str
    due: int
    delivered: int
    duplicates: int

    @property
    def missing(self) -> int:
        return self.due - self.delivered


@dataclass(frozen=True, slots=True)
class ClosingAccount:
    """The whole run; exact, unless one of the two simulation processes was started again."""

    seconds: float
    published: int
    subscriptions: tuple[SubscriptionAccount, ...]
    restarted: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    """Processes that did not report; without them the account is not complete."""
    given_up: tuple[str, ...] = ()
    """Processes that ended again and again and were not started any more."""
    left_out: int = 0
    """Events that were not published, because the process of the PMUs was held up."""

    @property
    def is_settled(self) -> bool:
        return not self.silent and all(account.missing <= 0 for account in self.subscriptions)

    def as_json(self) -> dict[str, Any]:
        return {
            "state": "ended",
            "seconds": self.seconds,
            "published": self.published,
            "left_out": self.left_out,
            "restarted": list(self.restarted),
            "silent": list(self.silent),
            "given_up": list(self.given_up),
            "missing": sum(account.missing for account in self.subscriptions),
            "duplicates": sum(account.duplicates for account in self.subscriptions),
            "subscriptions": [
                {**asdict(account), "missing": account.missing} for account in self.subscriptions
            ],
        }

    def as_text(self) -> str:
        lines = [f"{self.published:,} events published in {self.seconds:.0f} s"]
        if self.left_out:
            lines.append(f"{self.left_out:,} events left out, as the PMUs' process was held up")
        for name in dict.fromkeys(account.subscriber for account in self.subscriptions):
            own = [account for account in self.subscriptions if account.subscriber == name]
            lines.append(
                f"  {name}: {sum(one.delivered for one in own):,} of "
                f"{sum(one.due for one in own):,} delivered in {len(own)} subscriptions, "
                f"{sum(one.missing for one in own):,} missing, "
                f"{sum(one.duplicates for one in own):,} duplicates"
            )
        if self.silent:
            lines.append(f"NOT WHOLE, without an answer of {', '.join(self.silent)}")
        if self.restarted:
            lines.append(f"started again: {', '.join(self.restarted)}")
        if self.given_up:
            lines.append(f"GIVEN UP, as they ended again and again: {', '.join(self.given_up)}")
        return "\n".join(map(shown_text, lines))


def closing_account(
    reports: Mapping[str, Line],
    *,
    seconds: float,
    restarted: Iterable[str],
    silent: Iterable[str] = (),
    given_up: Iterable[str] = (),
) -> ClosingAccount:
    """Slots of the PMUs' last report against those of the subscribers'.

    A slot that was left out was not published, so nobody is due it. Of gaps long ago a report has
    only the number of slots; those count as due and therefore as missing.
    """
    published: dict[str, list[int]] = {}
    gaps: dict[str, Gaps] = {}
    left_out = 0
    subscriptions: list[SubscriptionAccount] = []
    for report in reports.values():
        published |= report.get("published", {})
        for held_up in report.get("left_out", ()):
            gaps |= dict.fromkeys(held_up["variables"], held_up["gaps"])
            left_out += held_up["slots"] * len(held_up["variables"])
    for report in reports.values():
        for one in report.get("subscriptions", ()):
            slots = published.get(one["variable"])
            if slots is None:
                continue
            from_slot, every = max(slots[0], one["from_slot"]), one["every"]
            own_gaps = gaps.get(one["variable"], ())
            subscriptions.append(
                SubscriptionAccount(
                    subscriber=one["subscriber"],
                    variable=one["variable"],
                    due=_published_slots(from_slot, slots[1], own_gaps, every=every),
                    delivered=one["delivered"],
                    duplicates=one["duplicates"],
                )
            )
    return ClosingAccount(
        seconds=seconds,
        published=sum(
            _published_slots(first, last, gaps.get(name, ()), every=1)
            for name, (first, last) in published.items()
        ),
        subscriptions=tuple(subscriptions),
        restarted=tuple(sorted(restarted)),
        silent=tuple(sorted(silent)),
        given_up=tuple(sorted(given_up)),
        left_out=left_out,
    )


def _published_slots(first_slot: int, last_slot: int, gaps: Gaps, *, every: int) -> int:
    """Count the slots from first to last that were published and that `every` divides."""
    left_out = (
        slots_due(max(first, first_slot), min(last, last_slot), every=every) for first, last in gaps
    )
    return slots_due(first_slot, last_slot, every=every) - sum(left_out)
