"""A publication: one variable of this end-point, from registration to the last event."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Never

import numpy as np

from gridstat.endpoint.change_stream import STREAM_CHANGES_MAX
from gridstat.endpoint.options import check_period
from gridstat.endpoint.outgoing_channels import Outgoing
from gridstat.model.call_options import checked_calls, unknown_option
from gridstat.model.errors import LayoutError, Misuse
from gridstat.model.exact_numbers import STAMP_NS_MAX, exact_stamp, whole_number
from gridstat.model.short_text import short_repr
from gridstat.model.status import U16_MAX, BuiltinType, EventFlag, TimeQuality
from gridstat.net.codec.event import flag_byte
from gridstat.net.codec.value import ValueCodec
from gridstat.net.command.endpoint_messages import PublishedOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from gridstat.endpoint.change_stream import ChangeFollowers, ChangeStream
    from gridstat.endpoint.outgoing_channels import OutgoingChannels
    from gridstat.model.derived import Derivation, Step
    from gridstat.model.rate_law import Period
    from gridstat.model.status import StatusVariable, Value
    from gridstat.net.command.endpoint_messages import EventsPoliced, RefusedOutcome

    class Registrar(Protocol):
        """Owner of publications: registers them with the cloud."""

        def change_period(self, publication: Publication, period: Period, phase_ns: int) -> None:
            """Change the period; blocks until the cloud has answered, and raises its refusal."""
            ...

        def unpublish(self, publication: Publication) -> None:
            """Blocks until the cloud has answered."""
            ...


INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
NEVER_NS: Final = 2**64
RETIRE_AFTER_NS: Final = 2_000_000_000
"""Time after a change of period for which the old identifier still reaches its subscribers."""


class Column(NamedTuple):
    """The type of many values that leave together, and the flags of their events."""

    kind: BuiltinType
    flags: int


_LIVE: Final = {kind: Column(kind, 0) for kind in BuiltinType}
_REPLAYED: Final = {kind: Column(kind, flag_byte(flags=EventFlag.REPLAYED)) for kind in BuiltinType}


@dataclass(frozen=True, slots=True)
class _Registered:
    """The variable as the cloud knows it, for events stamped `from_ns` or later."""

    variable: StatusVariable
    from_ns: int = 0


@checked_calls(but=("send", "column", "identifier_at"))
class Publication:
    """A variable that this end-point publishes; made by `grid.publish` and `grid.publish_alert`.

        voltage = grid.publish("voltage", gridstat.FLOAT64, rate=60)
        voltage.send(231.4)

    Any thread may send; events with derived values leave in the order in which they were derived.
    """

    def __init__(
        self,
        registrar: Registrar,
        channels: OutgoingChannels,
        outcome: PublishedOutcome,
        derived: Sequence[Derivation],
        followers: ChangeFollowers,
    ) -> None:
        self._registrar = registrar
        self._channels = channels
        self._steps: tuple[Step, ...] = tuple(each.begin() for each in derived)
        self._codec = ValueCodec(outcome.variable)
        self._now = _Registered(outcome.variable)
        self._column = None if derived else _column_of(outcome.variable)
        self._next: _Registered | None = None
        self._before: _Registered | None = None
        self._retire_ns = 0
        self._error_code = 0
        self._is_over = False
        self.is_registered = True
        """True if the cloud has it registered, as far as is known."""
        self.followers = followers
        """Followers of its changes."""
        self._policed = _PolicedTotals()
        self._last_sent_ns: int | None = None
        self._lock = threading.Lock()
        self.refused_alerts = 0
        """Alerts that came faster than their minimum interval, and were not sent."""

    def __repr__(self) -> str:
        error = f"refused for now ({self._error_code})" if self._error_code else ""
        ended = "ended" if self._is_over else ""
        return short_repr(self, self.name, self.variable.kind_text, error, ended)

    @property
    def name(self) -> str:
        """The full name: `voltage.name`."""
        return self._now.variable.name

    @property
    def variable(self) -> StatusVariable:
        """The variable as registered, with identifier, type and period: `voltage.variable`."""
        return self._now.variable

    @property
    def error_code(self) -> int:
        """Error code for which the cloud does not restore it now, or 0: `voltage.error_code`."""
        return self._error_code

    @property
    def is_published(self) -> bool:
        """True if it is registered, as far as is known: `voltage.is_published`."""
        return not self._is_over and self.is_registered

    @property
    def policed(self) -> int:
        """Events that edge routers did not let pass, as they report it: `voltage.policed`.

        Each edge router counts for itself, so an event that two of them stop counts twice.
        """
        return self._policed.total

    def changes(self, changes_max: int = STREAM_CHANGES_MAX) -> ChangeStream:
        """Return a stream of its changes from now on: `for change in voltage.changes()`, or `async
        for`.

        Purged, restored, policed, and an edge lost or back; of more than `changes_max` that wait
        to be read the oldest are dropped and counted.
        """
        return self.followers.stream(changes_max)

    def send(
        self,
        value: Value,
        *,
        created_ns: int | None = None,
        time_quality: TimeQuality = TimeQuality.GOOD,
        flags: EventFlag = EventFlag.NONE,
        sequence: int | None = None,
        **unknown: Never,
    ) -> bool:
        """Send one value now: `voltage.send(231.4)`, or with a stamp of your own clock.

        True: at least one edge router that has us attached was handed it, by its socket, while the
        cloud had this publication registered. False: none was (all sessions lost, the registration
        lost and not yet restored, no room in the socket), or an alert came too soon after the last.
        Never waits. Raises `LayoutError` for a value of another type. An alert with a stamp and a
        `sequence` of your own is the same event however often it is sent, and delivered once.
        """
        if unknown:
            raise unknown_option(Publication.send, unknown)
        if created_ns is not None and not (
            type(created_ns) is int and 0 <= created_ns <= STAMP_NS_MAX
        ):
            created_ns = exact_stamp(created_ns)
        if sequence is not None:
            sequence = _sequence(sequence)
        if time_quality or flags:
            time_quality, flags = _trust(time_quality, flags)
        with self._lock:
            self._check()
            # Inside the lock, so that stamps are in the order of sending.
            stamp_ns = time.time_ns() if created_ns is None else created_ns
            variable = self._variable_at(stamp_ns)
            payload = self._payload(value, stamp_ns)
            if variable.replay_speed:
                flags |= EventFlag.REPLAYED
            if variable.interval_ns_min and not self._may_send_now(variable.interval_ns_min):
                self.refused_alerts += 1
                return False
            event = Outgoing(
                variable.variable_id,
                payload,
                stamp_ns,
                flag_byte(time_quality, flags) if time_quality or flags else 0,
                variable.is_alert,
                sequence,
            )
            # Inside the lock, so that no later value with its derived ones overtakes this one.
            if not self._channels.send(event):
                return False
            if not self.is_registered:
                return False
            self._last_sent_ns = time.monotonic_ns()
            return True

    def change_period(self, period: Period, phase_ns: int = 0) -> None:
        """Publish at another period from an instant that the cloud announces.

        `voltage.change_period(Period(1, 30))` blocks until all subscriptions are prepared; events
        stamped from that instant on belong to the new period, without a gap.
        """
        self._check()
        check_period("period", period)
        self._registrar.change_period(self, period, whole_number("phase_ns", phase_ns))

    def unpublish(self) -> None:
        """Withdraw it; its subscribers are notified: `voltage.unpublish()`."""
        if not self._is_over:
            self._is_over = True
            self._registrar.unpublish(self)

    # What the connection calls.

    def changed(self, outcome: PublishedOutcome) -> None:
        """Set the new period or identifier that the cloud has announced."""
        with self._lock:
            self._error_code = 0
            self.is_registered = True
            if outcome.from_ns:
                self._next = _Registered(outcome.variable, outcome.from_ns)
            else:
                self._now, self._next = _Registered(outcome.variable), None
                self._before = None

    def restored(self, outcome: PublishedOutcome | RefusedOutcome) -> None:
        """Note that the cloud registered it again, or refused it for now."""
        if isinstance(outcome, PublishedOutcome):
            self.changed(outcome)
        else:
            self._error_code, self.is_registered = outcome.code, False

    def lost(self) -> None:
        """Mark it as not registered; it is requested again."""
        with self._lock:
            self.is_registered = False

    def identifiers(self) -> list[int]:
        """Return the past, present and announced identifiers of its events."""
        known = (self._now, self._next, self._before)
        return [one.variable.variable_id for one in known if one is not None]

    def has_identifier(self, variable_id: int) -> bool:
        """Return whether this is one of its identifiers, and it is still published."""
        return not self._is_over and variable_id in self.identifiers()

    def note_policed(self, notice: EventsPoliced) -> bool:
        """Note an edge router's report of policed events; return whether the total has grown."""
        return self._policed.note(notice)

    def end(self) -> None:
        """End it; the connection is closed."""
        self._is_over = True
        self.followers.end()

    def column(self) -> Column | None:
        """Return the column type for sending many at once, one object for all alike; None: not
        possible."""
        return self._column if self.is_registered else None

    def identifier_at(self, stamp_ns: int) -> int:
        """Return the identifier of events with this stamp."""
        with self._lock:
            self._check()
            return self._variable_at(stamp_ns).variable_id

    @property
    def changes_ns(self) -> int:
        """Announced time from which its events have another identifier."""
        announced = self._next
        return NEVER_NS if announced is None else announced.from_ns

    def _check(self) -> None:
        if self._is_over:
            raise Misuse(f"{self.name} is not published any more", hint="publish it again")

    def _variable_at(self, stamp_ns: int) -> StatusVariable:
        """Return the variable for a stamp: events out of order still belong to the old period for a
        while."""
        if self._next is not None and stamp_ns >= self._next.from_ns:
            self._before, self._now, self._next = self._now, self._next, None
            self._retire_ns = time.monotonic_ns() + RETIRE_AFTER_NS
        if self._before is not None and stamp_ns < self._now.from_ns:
            if time.monotonic_ns() < self._retire_ns:
                return self._before.variable
            self._before = None
        return self._now.variable

    def _may_send_now(self, interval_ns_min: int) -> bool:
        """Return whether the minimum interval has passed; an alert that no edge took does not
        count."""
        last_ns = self._last_sent_ns
        return last_ns is None or time.monotonic_ns() - last_ns >= interval_ns_min

    def _payload(self, value: Value, stamp_ns: int) -> float | bytes:
        variable = self._now.variable
        if isinstance(value, np.generic):
            value = _plain(value, variable.name)
        if isinstance(variable.value_type, BuiltinType) and not self._steps:
            return _number(value, variable.value_type, variable.name)
        if isinstance(value, Mapping):
            value = {
                field: _plain(each, field) if isinstance(each, np.generic) else each
                for field, each in value.items()
            }
        if self._steps:
            # Encode once before deriving: an invalid value must not change the derived state.
            self._codec.encode(value, [_ZERO[each.value_type] for each in variable.derived])
        return self._codec.encode(value, [step(stamp_ns, value) for step in self._steps])


class _PolicedTotals:
    """Total of the edges' reports of policed events; each report is a total since its router began
    to count."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, int], tuple[int, int]] = {}
        self.total = 0

    def note(self, notice: EventsPoliced) -> bool:
        """Add a report; return whether the total has grown. A new count adds all of it."""
        key = notice.edge, notice.variable_id
        counted = sum(notice.counts.values())
        count_id, known = self._reported.get(key, (notice.count_id, 0))
        more = counted - known if count_id == notice.count_id else counted
        if more <= 0:
            return False
        self._reported[key] = notice.count_id, counted
        self.total += more
        return True


def _column_of(variable: StatusVariable) -> Column | None:
    if variable.is_alert or not isinstance(variable.value_type, BuiltinType):
        return None
    return (_REPLAYED if variable.is_replay else _LIVE)[variable.value_type]


def _plain(value: np.generic, name: str) -> Any:  # noqa: ANN401 -- Of the type that it holds.
    """Return a NumPy number as Python's own, exactly."""
    if value.dtype.kind in "biufS":  # A NumPy time would become a bare number.
        return value.item()
    raise LayoutError(f"{name} is {value!r}, which is no number", hint="give a number")


def _sequence(value: int) -> int:
    sequence = whole_number("sequence", value)
    if not 0 <= sequence <= U16_MAX:
        raise LayoutError(f"sequence is {sequence}, and must be 0 to {U16_MAX}")
    return sequence


def _trust(time_quality: TimeQuality, flags: EventFlag) -> tuple[TimeQuality, EventFlag]:
    """Return quality and flags as their enums; raise if they are not valid."""
    if type(time_quality) is TimeQuality and type(flags) is EventFlag:
        return time_quality, flags
    try:
        return TimeQuality(time_quality), EventFlag(flags)
    except (TypeError, ValueError):
        raise LayoutError(
            f"time_quality is {time_quality!r} and flags are {flags!r}",
            hint="gridstat.TimeQuality.BAD, gridstat.EventFlag.TEST | EventFlag.SUBSTITUTED",
        ) from None


def _number(value: Value, kind: BuiltinType, name: str) -> float:
    """Return the value as the sender needs it, converted to its registered type."""
    if kind is BuiltinType.BOOL and isinstance(value, bool):
        return value
    if not isinstance(value, bool):
        if kind is BuiltinType.FLOAT64 and isinstance(value, float | int):
            return _float(value, name)
        if kind is BuiltinType.INT64 and isinstance(value, int) and _is_int64(value):
            return value
    raise LayoutError(f"{name} takes {kind.value}, not {value!r}")


def _float(value: float, name: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise LayoutError(f"{name} takes float64, and the whole number is too large") from None


def _is_int64(value: int) -> bool:
    return INT64_MIN <= value <= INT64_MAX


_ZERO: Final = {BuiltinType.BOOL: False, BuiltinType.INT64: 0, BuiltinType.FLOAT64: 0.0}
