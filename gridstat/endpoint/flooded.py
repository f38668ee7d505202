"""Subscription to all events that are flooded at our edges, for observers that log and watch.

There is no contract: an event is received while some broker floods its variable in our scope. The
subscription has a receiver of its own, so the counts of contracts do not change.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from gridstat.endpoint.delivery import Delivery
from gridstat.endpoint.failure_reports import FailureReports
from gridstat.endpoint.receiver import Receiver
from gridstat.endpoint.variable_search import found_in
from gridstat.model.call_options import checked_calls
from gridstat.model.errors import GridStatError, Malformed
from gridstat.model.short_text import counted, short_repr
from gridstat.model.status import EventFlag, TimeQuality
from gridstat.net.codec.value import ValueCodec
from gridstat.net.command.endpoint_messages import ListenToFloods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from gridstat.core.samples import Sample
    from gridstat.endpoint.end_keys import EndKeys
    from gridstat.endpoint.request_client import RequestClient
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import FoundOutcome

READ_S: Final = 0.1
ASK_AGAIN_S: Final = 2.0
"""Interval of requests for the flooded variables; one is sent at once after an unknown event."""
OPTION_BYTES: Final = 1 << 20
TIME_QUALITY_BITS: Final = 0b11
FLAG_BITS: Final = 0b111100

log = logging.getLogger(__name__)


class FloodedEvent(NamedTuple):
    """One event of a flooded variable."""

    variable: StatusVariable
    delivery: Delivery

    @property
    def name(self) -> str:
        """The variable's full name."""
        return self.variable.name

    def __repr__(self) -> str:
        return short_repr(self, self.name, *self.delivery.facts())


@checked_calls()
class FloodedSubscription:
    """Receives every flooded event once, from `grid.subscribe_flooded` until `unsubscribe`.

        with grid.subscribe_flooded(on_event=print) as flooded:
            time.sleep(10)
            print(flooded.newest)

    `on_event` runs on a thread of its own. `newest` has the newest event of each variable by name,
    also after it has ceased to flood. `refusal` says why the cloud sends no floods, if it does not.
    """

    def __init__(
        self,
        client: RequestClient,
        host: str,
        on_event: Callable[[FloodedEvent], object] | None = None,
        keys: EndKeys | None = None,
    ) -> None:
        self.newest: dict[str, FloodedEvent] = {}
        self.heard = 0
        self.refusal = ""
        self._client = client
        self._on_event = on_event
        self._failures = FailureReports()
        # With keys, only sealed channels are accepted.
        self._receiver = Receiver(
            host=host, option_bytes=OPTION_BYTES, only_sources=keys is not None
        )
        self._keys = keys
        self._sources: set[int] = set()
        self._known: dict[int, tuple[StatusVariable, ValueCodec]] = {}
        self._unknown = 0
        self._is_ending = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gs-flooded", daemon=True)
        try:
            self._learn(self._ask().result())
            self._receiver.start()
            self._thread.start()
        except BaseException:
            self._receiver.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unsubscribe()

    def __repr__(self) -> str:
        state = "ended" if self._is_ending.is_set() else ""
        flooding = counted(len(self._known), "variable")
        return short_repr(self, flooding, counted(self.heard, "event"), state)

    @property
    def variables(self) -> tuple[StatusVariable, ...]:
        """Variables that are flooded now, as far as is known: `flooded.variables`."""
        found = [variable for variable, _ in tuple(self._known.values())]
        return tuple(sorted(found, key=lambda variable: variable.name))

    def unsubscribe(self) -> None:
        """End the subscription: `flooded.unsubscribe()`; may be repeated, also in `on_event`."""
        if self._is_ending.is_set():
            return
        self._stop_asking()  # No request may follow the one that ends the subscription.
        try:
            self._client.ask(ListenToFloods(), found_in).result()
        finally:
            self.end()

    @property
    def is_over(self) -> bool:
        """True if it was ended here, and the cloud has been notified or is out of reach."""
        return self._is_over.is_set()

    def refused(self, reason: str) -> None:
        """Note why the cloud sends no more floods; it is asked again from time to time."""
        self.refusal = reason
        log.warning("flooded_refused reason=%r", reason)

    def end(self) -> None:
        """Close the ports without a message to the cloud; called by the connection."""
        self._stop_asking()
        self._open_sources(())
        self._receiver.close()
        self._is_over.set()

    def _stop_asking(self) -> None:
        self._is_ending.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        """Deliver events, and request the flooded variables from time to time, without blocking on
        the answer."""
        asked_s = time.monotonic()
        asked: Future[FoundOutcome] | None = None
        while self._hand_out():
            unknown = self._receiver.counters()["unknown"]
            is_due = unknown != self._unknown or time.monotonic() - asked_s > ASK_AGAIN_S
            try:
                if asked is not None and asked.done():
                    answered, asked = asked, None
                    self._learn(answered.result())
                elif asked is None and is_due:
                    self._unknown, asked_s = unknown, time.monotonic()
                    asked = self._ask()
            except GridStatError as error:  # The cloud is unreachable; known variables still flood.
                log.warning("flooded_unknown reason=%r", str(error))
        if asked is not None:
            asked.cancel()

    def _hand_out(self) -> bool:
        """Deliver waiting events; return False if a callback has ended the subscription."""
        if self._is_ending.is_set():
            return False
        for sample, payload in self._receiver.read_records(timeout_s=READ_S):
            self._take(sample, payload)
            if self._is_ending.is_set():
                return False
        return True

    def _ask(self) -> Future[FoundOutcome]:
        data_port, urgent_port = self._receiver.ports
        command = ListenToFloods(data_port=data_port, urgent_port=urgent_port)
        return self._client.ask(command, found_in)

    def _learn(self, outcome: FoundOutcome) -> None:
        self.refusal = ""
        self._open_sources(outcome.sealed_channels)
        found = {each.variable_id: each for each in outcome.variables}
        for number in self._known.keys() - found.keys():
            self._receiver.forget(number)
            del self._known[number]
        for number, variable in found.items():
            if number not in self._known:
                self._known[number] = variable, ValueCodec(variable)
                self._receiver.expect(number, variable.period, variable.phase_ns)

    def _open_sources(self, channel_ids: Iterable[int]) -> None:
        if self._keys is None:
            return
        wanted = set(channel_ids)
        for channel_id in self._sources - wanted:
            self._keys.source_closed(channel_id)
            self._receiver.close_source(channel_id)
        for channel_id in wanted - self._sources:
            self._receiver.open_source(channel_id, is_sealed=True)
            self._keys.source_opened(channel_id, self._receiver)
        self._sources = wanted

    def _take(self, sample: Sample, payload: bytes) -> None:
        known = self._known.get(sample.variable_id)
        if known is None:
            return  # The variable stopped flooding meanwhile.
        variable, codec = known
        try:
            reading = codec.decode(payload)
        except Malformed:
            log.warning("flooded_malformed name=%s", variable.name)
            return
        delivery = Delivery(
            value=reading.value,
            created_ns=sample.created_ns,
            received_ns=sample.received_ns,
            sequence=sample.sequence,
            time_quality=TimeQuality(sample.flags & TIME_QUALITY_BITS),
            flags=EventFlag(sample.flags & FLAG_BITS),
            derived=reading.derived,
            name=variable.name,
        )
        event = self.newest[variable.name] = FloodedEvent(variable, delivery)
        self.heard += 1
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:
                self._failures.report(self._on_event, "callback failed name=%s", variable.name)
