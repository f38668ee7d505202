"""Selection of the ledgers, reported every few seconds by a broker, that become rows of the log.

Counts never fall, so a later reading contains all that an earlier one did, and one a minute is
enough. An account by the hour is exact nevertheless: it has the last reading of every hour and of
every contract, and a loss as soon as it is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gridstat.model.path_label import path_label
from gridstat.net.command.endpoint_messages import LEDGER_COUNTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Row: TypeAlias = dict[str, Any]
Facts: TypeAlias = "Mapping[str, Any]"
Key: TypeAlias = tuple[int, str, str]
"""Subscription, end-point and variable: a broker that starts with an empty journal reuses
numbers."""

INT64_MAX: Final = (1 << 63) - 1
NS_PER_S: Final = 1_000_000_000
HOUR_NS: Final = 3_600 * NS_PER_S
TROUBLES: Final = ("late", "lost", "unknown", "dropped", "gap_slots_max", "gap_ended_ns")
"""Counts whose change writes a row at once."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """All ledgers of a contract at one time, the whole one under None and others by their path."""

    time_ns: int
    counts: dict[str | None, Row]

    @property
    def whole(self) -> Row:
        return self.counts[None]


class LedgerRows:
    """Last reading and last written row of every contract that has not ended."""

    def __init__(self, every_s: float) -> None:
        self._every_ns = round(every_s * NS_PER_S)
        self._read: dict[Key, _Reading] = {}
        self._written: dict[Key, _Reading] = {}

    def rows(self, account: Iterable[Facts], time_ns: int) -> list[Row]:
        """Return the rows to write now, older readings first; the account must be whole."""
        now = {
            (each["subscription"], each["endpoint"], each["variable"]): _Reading(
                time_ns, {counts["path"]: counts for counts in _ledgers(each)}
            )
            for each in account
            if each["ledger"] is not None
        }
        rows: list[Row] = []
        for key, before in self._read.items():
            if key not in now or _has_fallen(before, now[key]):
                rows += self._write(key, before)
            elif time_ns // HOUR_NS != before.time_ns // HOUR_NS:
                # Idle ones too: however little is kept of the log, the next hour has its base.
                rows += self._write(key, before, is_again=True)
        self._written = {key: reading for key, reading in self._written.items() if key in now}
        self._read = now
        for key, reading in now.items():
            if self._is_due(key, reading):
                rows += self._write(key, reading)
        return rows

    def rest(self) -> list[Row]:
        """Return the readings that have no row yet, before a recorder ends."""
        return [row for key, reading in self._read.items() for row in self._write(key, reading)]

    def _is_due(self, key: Key, reading: _Reading) -> bool:
        written = self._written.get(key)
        if written is None or _has_fallen(written, reading):
            return True
        is_early = 0 <= reading.time_ns - written.time_ns < self._every_ns
        has_trouble = any(reading.whole[name] != written.whole[name] for name in TROUBLES)
        return has_trouble or not is_early

    def _write(self, key: Key, reading: _Reading, *, is_again: bool = False) -> list[Row]:
        """Return the rows of a reading that differ from those written before, or all of them
        again."""
        written = self._written.get(key)
        if written is reading:
            return []
        self._written[key] = reading
        known = {} if written is None or is_again else written.counts
        named = dict(zip(("subscription", "endpoint", "variable"), key, strict=True))
        return [
            {"time_ns": reading.time_ns, **named, **counts}
            for path, counts in reading.counts.items()
            if known.get(path) != counts
        ]


def _has_fallen(before: _Reading, now: _Reading) -> bool:
    """Return whether the counts have started again from zero."""
    return any(now.whole[name] < before.whole[name] for name in LEDGER_COUNTS)


def _ledgers(contract: Facts) -> Iterator[Row]:
    ledger = contract["ledger"]
    counts = {name: min(ledger[name], INT64_MAX) for name in LEDGER_COUNTS}
    yield {
        "path": None,
        **counts,
        "latency_counts": list(ledger["latency_counts"]) or None,
        "gap_slots_max": ledger["gap_slots_max"] or None,
        "gap_ended_ns": ledger["gap_ended_ns"] or None,
    }
    for path in ledger["paths"]:
        if path["is_counted"]:
            yield {
                "path": path_label(path["routers"], path.get("channel_names", ())) or path["name"],
                **dict.fromkeys(LEDGER_COUNTS, 0),
                "expected": path["expected"],
                "delivered": path["delivered"],
                "lost": path["lost"],
                "late": path["late"] or 0,
                "latency_counts": None,
                "gap_slots_max": None,
                "gap_ended_ns": None,
            }
