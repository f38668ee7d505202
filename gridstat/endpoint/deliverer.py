"""Takes events out of the receiver and hands them to subscriptions, in one thread of its own.

The user's callbacks run here, so a slow one delays other deliveries but never the session with the
cloud; what does not fit into the receiver's ring meanwhile is counted there. The same thread
watches over what is due: events that have not come, and sets that are not complete.
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
from gridstat.endpoint.tap import TAPPED_EVENTS_MAX, Gathering
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
"""After so many variables whoever taps the connection gets what has come meanwhile."""
NS_PER_MS: Final = 1_000_000
WAIT_MS_MAX: Final = 1_000
NEVER_NS: Final = 2**64


class Taker(Protocol):
    """Somebody who takes a variable's events; `options` has one entry for each, or none at all."""

    def take(self, batch: Samples, options: list[bytes], arrival: Arrival) -> None:
        """Events of one variable, in the order of their arrival."""
        ...

    def hold(self, row: Row, options: bytes) -> bool:
        """An event that an edge router had kept; whether it is news."""
        ...

    @property
    def next_due_ns(self) -> int | None:
        """When something is due to it, if at all."""
        ...

    def fire(self, arrival: Arrival) -> None:
        """That time has come."""
        ...


class Timed(Protocol):
    """Somebody who has something due at a time of the steady clock."""

    @property
    def next_due_ns(self) -> int | None:
        """When, if at all."""
        ...

    def fire(self, arrival: Arrival) -> None:
        """That time has come."""
        ...


class Deliverer:
    """Each event goes once to each taker of its variable; posted work runs between batches."""

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
        """Whatever arrived before this instant of the steady clock has been handed out."""
        self.failures = FailureReports(clock.steady_ns)
        self._gathering: Gathering | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gs-delivery", daemon=True)

    def start(self) -> None:
        """Start delivering."""
        self._thread.start()

    def close(self) -> None:
        """Finish the batch in hand, and end the thread."""
        self._is_over.set()
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
        """Hand this variable's events to one more taker."""
        with self._lock:
            self._takers[variable_id] = (*self._takers.get(variable_id, ()), taker)

    def remove(self, variable_id: int, taker: Taker) -> bool:
        """No longer; whether anybody else still takes the variable."""
        with self._lock:
            left = tuple(each for each in self._takers.get(variable_id, ()) if each is not taker)
            if left:
                self._takers[variable_id] = left
            else:
                self._takers.pop(variable_id, None)
            return bool(left)

    def takers(self, variable_id: int) -> tuple[Taker, ...]:
        """Who takes this variable's events."""
        return self._takers.get(variable_id, ())

    def watch(self, timed: Timed) -> None:
        """Look after what is due to it."""
        self._timed[timed] = None

    def unwatch(self, timed: Timed) -> None:
        """No longer."""
        self._timed.pop(timed, None)

    def tap(self, tap: Tap) -> None:
        """Hand everything to one more, as it comes."""
        gathering = Gathering(tap, self.deliver, self._clock.steady_ns, self.failures)
        self.watch(gathering)
        self._gathering = gathering

    def post(self, work: Callable[[], object]) -> None:
        """Run something on the delivering thread, soon."""
        self._posted.append(work)
        self._wake()

    def later(self, at_ns: int, work: Callable[[], object]) -> None:
        """Run something on the delivering thread at a time of the steady clock."""

        def begin() -> None:
            shot = _OneShot(at_ns, work, self)
            self.watch(shot)
            self.stir(shot)

        self.post(begin)

    # On the delivering thread.

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._receiver.fileno(), select.POLLIN)
        poll.register(self._wake_out, select.POLLIN)
        while not self._is_over.is_set():
            began_ns = self._clock.steady_ns()
            poll.poll(self._wait_ms())
            self._drain_wake()
            self.run_posted()
            if self._is_over.is_set():
                return  # It may have been a callback that closed the connection, receiver and all.
            self.pass_on(began_ns)

    def pass_on(self, began_ns: int) -> None:
        """Take one batch and hand it on; `began_ns` was before we waited for it.

        If that is all, we have caught up, but not up to now: after a pause of this process the
        receiving thread comes to it only while we wait again.
        """
        gathering = self._gathering
        if gathering is not None:
            arrival, is_all = self._tap_batch(gathering)
            if is_all:
                gathering.emptied_ns = began_ns
            self.stir(gathering)
            self.fire_due(arrival)
            self.caught_up_ns = gathering.caught_up_ns
            return
        batch, options = self._receiver.read_with_options(BATCH_EVENTS_MAX, 0)
        arrival = self._observe()
        if len(batch):
            self.deliver(batch, options, arrival)
        self.fire_due(arrival)
        if len(batch) < BATCH_EVENTS_MAX:
            self.caught_up_ns = began_ns

    def _tap_batch(self, gathering: Gathering) -> tuple[Arrival, bool]:
        """One batch through the tap; when that was, and whether nothing is left."""
        batch, options = self._receiver.read_with_options(TAPPED_EVENTS_MAX, 0)
        arrival = self._observe()
        if len(batch):
            gathering.add(batch, options, arrival)
        return arrival, len(batch) < TAPPED_EVENTS_MAX

    def run_posted(self) -> None:
        """Do what others have posted; it must not stop the deliveries, whatever it is."""
        if self._posted and self._gathering is not None:
            self._gathering.hand_out()  # What came under the old terms is judged by them.
        while self._posted:
            work = self._posted.popleft()
            try:
                work()
            except Exception:
                callback = work.func if isinstance(work, partial) else work
                self.failures.report(callback, "callback_failed")

    def deliver(self, batch: Samples, options: bytes, arrival: Arrival) -> None:
        """Split a batch by variables and hand it out."""
        arrival = self._settled(batch, arrival)
        for index, (part, its_options) in enumerate(_by_variable(batch, options), start=1):
            if index % TAPPED_PARTS == 0 and self._gathering and not self._is_over.is_set():
                self._tap_batch(self._gathering)
            for taker in self.takers(int(part[0]["variable_id"])):
                try:
                    taker.take(part, its_options, arrival)
                    self.stir(taker)
                except Exception:
                    self.failures.report(taker, "taker_failed events=%d", len(part))

    def fire_due(self, arrival: Arrival) -> None:
        """Let everybody act whose time has come."""
        while self._due and self._due[0][0] <= arrival.steady_ns:
            queued_ns, _, timed = heapq.heappop(self._due)
            if self._queued.get(timed) != queued_ns:
                continue  # It has moved forward since.
            del self._queued[timed]
            if timed not in self._timed:
                continue
            due_ns = timed.next_due_ns
            if due_ns is not None and due_ns <= arrival.steady_ns:
                try:
                    timed.fire(arrival)
                except Exception:
                    self.failures.report(timed, "watch_failed")
            self.stir(timed)

    def stir(self, timed: Timed) -> None:
        """Something has come to it, so that something may now be due; on this thread only.

        One place in the queue is enough, the earliest: when that time comes it is asked again.
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
        """After a jump of the wall clock, let the first good event decide what to believe."""
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
    """Work that is due once."""

    def __init__(self, at_ns: int, work: Callable[[], object], deliverer: Deliverer) -> None:
        self.next_due_ns: int | None = at_ns
        self._work = work
        self._deliverer = deliverer

    def fire(self, _arrival: Arrival) -> None:
        self.next_due_ns = None
        self._deliverer.unwatch(self)
        self._work()


def _by_variable(batch: Samples, options: bytes) -> list[tuple[Samples, list[bytes]]]:
    """The batch cut by variables, each part in the order of arrival, with its options."""
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
