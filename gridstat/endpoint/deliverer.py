"""Delivery of events from the receiver to subscriptions, in one thread of its own.

The user's callbacks run here, so a slow one delays other deliveries but never the session with the
cloud; events that do not fit into the receiver's ring meanwhile are counted there. The same thread
watches deadlines: events that have not come, and sets that are not complete.
"""

from __future__ import annotations

import heapq
import os
import select
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from gridstat.endpoint.arrival_clock import Arrival, ArrivalClock
from gridstat.endpoint.delivery import UNTIMELY_BITS
from gridstat.endpoint.failure_reports import FailureReports
from gridstat.endpoint.tap import TAPPED_EVENTS_MAX, TapBuffer
from gridstat.model.status import OPTION_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.core import _ends
    from gridstat.core.samples import Samples
    from gridstat.endpoint.delivery import Row
    from gridstat.endpoint.tap import Tap
    from gridstat.net.clock import Clock

BATCH_EVENTS_MAX: Final = 8_192
TAPPED_PARTS: Final = 64
"""Variables after which the tap gets the events that have come meanwhile."""
NS_PER_MS: Final = 1_000_000
WAIT_MS_MAX: Final = 1_000
NEVER_NS: Final = 2**64


class Taker(Protocol):
    """Consumer of a variable's events; `options` has one entry for each event, or is empty."""

    def take(self, batch: Samples, options: list[bytes], arrival: Arrival) -> None:
        """Take events of one variable, in the order of their arrival."""
        ...

    def hold(self, row: Row, options: bytes) -> bool:
        """Take an event that an edge router had cached; return whether it is new."""
        ...

    @property
    def next_due_ns(self) -> int | None:
        """Next time at which `fire` must be called, or None."""
        ...

    def fire(self, arrival: Arrival) -> None:
        """Act: the time `next_due_ns` has come."""
        ...


class Timed(Protocol):
    """Object with work due at a time of the steady clock."""

    @property
    def next_due_ns(self) -> int | None:
        """Next time at which `fire` must be called, or None."""
        ...

    def fire(self, arrival: Arrival) -> None:
        """Act: the time `next_due_ns` has come."""
        ...


class Deliverer:
    """Passes each event once to each taker of its variable; runs posted work between batches."""

    def __init__(self, receiver: _ends.Receiver, clock: Clock) -> None:
        self._receiver = receiver
        self._clock = clock
        self._arrivals = ArrivalClock(clock.posix_ns(), clock.steady_ns())
        self._takers: dict[int, tuple[Taker, ...]] = {}
        self._timed: dict[Timed, None] = {}
        self._queued: dict[Timed, int] = {}
        self._due: list[tuple[int, int, Timed]] = []
        self._order = count()
        self._posted: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self.caught_up_ns = clock.steady_ns()
        """Events that arrived before this time of the steady clock have been delivered."""
        self.failures = FailureReports(clock.steady_ns)
        self._tap_buffer: TapBuffer | None = None
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gs-delivery", daemon=True)

    def start(self) -> None:
        """Start delivering."""
        self._thread.start()

    def close(self) -> None:
        """Finish the present batch, and end the thread."""
        self._is_ending.set()
        self._wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        with self._lock:
            wake_in, self._wake_in = self._wake_in, -1
        if wake_in >= 0:
            os.close(wake_in)
            os.close(self._wake_out)
            self.failures.end()

    def add(self, variable_id: int, taker: Taker) -> None:
        """Add a taker of this variable's events."""
        with self._lock:
            self._takers[variable_id] = (*self._takers.get(variable_id, ()), taker)

    def remove(self, variable_id: int, taker: Taker) -> bool:
        """Remove a taker; return whether the variable has another one."""
        with self._lock:
            left = tuple(each for each in self._takers.get(variable_id, ()) if each is not taker)
            if left:
                self._takers[variable_id] = left
            else:
                self._takers.pop(variable_id, None)
            return bool(left)

    def takers(self, variable_id: int) -> tuple[Taker, ...]:
        """Return the takers of this variable's events."""
        return self._takers.get(variable_id, ())

    def watch(self, timed: Timed) -> None:
        """Call the object when it is due."""
        self._timed[timed] = None

    def unwatch(self, timed: Timed) -> None:
        """Stop calling the object."""
        self._timed.pop(timed, None)

    def tap(self, tap: Tap) -> None:
        """Pass all events to a tap as well."""
        tap_buffer = TapBuffer(tap, self.deliver, self._clock.steady_ns, self.failures)
        self.watch(tap_buffer)
        self._tap_buffer = tap_buffer

    def post(self, work: Callable[[], object]) -> None:
        """Run work on the delivering thread, soon."""
        self._posted.append(work)
        self._wake()

    def later(self, at_ns: int, work: Callable[[], object]) -> None:
        """Run work on the delivering thread at a time of the steady clock."""

        def begin() -> None:
            shot = _OneShot(at_ns, work, self)
            self.watch(shot)
            self.reschedule(shot)

        self.post(begin)

    # On the delivering thread.

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._receiver.fileno(), select.POLLIN)
        poll.register(self._wake_out, select.POLLIN)
        while not self._is_ending.is_set():
            began_ns = self._clock.steady_ns()
            poll.poll(self._wait_ms())
            self._drain_wake()
            self.run_posted()
            if self._is_ending.is_set():
                return  # A callback may have closed the connection with its receiver.
            self.pass_on(began_ns)

    def pass_on(self, began_ns: int) -> None:
        """Take one batch and deliver it; `began_ns` was before the wait for it.

        A batch that is not full means that delivery has caught up with `began_ns`, not with now:
        after a pause of this process the receiving thread reads its sockets only while this thread
        waits again.
        """
        tap_buffer = self._tap_buffer
        if tap_buffer is not None:
            arrival, is_all = self._tap_batch(tap_buffer)
            if is_all:
                tap_buffer.emptied_ns = began_ns
            self.reschedule(tap_buffer)
            self.fire_due(arrival)
            self.caught_up_ns = tap_buffer.caught_up_ns
            return
        batch, options = self._receiver.read_with_options(BATCH_EVENTS_MAX, 0)
        arrival = self._observe()
        if len(batch):
            self.deliver(batch, options, arrival)
        self.fire_due(arrival)
        if len(batch) < BATCH_EVENTS_MAX:
            self.caught_up_ns = began_ns

    def _tap_batch(self, tap_buffer: TapBuffer) -> tuple[Arrival, bool]:
        """Pass one batch through the tap; return its arrival, and whether no events are left."""
        batch, options = self._receiver.read_with_options(TAPPED_EVENTS_MAX, 0)
        arrival = self._observe()
        if len(batch):
            tap_buffer.add(batch, options, arrival)
        return arrival, len(batch) < TAPPED_EVENTS_MAX

    def run_posted(self) -> None:
        """Run posted work; its failures never stop deliveries."""
        if self._posted and self._tap_buffer is not None:
            self._tap_buffer.hand_out()  # Events that came under the old terms are judged by them.
        while self._posted:
            work = self._posted.popleft()
            try:
                work()
            except Exception:
                callback = work.func if isinstance(work, partial) else work
                self.failures.report(callback, "callback_failed")

    def deliver(self, batch: Samples, options: bytes, arrival: Arrival) -> None:
        """Split a batch by variables and deliver the parts."""
        arrival = self._settled(batch, arrival)
        for index, (part, its_options) in enumerate(_by_variable(batch, options), start=1):
            if index % TAPPED_PARTS == 0 and self._tap_buffer and not self._is_ending.is_set():
                self._tap_batch(self._tap_buffer)
            for taker in self.takers(int(part[0]["variable_id"])):
                try:
                    taker.take(part, its_options, arrival)
                    self.reschedule(taker)
                except Exception:
                    self.failures.report(taker, "taker_failed events=%d", len(part))

    def fire_due(self, arrival: Arrival) -> None:
        """Call all objects that are due."""
        while self._due and self._due[0][0] <= arrival.steady_ns:
            queued_ns, _, timed = heapq.heappop(self._due)
            if self._queued.get(timed) != queued_ns:
                continue  # A newer, earlier entry exists.
            del self._queued[timed]
            if timed not in self._timed:
                continue
            due_ns = timed.next_due_ns
            if due_ns is not None and due_ns <= arrival.steady_ns:
                try:
                    timed.fire(arrival)
                except Exception:
                    self.failures.report(timed, "watch_failed")
            self.reschedule(timed)

    def reschedule(self, timed: Timed) -> None:
        """Queue an object at its present due time; on this thread only.

        One queue entry is enough, the earliest: the due time is read again when it comes.
        """
        due_ns = timed.next_due_ns
        if due_ns is None or timed not in self._timed:
            return
        if due_ns < self._queued.get(timed, NEVER_NS):
            self._queued[timed] = due_ns
            heapq.heappush(self._due, (due_ns, next(self._order), timed))

    def _observe(self) -> Arrival:
        wall_ns, steady_ns = self._clock.posix_ns(), self._clock.steady_ns()
        self._arrivals.observe(wall_ns, steady_ns)
        return Arrival(steady_ns, wall_ns, self._arrivals.correction_ns)

    def _settled(self, batch: Samples, arrival: Arrival) -> Arrival:
        """Settle the clock, after a jump of the wall clock, by the first event of good time."""
        if not arrival.correction_ns:
            return arrival
        good = batch[(batch["flags"] & UNTIMELY_BITS) == 0]
        if not len(good):
            return arrival
        self._arrivals.settle(int(good[0]["received_ns"]) - int(good[0]["created_ns"]))
        return Arrival(arrival.steady_ns, arrival.wall_ns, self._arrivals.correction_ns)

    def _wait_ms(self) -> int:
        if self._posted:
            return 0
        if not self._due:
            return WAIT_MS_MAX
        left_ns = self._due[0][0] - self._clock.steady_ns()
        return max(0, min(WAIT_MS_MAX, -(-left_ns // NS_PER_MS)))

    def _wake(self) -> None:
        with self._lock:
            if self._wake_in >= 0:
                with suppress(BlockingIOError):  # A full pipe wakes it as well.
                    os.write(self._wake_in, b"!")

    def _drain_wake(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_out, 65_536)


class _OneShot:
    """Work that runs once."""

    def __init__(self, at_ns: int, work: Callable[[], object], deliverer: Deliverer) -> None:
        self.next_due_ns: int | None = at_ns
        self._work = work
        self._deliverer = deliverer

    def fire(self, _arrival: Arrival) -> None:
        self.next_due_ns = None
        self._deliverer.unwatch(self)
        self._work()


def _by_variable(batch: Samples, options: bytes) -> list[tuple[Samples, list[bytes]]]:
    """Return the batch split by variables, each part in the order of arrival, with its options."""
    ids = batch["variable_id"]
    if len(batch) == 1 or (ids == ids[0]).all():
        orders = [np.arange(len(batch))]
    else:
        order = np.argsort(ids, kind="stable")
        cuts = np.flatnonzero(np.diff(ids[order])) + 1
        orders = np.split(order, cuts)
    if not options:
        return [(batch[order], []) for order in orders]
    sizes = batch["option_count"].astype(np.int64) * OPTION_BYTES
    ends = np.cumsum(sizes)
    starts = ends - sizes
    return [
        (batch[order], [options[starts[i] : ends[i]] for i in order.tolist()]) for order in orders
    ]
