"""Dispatch of a subscription's events: from samples to holder, callbacks, streams and batches.

Runs on the delivering thread. During a change of period two identifiers stand for one variable,
each with its own terms; an event is judged by the terms of its identifier.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from gridstat.endpoint.delivery import Delivery, EventDecoder
from gridstat.endpoint.holder import Holder
from gridstat.endpoint.violation import Reason, SlotWatch, Violation
from gridstat.model.errors import GridStatError, Misuse
from gridstat.model.extrapolation import guess
from gridstat.model.rate_law import is_due, slot_of
from gridstat.model.status import BuiltinType, TimeQuality

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.core.samples import Samples
    from gridstat.endpoint.arrival_clock import Arrival
    from gridstat.endpoint.delivery import Row
    from gridstat.endpoint.failure_reports import FailureReports
    from gridstat.endpoint.mailbox import Mailbox
    from gridstat.endpoint.options import EventHandlers, OnEvent
    from gridstat.endpoint.slot_clock import StartTime
    from gridstat.endpoint.tally import Tally
    from gridstat.endpoint.violation import Missed, Terms
    from gridstat.model.status import StatusVariable

    Batch: TypeAlias = tuple[Samples, list[bytes], StatusVariable]

log = logging.getLogger(__name__)
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(slots=True)
class _Law:
    """Decoder and terms of the events of one identifier."""

    variable: StatusVariable
    decoder: EventDecoder
    terms: Terms | None
    tally: Tally


class SubscriptionDispatch:
    """Passes every event of the contract once; an event that is not due to it (another subscription
    of this end-point is faster) is left out."""

    def __init__(
        self,
        name: str,
        handlers: EventHandlers,
        failures: FailureReports,
        batches: Mailbox[Batch] | None = None,
    ) -> None:
        self.name = name
        self.holder = Holder()
        self.extrapolated = 0
        self.violations = 0
        self.malformed = 0
        self.streams: tuple[Mailbox[Delivery], ...] = ()
        self.batches = batches
        self._handlers = handlers
        self._failures = failures
        self._call = None if handlers.on_event is None else _with_delay(handlers.on_event)
        self._laws: dict[int, _Law] = {}
        self._newest_law: _Law | None = None
        self._watch: SlotWatch | None = None
        self._is_paused = False
        self._has_failed = False
        points = 1 if handlers.extrapolate is None else handlers.extrapolate.points
        self._points: deque[tuple[int, float]] = deque(maxlen=points)

    def set_terms(
        self, variable: StatusVariable, terms: Terms | None, tally: Tally, begin: StartTime
    ) -> None:
        """Set the terms and the tally of this variable's events."""
        self._check_extrapolation(variable)
        self._newest_law = _Law(variable, EventDecoder(variable), terms, tally)
        self._laws[variable.variable_id] = self._newest_law
        self.holder.describe(variable)
        if self._handlers.on_violation is None and self._handlers.extrapolate is None:
            return
        if terms is None:
            self._watch = None
        elif self._watch is None:
            self._watch = SlotWatch(terms, begin)
        else:
            self._watch.renew(terms, begin)

    def forget(self, variable_id: int) -> None:
        """Stop dispatching events of this identifier."""
        self._laws.pop(variable_id, None)

    def pause(self, *, is_paused: bool) -> None:
        """Pause violations while modes change (S1 §4.5)."""
        self._is_paused = is_paused

    # What the deliverer calls.

    def take(self, batch: Samples, options: list[bytes], arrival: Arrival) -> None:
        """Dispatch events of one variable, in the order of their arrival."""
        law = self._laws.get(int(batch[0]["variable_id"]))
        if law is None:
            return
        batch, options = law.tally.due(batch, options, arrival)
        if not len(batch):
            return
        if self.batches is not None:
            self.batches.put((batch, options, law.variable), len(batch))
        if self._is_light:
            at = int(batch["created_ns"].argmax())
            batch, options = batch[at : at + 1], options[at : at + 1]
        rows = cast("list[Row]", batch.tolist())
        for index, row in enumerate(rows):
            self._pass(law, row, options[index] if options else b"", arrival)

    @property
    def _is_light(self) -> bool:
        """True if only the newest value matters."""
        return (
            self._call is None
            and self._watch is None
            and not self.streams
            and self._handlers.hook is None
        )

    @property
    def next_due_ns(self) -> int | None:
        """Time at which the next slot is judged."""
        return None if self._watch is None else self._watch.next_due_ns

    def fire(self, arrival: Arrival) -> None:
        """Judge the slots whose time has passed."""
        if self._watch is None:
            return
        for missed in self._watch.overdue(arrival.steady_ns):
            if self._is_paused:
                continue
            made_up = self._extrapolated(missed, arrival)
            if made_up is None:
                self._violated(missed.slot, missed.created_ns, Reason.MISSING, None)
            else:
                self.extrapolated += 1
                self.holder.put(made_up, arrival.steady_ns)
                self._push(made_up, arrival)

    def hold(self, row: Row, options: bytes) -> bool:
        """Fill the holder with an event that an edge router had cached; call no handler.

        An event that is not due to this contract is used only if none has come.
        """
        law = self._laws.get(row[2])
        if law is None or not (self.holder.newest is None or _is_due(row[0], law.terms)):
            return False
        try:
            found = law.decoder.delivery(row, options, self.holder.derived_names)
        except GridStatError:
            self.malformed += 1
            return False
        is_news = self.holder.fill(found)
        if is_news:
            self._note_point(found)
        return is_news

    # One event.

    def _pass(self, law: _Law, row: Row, options: bytes, arrival: Arrival) -> None:
        created_ns, received_ns = row[0], row[1]
        terms = law.terms
        try:
            delivery = law.decoder.delivery(row, options, self.holder.derived_names)
        except GridStatError:
            self.malformed += 1
            return
        self.holder.put(delivery, arrival.arrived_ns(received_ns))
        is_good = delivery.time_quality is TimeQuality.GOOD
        age_ns = arrival.age_ns(created_ns, received_ns) if is_good else 0
        # The last events of an old period are not judged by the new one.
        if self._watch is not None and terms is not None and law is self._newest_law:
            is_open = self._watch.saw(created_ns, arrival.arrived_ns(received_ns), age_ns)
            if is_open and age_ns > terms.latency_ns and self._handlers.extrapolate is None:
                slot = slot_of(created_ns, terms.period, terms.phase_ns)
                self._violated(slot, created_ns, Reason.LATE, delivery)
        self._note_point(delivery)
        self._push(delivery, arrival)

    def _note_point(self, delivery: Delivery) -> None:
        if self._handlers.extrapolate is not None and isinstance(delivery.value, int | float):
            self._points.append((delivery.created_ns, float(delivery.value)))

    def _push(self, delivery: Delivery, arrival: Arrival) -> None:
        if self._handlers.hook is not None and not delivery.is_extrapolated:
            self._handlers.hook(delivery, arrival)
        for stream in self.streams:
            stream.put(delivery)
        if self._call is not None:
            try:
                self._call(delivery)
            except Exception:
                self._failures.report(self._handlers.on_event, "on_event_failed name=%s", self.name)

    def _violated(
        self, slot: int, expected_ns: int, reason: Reason, delivery: Delivery | None
    ) -> None:
        if self._is_paused:
            return
        self.violations += 1
        if self._handlers.on_violation is not None:
            try:
                self._handlers.on_violation(
                    Violation(self.name, slot, expected_ns, reason, delivery)
                )
            except Exception:
                self._failures.report(
                    self._handlers.on_violation, "on_violation_failed name=%s", self.name
                )

    def _extrapolated(self, missed: Missed, arrival: Arrival) -> Delivery | None:
        how = self._handlers.extrapolate
        if how is None:
            return None
        points = sorted(self._points)
        times, values = [at for at, _ in points], [value for _, value in points]
        try:
            found = guess(how, times, values, missed.created_ns)
        except Exception:  # The user's own function; whatever it does, the slot is judged.
            if not self._has_failed:
                log.exception("extrapolation_failed name=%s", self.name)
            self._has_failed = True
            return None
        if found is None:
            return None
        variable = self.holder.variable
        is_whole = variable is not None and variable.value_type is BuiltinType.INT64
        value = max(INT64_MIN, min(INT64_MAX, round(found))) if is_whole else found
        return Delivery(
            value, missed.created_ns, arrival.wall_ns, is_extrapolated=True, name=self.name
        )

    def _check_extrapolation(self, variable: StatusVariable) -> None:
        if self._handlers.extrapolate is None:
            return
        if variable.value_type not in (BuiltinType.INT64, BuiltinType.FLOAT64):
            raise Misuse(
                f"{variable.name} cannot be extrapolated: only int64 and float64 can",
                hint="use on_violation instead",
            )
        if variable.period is None:
            raise Misuse(
                f"{variable.name} cannot be extrapolated: it is aperiodic, nothing is ever missing",
                hint="leave extrapolate out",
            )


def _is_due(created_ns: int, terms: Terms | None) -> bool:
    return terms is None or is_due(created_ns, terms.period, terms.every, terms.phase_ns)


def _with_delay(callback: OnEvent) -> Callable[[Delivery], object]:
    """Return the callback; one of two parameters also gets the delay in microseconds (S0 A.30)."""
    try:
        parameters = inspect.signature(callback).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # type: ignore[assignment]
    required = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        and each.default is each.empty
    ]
    wants_delay = len(required) == 2  # noqa: PLR2004 -- one for the delivery, one for the delay.
    if wants_delay:
        return lambda delivery: callback(delivery, delivery.latency_us)  # type: ignore[call-arg]
    return callback  # type: ignore[return-value]
