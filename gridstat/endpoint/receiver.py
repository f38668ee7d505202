"""Receiver for Python programs: batches, callbacks, an async iterator, newest values.

The thread behind it is C (`core/receiver.c`) and never waits for Python. Reading batches is the
short way; the async iterator is a convenience on top, and a callback costs one Python thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Self, Unpack

import numpy as np

from gridstat.core import _ends
from gridstat.core.end_settings import ReceiverSettings
from gridstat.core.samples import SAMPLE, Sample
from gridstat.endpoint.failure_reports import FailureReports
from gridstat.endpoint.options import check_wait
from gridstat.model.call_options import checked_call, checked_calls
from gridstat.model.errors import Misuse
from gridstat.model.status import OPTION_BYTES, VALUE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    import pyarrow as pa

    from gridstat.core.key_settings import ReceivingState
    from gridstat.core.samples import Samples, VariableCounters
    from gridstat.model.rate_law import Period

EVENTS_MAX = 65_536
"""Default for the largest batch."""


@checked_calls()
class Receiver:
    """Receives events of expected variables; each is delivered once, by one of the methods below.

    Batches, callbacks and the async iterator empty the same ring, so use one of them at a time;
    `newest` is apart from that.

        with Receiver(data_port=4000, urgent_port=4001) as receiver:
            receiver.expect(12, Period(1, 30))
            receiver.start()
            batch = receiver.read(timeout_s=1.0)
    """

    @checked_call(options=ReceiverSettings)
    def __init__(self, **settings: Unpack[ReceiverSettings]) -> None:
        self._end = _ends.Receiver(**settings)
        self._keeps_options = settings.get("option_bytes", 0) > 0
        self._callback: Callable[[Samples], None] | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ports(self) -> tuple[int, int]:
        """The data port and the urgent port."""
        return self._end.ports

    @property
    def is_running(self) -> bool:
        """True if the receiving thread runs."""
        return self._end.is_running

    @property
    def receive_buffer_bytes(self) -> int:
        """Receive buffer that the system granted."""
        return self._end.receive_buffer_bytes

    def expect(
        self,
        variable_id: int,
        period: Period | None,
        phase_ns: int = 0,
        *,
        every: int = 1,
        deadline_ns: int = 0,
    ) -> None:
        """Accept this variable, the first copy of each event; also while running.

        `receiver.expect(12, Period(1, 30))` for thirty a second; None stands for aperiodic. What is
        counted of it goes by `every` and `deadline_ns` (0: none is late); with other ones for a
        known variable the counts restart, while no copy of an earlier event passes again.
        """
        self._end.expect(variable_id, period, phase_ns, every=every, deadline_ns=deadline_ns)

    def forget(self, variable_id: int) -> None:
        """Stop accepting this variable: `receiver.forget(12)`. Its place is free for another."""
        self._end.forget(variable_id)

    def variable_counters(self, variable_id: int) -> VariableCounters:
        """Return the counts of one variable: `receiver.variable_counters(12)["late"]`."""
        return self._end.variable_counters(variable_id)

    def open_source(self, channel_id: int, *, is_sealed: bool = False) -> None:
        """Watch an incoming channel, say an edge router's: `receiver.open_source(7)`.

        Of a watched one, silence and losses are known too. Events are taken from any channel,
        unless the receiver was opened with `only_sources`. A sealed one is taken from only under
        the keys that `set_keys` names.
        """
        self._end.open_source(channel_id, is_sealed)

    def set_keys(self, channel_id: int, keys: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Accept these keys (epoch, key, salt) on a sealed source, and no others:
        `receiver.set_keys(7, [(0, key, salt)])`."""
        self._end.set_keys(channel_id, keys)

    def receiving_state(self, channel_id: int) -> ReceivingState:
        """Return the epochs of a sealed source that were opened, and those without a key:
        `receiver.receiving_state(7)["epochs"]`."""
        return self._end.receiving_state(channel_id)

    def close_source(self, channel_id: int) -> None:
        """Stop watching a channel: `receiver.close_source(7)`."""
        self._end.close_source(channel_id)

    def source_states(self) -> dict[int, dict[str, int]]:
        """Return the state of each watched channel: `receiver.source_states()[7]["silent_ns"]`.

        heard_ns (steady clock, 0: never), silent_ns, datagrams, lost, reordered and probes.
        """
        return self._end.source_states()

    def start(self) -> None:
        """Start receiving: `receiver.start()` after the first `expect`."""
        self._end.start()
        self._start_callbacks()

    def stop(self) -> None:
        """Stop receiving; what has arrived can still be read. `receiver.stop()` may be repeated."""
        self._end.stop()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def close(self) -> None:
        """Stop, and close both ports: `receiver.close()`, or leave the `with` block."""
        self.stop()
        self._end.close()

    def fileno(self) -> int:
        """A descriptor for `select`: readable while events wait, until `read` has found none."""
        return self._end.fileno()

    def read(self, events_max: int = EVENTS_MAX, timeout_s: float | None = 0) -> Samples:
        """Return the waiting events, oldest first, as a NumPy array of `SAMPLE`.

        `receiver.read(timeout_s=1.0)` waits for the first one; None waits as long as it takes. The
        batch is empty after the timeout, or when the receiver was stopped.
        """
        return self._end.read(events_max, _checked(timeout_s))

    def read_records(
        self, events_max: int = EVENTS_MAX, timeout_s: float | None = 0
    ) -> list[tuple[Sample, bytes]]:
        """Return the waiting events, each with its value and options as the bytes of the wire.

        For user records: `codec.decode(payload)` for each `(sample, payload)`. Open the receiver
        with `option_bytes`, or there are no options to read.
        """
        batch, options = self._read_with_options(events_max, timeout_s)
        values = batch["value"].astype(">i8").tobytes()
        taken = []
        at = 0
        for index, row in enumerate(batch.tolist()):
            sample = Sample(*row)
            end = at + OPTION_BYTES * sample.option_count
            value = values[VALUE_BYTES * index : VALUE_BYTES * (index + 1)]
            taken.append((sample, value + options[at:end]))
            at = end
        return taken

    def read_arrow(
        self, events_max: int = EVENTS_MAX, timeout_s: float | None = 0
    ) -> pa.RecordBatch:
        """Return the waiting events as an Arrow record batch with the columns of `SAMPLE`.

        With `option_bytes` there is one more column, `options`. `receiver.read_arrow()` needs
        pyarrow: `pip install gridstat[arrow]`.
        """
        import pyarrow as pa  # Optional: an end-point needs no Arrow to work.

        if not self._keeps_options:
            batch = self._end.read(events_max, _checked(timeout_s))
            return pa.record_batch(_arrow_columns(batch))
        batch, options = self._end.read_with_options(events_max, _checked(timeout_s))
        ends = np.cumsum(batch["option_count"].astype(np.int32) * OPTION_BYTES, dtype=np.int32)
        offsets = np.concatenate([np.zeros(1, np.int32), ends])
        binary = pa.Array.from_buffers(
            pa.binary(), len(batch), [None, pa.py_buffer(offsets), pa.py_buffer(options)]
        )
        return pa.record_batch({**_arrow_columns(batch), "options": binary})

    def on_batch(self, callback: Callable[[Samples], None]) -> None:
        """Call back with every batch, from one Python thread: `receiver.on_batch(show)`.

        A callback that raises is logged and called again with the next batch.
        """
        if self._callback is not None:
            raise Misuse("this receiver has a callback already", hint="call both from one function")
        self._callback = callback
        self._start_callbacks()

    async def batches(self, events_max: int = EVENTS_MAX) -> AsyncGenerator[Samples, None]:
        """Yield batches as they come, until the receiver is stopped.

        `async for batch in receiver.batches(): ...`
        """
        loop = asyncio.get_running_loop()
        has_come = asyncio.Event()
        descriptor = os.dup(
            self.fileno()
        )  # A duplicate: `close` must not close it within the loop.
        loop.add_reader(descriptor, has_come.set)
        try:
            while True:
                has_come.clear()
                batch = self._end.read(events_max)
                if len(batch):
                    yield batch
                elif self._end.is_running:
                    await has_come.wait()
                else:
                    return
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def newest(self, variable_id: int) -> Sample | None:
        """Return the newest event of a variable, None before the first: `receiver.newest(12)`."""
        return self._end.newest(variable_id)

    def counters(self) -> dict[str, int]:
        """Return the counters of all events: `receiver.counters()["delivered"]`.

        in = malformed + policed_source + unknown + duplicate + too_old + policed_jump +
        delivered + ring_full. Apart from that, `kernel_dropped` counts what never came in: messages
        of the kernel that found the socket's buffer full, each of up to 64 datagrams that it had
        joined.
        """
        return self._end.counters()

    def latency_histogram(self) -> list[tuple[int, int]]:
        """Return latencies as (upper bound in ns, events), for events with good time quality.

        `sum(count for _, count in receiver.latency_histogram())`
        """
        return self._end.latency_histogram()

    def thread_cpu_ns(self) -> int:
        """Processor time of the receiving thread: `receiver.thread_cpu_ns()`."""
        return self._end.thread_cpu_ns()

    def _read_with_options(self, events_max: int, timeout_s: float | None) -> tuple[Samples, bytes]:
        if not self._keeps_options:
            raise Misuse(
                "this receiver keeps no options", hint="open it with option_bytes, say 1 << 20"
            )
        return self._end.read_with_options(events_max, _checked(timeout_s))

    def _start_callbacks(self) -> None:
        if self._callback is None or self._thread is not None or not self._end.is_running:
            return
        # A daemon: a program that ends without `stop` must not wait for it.
        self._thread = threading.Thread(
            target=_call_back, args=(self._end, self._callback), name="gs-callback", daemon=True
        )
        self._thread.start()


def _checked(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else check_wait("timeout_s", timeout_s)


def _call_back(core: _ends.Receiver, callback: Callable[[Samples], None]) -> None:
    failures = FailureReports()
    while True:
        batch = core.read(EVENTS_MAX, None)
        if len(batch):
            try:
                callback(batch)
            except Exception:
                failures.report(callback, "callback failed events=%d", len(batch))
        elif not core.is_running:
            return


def _arrow_columns(batch: Samples) -> dict[str, object]:
    return {name: np.ascontiguousarray(batch[name]) for name in SAMPLE.names or ()}
