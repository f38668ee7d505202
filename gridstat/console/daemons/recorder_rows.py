"""Rows of the log from a broker's account: the changes since the last account."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gridstat.model.type_text import type_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gridstat.model.status import StatusVariable

Row: TypeAlias = dict[str, Any]
Facts: TypeAlias = "Mapping[str, Any]"

TERMS: Final = (
    "endpoint",
    "variable",
    "publisher",
    "value_type",
    "period_seconds",
    "period_per_seconds",
    "phase_ns",
    "every",
    "latency_ms",
    "redundancy",
    "priority",
)
INT64_MAX: Final = (1 << 63) - 1


class AccountRows:
    """Rows of contracts and counters; a row is written only when it differs from the last one, or
    right before one that differs.

    `known` are the contracts of an earlier recorder, so that the end of one meanwhile is recorded.
    The end of an own contract is recorded before any account contains it, on any thread; an account
    that was requested earlier does not revive it.
    """

    def __init__(self, known: Iterable[Row] = (), *, end_point: str = "") -> None:
        self._end_point = end_point
        self._lock = threading.Lock()
        self._ended: set[int] = set()
        """Contracts whose end is recorded, and which may still be in an account."""
        self._news: list[Row] = []
        self._contracts: dict[int, Row] = {}
        for row in known:
            if row["is_over"]:
                self._contracts.pop(row["subscription"], None)
            else:
                self._contracts[row["subscription"]] = {name: row[name] for name in TERMS}
        self._counters: dict[tuple[str, str, str], _Reading] = {}

    @property
    def contracts(self) -> int:
        """Number of contracts that have not ended."""
        return len(self._contracts)

    def end(self, variable: StatusVariable, every: int, subscription: int, time_ns: int) -> None:
        """Record that an own contract has ended; its row waits in `ended_rows`.

        If no account has named it yet, only its variable and `every` are known.
        """
        with self._lock:
            terms = self._contracts.pop(subscription, None) or self._little(variable, every)
            row = {"time_ns": time_ns, "subscription": subscription, **terms, "is_over": True}
            self._news.append(row)
            self._ended.add(subscription)

    def ended_rows(self) -> list[Row]:
        """Return own contracts that have ended, each once."""
        with self._lock:
            rows, self._news = self._news, []
        return rows

    def contract_rows(self, account: Iterable[Facts], time_ns: int) -> list[Row]:
        """Return contracts that are new, have changed or have ended; the account must be whole."""
        listed = {each["subscription"]: {name: each[name] for name in TERMS} for each in account}
        with self._lock:
            self._ended &= listed.keys()
            now = {number: row for number, row in listed.items() if number not in self._ended}
            return self._changes(now, time_ns)

    def _changes(self, now: dict[int, Row], time_ns: int) -> list[Row]:
        rows = [
            {"time_ns": time_ns, "subscription": number, **terms, "is_over": False}
            for number, terms in now.items()
            if self._contracts.get(number) != terms
        ]
        rows += [
            {"time_ns": time_ns, "subscription": number, **terms, "is_over": True}
            for number, terms in self._contracts.items()
            if number not in now
        ]
        self._contracts = now
        return rows

    def _little(self, variable: StatusVariable, every: int) -> Row:
        period = variable.period
        return {
            "endpoint": self._end_point,
            "variable": variable.name,
            "publisher": "",
            "value_type": type_text(variable.value_type),
            "period_seconds": None if period is None else period.seconds,
            "period_per_seconds": None if period is None else period.per_seconds,
            "phase_ns": variable.phase_ns,
            "every": every,
            "latency_ms": None,
            "redundancy": 0,
            "priority": 0,
        }

    def counter_rows(self, counters: Iterable[Facts], time_ns: int) -> list[Row]:
        """Return counters that have changed since, the oldest readings first.

        A counter that had not changed for a while comes with its last reading before, so that a
        burst after an idle hour does not look like an hour's even flow.
        """
        idle, moved = [], []
        for each in counters:
            for name, value in each["counters"].items():
                key = each["router"], each["channel"], name
                before = self._counters.get(key)
                has_moved = before is None or before.value != value
                if has_moved:
                    moved.append(_counter_row(key, value, time_ns))
                    if before is not None and not before.has_row:
                        idle.append(_counter_row(key, before.value, before.time_ns))
                self._counters[key] = _Reading(value, time_ns, has_row=has_moved)
        return sorted(idle, key=lambda row: row["time_ns"]) + moved


@dataclass(frozen=True, slots=True)
class _Reading:
    value: int
    time_ns: int
    has_row: bool
    """True if the reading has a row."""


def _counter_row(key: tuple[str, str, str], value: int, time_ns: int) -> Row:
    router, channel, counter = key
    return {
        "time_ns": time_ns,
        "router": router,
        "channel": channel,
        "counter": counter,
        "value": min(value, INT64_MAX),
    }
