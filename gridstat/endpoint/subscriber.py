"""A subscription as the application uses it: values, streams, and the contract."""

from __future__ import annotations

import reprlib
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, Self, cast

import numpy as np

from gridstat.core.samples import SAMPLE
from gridstat.endpoint.arrow_columns import arrow_batch
from gridstat.endpoint.change_stream import STREAM_CHANGES_MAX
from gridstat.endpoint.contract import Contract, contract_of
from gridstat.endpoint.delivery import EventDecoder
from gridstat.endpoint.ledger import Ledger
from gridstat.endpoint.mailbox import Mailbox
from gridstat.endpoint.options import QosOptions, check_wait, modal_qos
from gridstat.endpoint.path_ledger import PathLedgers
from gridstat.model.call_options import checked_calls
from gridstat.model.errors import MalformedOption, Misuse
from gridstat.model.exact_numbers import whole_number
from gridstat.model.short_text import counted, short_repr

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    import pyarrow as pa

    from gridstat.core.samples import Samples
    from gridstat.endpoint.change_stream import ChangeFollowers, ChangeStream
    from gridstat.endpoint.delivery import Delivery, Row
    from gridstat.endpoint.holder import DerivedState
    from gridstat.endpoint.subscription_dispatch import Batch, SubscriptionDispatch
    from gridstat.model.derived import Scalar
    from gridstat.model.qos import ModalQos, QosRequest
    from gridstat.model.status import BuiltinType, DerivedValue, StatusVariable, Value
    from gridstat.net.command.endpoint_messages import GrantedOutcome

STREAM_EVENTS_MAX: Final = 65_536


class Subscriptions(Protocol):
    """Owner of subscriptions: the subscription registry."""

    def change(self, subscription: Subscription, qos: ModalQos) -> None:
        """Change the quality; blocks until the cloud has answered, and raises its refusal."""
        ...

    def unsubscribe(self, subscription: Subscription) -> None:
        """End the subscription; blocks until the cloud has answered."""
        ...

    def ledger(self, subscription: Subscription) -> Ledger:
        """Return the ledger so far."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of a subscription at one instant; it shares nothing with the live one."""

    name: str
    variable: StatusVariable | None
    contract: Contract
    newest: Delivery | None
    error_code: int

    def __repr__(self) -> str:
        newest = "no event yet" if self.newest is None else ", ".join(self.newest.facts())
        error = f"error {self.error_code}" if self.error_code else ""
        return short_repr(self, self.name, newest, error)


@checked_calls(parts={"qos": QosOptions})
class Subscription:
    """One contract; made by `grid.subscribe`.

        voltage = grid.subscribe("c1/north/pmu-1/voltage", qos=gridstat.qos(rate=10))
        print(voltage.value)

    Reading is free of locks: `value` and the like are of the newest event by its stamp. To read
    several that belong together, take `newest` once.
    """

    def __init__(
        self,
        keeper: Subscriptions,
        incoming: SubscriptionDispatch,
        outcome: GrantedOutcome,
        label: str,
        followers: ChangeFollowers,
    ) -> None:
        self._keeper = keeper
        self._contract = contract_of(outcome)
        self.followers = followers
        """Followers of its changes."""
        self.granted_contract = self._contract
        """Contract as last requested and granted; the broker may have lowered it since."""
        self.notice_order = outcome.order
        """Order of the newest answer or notice that has set the contract."""
        self.incoming = incoming
        self.label = label
        self.is_over = False
        self.past = Ledger()
        self.paths = PathLedgers()
        self._dropped_before = 0
        # Re-entrant: the finaliser of a stream may run within a locked section.
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        newest = self.newest
        return short_repr(
            self,
            self.name,
            "no event yet" if newest is None else f"value {reprlib.repr(newest.value)}",
            counted(len(self._contract.paths), "path"),
            f"error {self.error_code}" if self.error_code else "",
            "ended" if self.is_over else "",
        )

    # Pull: the newest value.

    @property
    def name(self) -> str:
        """The variable's full name: `voltage.name`."""
        return self.incoming.name

    @property
    def newest(self) -> Delivery | None:
        """The newest event, whole; None before the first: `voltage.newest.value`."""
        return self.incoming.holder.newest

    @property
    def value(self) -> Value | None:
        """The newest value, None before the first: `voltage.value`."""
        newest = self.newest
        return None if newest is None else newest.value

    @property
    def created_ns(self) -> int:
        """The newest event's stamp, 0 before the first: `voltage.created_ns`."""
        newest = self.newest
        return 0 if newest is None else newest.created_ns

    @property
    def received_ns(self) -> int:
        """Arrival of the newest event, 0 before the first: `voltage.received_ns`."""
        newest = self.newest
        return 0 if newest is None else newest.received_ns

    @property
    def latency_us(self) -> float:
        """Latency of the newest event, from stamp to arrival: `voltage.latency_us`."""
        newest = self.newest
        return 0.0 if newest is None else newest.latency_us

    @property
    def is_extrapolated(self) -> bool:
        """True if the newest value was extrapolated for a missing one:
        `voltage.is_extrapolated`."""
        newest = self.newest
        return newest is not None and newest.is_extrapolated

    @property
    def is_cached(self) -> bool:
        """True if the newest value was cached by an edge router: `voltage.is_cached`."""
        newest = self.newest
        return newest is not None and newest.is_cached

    @property
    def variable(self) -> StatusVariable | None:
        """The variable as registered: `voltage.variable.period`."""
        return self.incoming.holder.variable

    @property
    def error_code(self) -> int:
        """Code of the last error (`gridstat error 1034`), or 0: `voltage.error_code`."""
        return self.incoming.holder.error_code

    def take_error_code(self) -> int:
        """Return the error code and reset it to 0: `voltage.take_error_code()`."""
        return self.incoming.holder.take_error_code()

    def snapshot(self) -> Snapshot:
        """Return a deep copy of the whole state: `voltage.snapshot()`."""
        newest = self.newest
        return Snapshot(
            name=self.name,
            variable=self.variable,
            contract=self._contract,
            newest=None if newest is None else newest.copy(),
            error_code=self.error_code,
        )

    # Derived values.

    @property
    def derived(self) -> Mapping[str, Scalar]:
        """The registered derived values of the newest event: `voltage.derived["average_10"]`."""
        newest = self.newest
        return {} if newest is None else newest.derived

    @property
    def published_derived(self) -> tuple[DerivedValue, ...]:
        """Derived values that the publisher sends: `voltage.published_derived`."""
        return self.incoming.holder.published_derived()

    def register_derived(self, name: str, value_type: BuiltinType | None = None) -> bool:
        """Keep a derived value from now on; return False if it is not published, or of another
        type.

        `voltage.register_derived("average_10")`
        """
        return self.incoming.holder.register_derived(name, value_type)

    def unregister_derived(self, name: str) -> bool:
        """Stop keeping a derived value; return whether it was kept:
        `voltage.unregister_derived("average_10")`."""
        return self.incoming.holder.unregister_derived(name)

    def derived_state(self, name: str) -> DerivedState:
        """Return the state of a derived value: `voltage.derived_state("average_10")`."""
        return self.incoming.holder.derived_state(name)

    # Push: streams and batches.

    def events(self, events_max: int = STREAM_EVENTS_MAX) -> EventStream:
        """Return a stream of the events from now on: `async for event in voltage.events(): ...`.

        A reader that falls `events_max` behind loses the oldest, which `dropped` counts.
        """
        box: Mailbox[Delivery] = Mailbox(whole_number("events_max", events_max))
        with self._lock:
            self.incoming.streams = (*self.incoming.streams, box)
        if self.is_over:  # Checked after adding, so that a concurrent end is not missed.
            box.end()
        return EventStream(box, partial(self._leave, box))

    async def batches(self) -> AsyncGenerator[Samples, None]:
        """Yield batches as they come, as NumPy arrays of `SAMPLE`; subscribe with `keep_events`.

        `async for batch in voltage.batches(): batch["value"].view(np.float64).mean()`
        """
        box = self._batches()
        while True:
            with box.reading():
                if not await box.wait_async():
                    return
                batch, _ = self._gather(box, STREAM_EVENTS_MAX)
            yield batch

    def read(self, events_max: int = STREAM_EVENTS_MAX, timeout_s: float | None = 0) -> Samples:
        """Return the events since the last read as a NumPy array of `SAMPLE`, oldest first.

        `voltage.read(timeout_s=1.0)` waits for the first one; subscribe with `keep_events`.
        """
        return self._read(events_max, timeout_s)[0]

    def read_arrow(
        self, events_max: int = STREAM_EVENTS_MAX, timeout_s: float | None = 0
    ) -> pa.RecordBatch:
        """Return the same events as `read`, as an Arrow record batch: values by their type, records
        field by field.

        `voltage.read_arrow().to_pandas()` needs pyarrow: `pip install gridstat[arrow]`.
        """
        batch, options = self._read(events_max, timeout_s)
        return arrow_batch(batch, options, self.variable)

    @property
    def dropped(self) -> int:
        """Number of events that came, and were lost because a reader was too slow:
        `voltage.dropped`.

        They count as delivered in the ledger: the grid has kept its contract.
        """
        with self._lock:
            batches = 0 if self.incoming.batches is None else self.incoming.batches.dropped
            streams = sum(box.dropped for box in self.incoming.streams)
            return self._dropped_before + batches + streams

    # The contract.

    @property
    def contract(self) -> Contract:
        """The present contract: quality, paths and prediction: `voltage.contract.paths`."""
        return self._contract

    def changes(self, changes_max: int = STREAM_CHANGES_MAX) -> ChangeStream:
        """Return a stream of its changes from now on: `for change in voltage.changes()`, or `async
        for`.

        Moved, lowered, broken, purged, restored, and an edge lost or back; of more than
        `changes_max` that wait to be read the oldest are dropped and counted.
        """
        return self.followers.stream(changes_max)

    def change(
        self, qos: QosRequest | None = None, modes: Mapping[int, QosRequest] | None = None
    ) -> None:
        """Request another quality; a refusal raises and leaves the old contract.

        `voltage.change(gridstat.qos(rate=30, latency_ms=20))`; `modes` is for later, and refused.
        """
        self._check()
        self._keeper.change(self, modal_qos(qos, None, modes))

    def unsubscribe(self) -> None:
        """End it: `voltage.unsubscribe()`; what was held can still be read."""
        if not self.is_over:
            self._keeper.unsubscribe(self)

    def ledger(self) -> Ledger:
        """Return the ledger of the contract so far: `voltage.ledger().lost`."""
        return self._keeper.ledger(self)

    def takes_notice(self, order: tuple[int, int]) -> bool:
        """Return whether a notice or answer of this order is new; called by the connection.

        (0, 0) is the order of a broker that does not number them; such a notice is always new.
        """
        if not any(order):
            return True
        if order <= self.notice_order:
            return False
        self.notice_order = order
        return True

    def replace_contract(self, outcome: GrantedOutcome) -> None:
        """Set another contract from the cloud; called by the connection."""
        self._contract = contract_of(outcome)

    def regrant_contract(self, outcome: GrantedOutcome) -> None:
        """Set the contract that the application requested, or that the cloud restored.

        A notice that the broker sent after this decision, and that has come first, stays.
        """
        self.granted_contract = contract_of(outcome)
        if self.takes_notice(outcome.order):
            self._contract = self.granted_contract

    def end(self, code: int = 0) -> None:
        """End the subscription; called by the connection."""
        self.is_over = True
        if code:
            self.incoming.holder.set_error_code(code)
        for stream in self.incoming.streams:
            stream.end()
        self.followers.end()
        if self.incoming.batches is not None:
            self.incoming.batches.end()

    def _check(self) -> None:
        if self.is_over:
            raise Misuse(f"the subscription to {self.name} has ended", hint="subscribe again")

    def _leave(self, box: Mailbox[Delivery]) -> None:
        with self._lock:
            left = tuple(each for each in self.incoming.streams if each is not box)
            self.incoming.streams = left
            self._dropped_before += box.dropped

    def _read(self, events_max: int, timeout_s: float | None) -> tuple[Samples, list[bytes]]:
        box = self._batches()
        events_max = whole_number("events_max", events_max)
        if timeout_s is not None:
            check_wait("timeout_s", timeout_s)
        with box.reading():
            box.wait(timeout_s)
            return self._gather(box, events_max)

    def _batches(self) -> Mailbox[Batch]:
        if self.incoming.batches is None:
            raise Misuse(
                f"{self.name} keeps no events to read",
                hint="subscribe with keep_events, say 65_536",
            )
        return self.incoming.batches

    @staticmethod
    def _gather(box: Mailbox[Batch], events_max: int) -> tuple[Samples, list[bytes]]:
        parts: list[Samples] = []
        options: list[bytes] = []
        left = events_max
        while left > 0 and (found := box.take()) is not None:
            batch, its_options, variable = found
            if len(batch) > left:
                box.put_back((batch[left:], its_options[left:], variable), len(batch) - left)
                batch, its_options = batch[:left], its_options[:left]
            parts.append(batch)
            options += its_options or [b""] * len(batch)
            left -= len(batch)
        return (np.concatenate(parts) if parts else np.empty(0, SAMPLE)), options


class EventStream:
    """Stream of events, made by `voltage.events()`: `async for event in stream`; ends with the
    subscription.

    Nothing more is kept for it once it is closed or not referenced.
    """

    def __init__(self, box: Mailbox[Delivery], leave: Callable[[], object]) -> None:
        self._box = box
        self._leave = weakref.finalize(self, leave)
        self._leave.atexit = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        with self._box.reading():
            while (found := self._box.take()) is None:
                if not await self._box.wait_async():
                    raise StopAsyncIteration
            return found

    @property
    def dropped(self) -> int:
        """Number of events lost because the reader was too slow: `stream.dropped`."""
        return self._box.dropped

    async def aclose(self) -> None:
        """Stop the stream: `await stream.aclose()`, or `async with aclosing(voltage.events())`."""
        self._leave()
        self._box.end()


def read_decoded(subscription: Subscription) -> list[Delivery]:
    """Return the events since the last read, each with its own value, oldest first.

    Commands print them. An event that does not have the registered layout is left out.
    """
    box = subscription.incoming.batches
    assert box is not None, "a command subscribes with keep_events"
    found: list[Delivery] = []
    with box.reading():
        while (taken := box.take()) is not None:
            batch, options, variable = taken
            decoder = EventDecoder(variable)
            rows = cast("list[Row]", batch.tolist())
            for row, its_options in zip(rows, options or [b""] * len(rows), strict=True):
                with suppress(MalformedOption):
                    found.append(decoder.delivery(row, its_options, frozenset()))
    return found


def without_oldest(batch: Batch, events: int) -> Batch:
    """Return a batch without its oldest events, which it does not keep in memory."""
    samples, options, variable = batch
    return samples[events:].copy(), options[events:], variable
