"""Publisher of alarms: each alarm becomes a status alert in the grid, with an identity of its own.

The pipeline calls `publish` after each commit. `publish` never waits: a thread attaches, registers
one alert for each rule and variable, and sends. An alarm's identity is (onset, sequence), so every
router recognises an alarm that comes again after a restart, and it is delivered once.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from math import nan
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from gridstat.endpoint.connection_setup import connect
from gridstat.model.channel_security import HOP
from gridstat.model.errors import GridStatError, LayoutError, Refused
from gridstat.model.rate_law import NS_PER_S
from gridstat.model.status import BuiltinType
from gridstat.net.clock import SystemClock
from gridstat.net.command.identity import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from gridstat.console.access import Access
    from gridstat.model.channel_security import Security
    from gridstat.model.status import ValueType
    from gridstat.net.clock import Clock

log = logging.getLogger(__name__)

FOLDER: Final = "alarms"
OUTCOMES: Final = ("published", "too_old", "refused", "no_room", "overflowed")
"""Outcomes of an alarm; an alarm that waits has none yet."""


class Alarm(NamedTuple):
    """Columns of the table of alarms that go into the grid."""

    rule: str
    variable: str
    onset_ns: int
    sequence: int
    value: float


@dataclass(frozen=True, slots=True)
class FeedbackSettings:
    """Limits of the publisher.

    An alarm older than `age_s_max` stays in the table and raises no alert. Routers remember an
    alert for a minute, so a second sending is within their memory. The first alarm of a variable
    waits `settle_s` for the paths to subscribers of all alarms.
    """

    waiting_max: int = 16_384
    variables_max: int = 8_192
    age_s_max: float = 50.0
    settle_s: float = 1.0
    interval_s_min: float = 1.0
    retry_s: float = 1.0


class Alert(Protocol):
    """A registered alert, as far as it is needed here."""

    def send(self, value: float, *, created_ns: int, sequence: int) -> bool: ...


class Grid(Protocol):
    """A connection, as far as it is needed here."""

    def publish_alert(
        self, name: str, value_type: ValueType, *, interval_s_min: float, is_belated: bool
    ) -> Alert: ...

    def close(self) -> None: ...


class _Known(NamedTuple):
    """An alert and from when on it may be sent."""

    alert: Alert
    ready_ns: int


class AlarmPublisher:
    """Every alarm handed over ends in exactly one counter, or waits."""

    def __init__(
        self,
        attach: Callable[[], Grid],
        settings: FeedbackSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._attach = attach
        self._settings = settings or FeedbackSettings()
        self._clock = clock or SystemClock()
        self._grid: Grid | None = None
        self._alerts: dict[str, _Known] = {}
        self._counts: Counter[str] = Counter()
        self._waiting: list[tuple[int, int, Alarm]] = []
        self._in_hand = 0
        self._numbers = count()
        self._is_over = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Begin to send; what was handed over before goes first."""
        assert self._thread is None, "it is started once"
        self._thread = threading.Thread(target=self._run, name="alarms", daemon=True)
        self._thread.start()

    def publish(self, alarms: pa.Table | Iterable[Alarm]) -> int:
        """Hand alarms over, as a table with the columns of `Alarm` or one by one; return how many
        were taken.

        Never waits. If the queue is full, the oldest are left out and counted as overflowed.
        """
        found = _alarms(alarms)
        now_ns = self._clock.steady_ns()
        with self._changed:
            room = max(0, self._settings.waiting_max - len(self._waiting))
            newest = found[max(0, len(found) - room) :]
            for alarm in newest:
                heapq.heappush(self._waiting, (now_ns, next(self._numbers), alarm))
            self._counts["overflowed"] += len(found) - len(newest)
            self._changed.notify_all()
        return len(newest)

    def counters(self) -> dict[str, int]:
        """Number of alarms by outcome, and how many still wait."""
        with self._changed:
            counts = {outcome: self._counts[outcome] for outcome in OUTCOMES}
            return {**counts, "waiting": len(self._waiting) + self._in_hand}

    def is_idle(self) -> bool:
        """True if no alarm waits: each one that was handed over has an outcome."""
        with self._changed:
            return not self._waiting and not self._in_hand

    def flush(self, within_s: float) -> bool:
        """Wait until none waits any more; whether that came about in time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._waiting and not self._in_hand, timeout=within_s
            )

    def close(self) -> None:
        """End the thread and leave the grid; what still waits is not sent."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._leave()

    # The thread's own.

    def _run(self) -> None:
        while (alarm := self._next()) is not None:
            try:
                self._settle(alarm, self.offer(alarm))
            except Exception:
                log.exception("alarm_failed rule=%s variable=%s", alarm.rule, alarm.variable)
                self._settle(alarm, "refused")

    def _next(self) -> Alarm | None:
        """Return the next alarm that is due; None once the publisher has ended."""
        with self._changed:
            while not self._is_over:
                now_ns = self._clock.steady_ns()
                if self._waiting and self._waiting[0][0] <= now_ns:
                    self._in_hand = 1
                    return heapq.heappop(self._waiting)[2]
                left_ns = self._waiting[0][0] - now_ns if self._waiting else None
                self._changed.wait(None if left_ns is None else left_ns / NS_PER_S)
        return None

    def _settle(self, alarm: Alarm, outcome: str | int) -> None:
        with self._changed:
            self._in_hand = 0
            if isinstance(outcome, str):
                self._counts[outcome] += 1
            else:
                heapq.heappush(self._waiting, (outcome, next(self._numbers), alarm))
            self._changed.notify_all()

    def offer(self, alarm: Alarm) -> str | int:
        """Try to send one: what became of it, or when to try again by the steady clock."""
        settings, now_ns = self._settings, self._clock.steady_ns()
        if self._clock.posix_ns() - alarm.onset_ns > settings.age_s_max * NS_PER_S:
            return "too_old"
        again_ns = now_ns + round(settings.retry_s * NS_PER_S)
        try:
            self._grid = self._grid or self._attach()
        except (GridStatError, OSError) as error:
            log.warning("feedback_detached reason=%s", error)
            return again_ns
        try:
            known = self._known(self._grid, alarm)
        except GridStatError as error:
            log.warning("alarm_not_registered rule=%s reason=%s", alarm.rule, error)
            return "refused" if isinstance(error, Refused | LayoutError) else again_ns
        if known is None:
            return "no_room"
        return self._send(known, alarm, again_ns)

    def _send(self, known: _Known, alarm: Alarm, again_ns: int) -> str | int:
        """Send the alarm and return its outcome, or the time of the next try if the paths are not
        up yet, no edge is reachable, or the last alarm was just sent."""
        if known.ready_ns > self._clock.steady_ns():
            return known.ready_ns
        is_sent = known.alert.send(alarm.value, created_ns=alarm.onset_ns, sequence=alarm.sequence)
        return "published" if is_sent else again_ns

    def _known(self, grid: Grid, alarm: Alarm) -> _Known | None:
        """The alert of a rule and a variable, registered if need be; None if there are too many."""
        name = alert_name(alarm.rule, alarm.variable)
        if name in self._alerts:
            return self._alerts[name]
        if len(self._alerts) >= self._settings.variables_max:
            return None
        alert = grid.publish_alert(
            name,
            BuiltinType.FLOAT64,
            interval_s_min=self._settings.interval_s_min,
            is_belated=True,
        )
        ready_ns = self._clock.steady_ns() + round(self._settings.settle_s * NS_PER_S)
        self._alerts[name] = _Known(alert, ready_ns)
        return self._alerts[name]

    def _leave(self) -> None:
        if self._grid is not None:
            with suppress(GridStatError):
                self._grid.close()


def alert_name(rule: str, variable: str) -> str:
    """Return the alert's name below the end-point: `alarms/frequency-low/north/pmu-1/frequency`."""
    return f"{FOLDER}/{rule}/{variable.partition('/')[2] or variable}"


def alarm_publisher(
    access: Access,
    edges: Sequence[str],
    end_point: str,
    settings: FeedbackSettings | None = None,
    *,
    security: Security = HOP,
) -> AlarmPublisher:
    """Return a publisher that attaches to these edges, given as for `connect`, at the first
    alarm."""

    def attach() -> Grid:
        access.files_of(Role.ENDPOINT, end_point)
        path = access.certificates.path
        return connect(edges, end_point, certificates=path, security=security)

    return AlarmPublisher(attach, settings)


def _alarms(alarms: pa.Table | Iterable[Alarm]) -> list[Alarm]:
    rows = getattr(alarms, "select", None)
    if rows is None:
        return list(alarms)
    found = rows(list(Alarm._fields)).to_pylist()
    # What is missing has no value, and the alert says so.
    return [
        Alarm(**{**row, "value": nan if row["value"] is None else row["value"]}) for row in found
    ]
