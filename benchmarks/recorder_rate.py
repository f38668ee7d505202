"""Events a second that a recorder makes durable: from the socket to the manifest on the disk.

Everything between is the recorder's own: the receiver in C, the tap, the ledgers of all contracts,
the ring, and the writing thread with its syncs. Only the cloud is left out: a process beside it
sends what an edge router would, all variables at each slot, in full datagrams over loopback.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.errors import BenchmarkError
from gridstat.core import _ends
from gridstat.endpoint.change_stream import ChangeFollowers
from gridstat.endpoint.deliverer import Deliverer
from gridstat.endpoint.expected_variables import ExpectedVariables
from gridstat.endpoint.failure_reports import FailureReports
from gridstat.endpoint.options import EventHandlers
from gridstat.endpoint.subscriber import Subscription
from gridstat.endpoint.subscription_dispatch import SubscriptionDispatch
from gridstat.model.identifiers import VariableId
from gridstat.model.qos import Qos
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.clock import SystemClock
from gridstat.net.command.endpoint_messages import GrantedOutcome
from gridstat.record.log_settings import RecorderSettings
from gridstat.record.recorder import Recorder
from gridstat.record.writing_thread import WritingThread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gridstat.endpoint.ledger import Ledger
    from gridstat.model.qos import ModalQos

VARIABLES: Final = 1_000
RING_EVENTS: Final = 1 << 20
SAFE_S_MAX: Final = 30.0
LATENCY_US: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class RecorderRun:
    """One load, and its result.

    `seconds` go from the first event sent to the last durable one; `cpu_us_per_event` is of all
    threads of the recorder.
    """

    offered: int
    recorded: int
    seconds: float
    cpu_us_per_event: float
    log_bytes: int

    @property
    def recorded_per_s(self) -> float:
        return self.recorded / self.seconds

    @property
    def is_whole(self) -> bool:
        """Return whether nothing was lost on the way to the disk."""
        return self.recorded == self.offered


class _Keeper:
    """Keeper of subscriptions without a cloud, which never change."""

    def __init__(self, listening: ExpectedVariables) -> None:
        self._listening = listening

    def change(self, subscription: Subscription, qos: ModalQos) -> None:
        raise AssertionError("nobody changes them")

    def unsubscribe(self, subscription: Subscription) -> None:
        self._listening.end(subscription)

    def ledger(self, subscription: Subscription) -> Ledger:
        return self._listening.ledger(subscription)


class _Tap:
    def __init__(self, recorder: Recorder) -> None:
        self.begin = recorder.begin
        self.take = recorder.take

    def end(self, variable: StatusVariable, every: int, subscription_id: int) -> None:
        pass  # There is no account to update.


def measure_recorder(
    folder: Path, *, rate: int, seconds: float, variables: int = VARIABLES
) -> RecorderRun:
    """Offer `variables * rate` events a second for so long; `folder` must be empty."""
    clock = SystemClock()
    settings = RecorderSettings()
    recorder = Recorder(folder, now_ns=clock.posix_ns, settings=settings)
    receiver = _ends.Receiver(ring_events=RING_EVENTS, option_bytes=1 << 20)
    deliverer = Deliverer(receiver, clock)
    listening = ExpectedVariables(receiver, deliverer, clock)
    writing = WritingThread(recorder, settings.sync_s)
    tap = _Tap(recorder)
    listening.set_tap(tap)
    deliverer.tap(tap)
    _subscribe(listening, variables, rate)
    began_cpu_s = time.process_time()
    try:
        receiver.start()
        deliverer.start()
        writing.start()
        with _load(receiver.ports, variables, rate, seconds) as load:
            offered, began_s = _report_of(load)
            _await_safe(recorder, receiver)
            ended_s = time.monotonic()
    finally:
        deliverer.close()
        writing.close()
        recorder.sync()
        figures = recorder.figures()
        recorder.close()
        receiver.close()
    return RecorderRun(
        offered=offered,
        recorded=figures.recorded,
        seconds=ended_s - began_s,
        cpu_us_per_event=1e6 * (time.process_time() - began_cpu_s) / max(1, figures.recorded),
        log_bytes=figures.log_bytes["events"],
    )


def recorder_rates(folder: Path, rates: Sequence[int], *, seconds: float) -> list[RecorderRun]:
    """Run each rate, each in its own folder that is removed again."""
    runs = []
    for rate in rates:
        place = folder / f"rate-{rate}"
        runs.append(measure_recorder(place, rate=rate, seconds=seconds))
        shutil.rmtree(place)
    return runs


def best_rate(runs: Sequence[RecorderRun]) -> float:
    """Return the most events a second of a run without loss; 0 if there is none."""
    return max((run.recorded_per_s for run in runs if run.is_whole), default=0.0)


def _await_safe(recorder: Recorder, receiver: _ends.Receiver) -> None:
    """Wait until all events from the receiver are on the disk."""
    deadline_s = time.monotonic() + SAFE_S_MAX
    while recorder.figures().recorded < receiver.counters()["delivered"]:
        if time.monotonic() > deadline_s:
            raise BenchmarkError(f"not all is on the disk after {SAFE_S_MAX:.0f} s")
        time.sleep(0.01)


def _subscribe(listening: ExpectedVariables, variables: int, rate: int) -> None:
    keeper, failures = _Keeper(listening), FailureReports()
    qos = Qos(every=1, latency_us=LATENCY_US, redundancy=1, priority=3)
    for number in range(1, variables + 1):
        variable = StatusVariable(
            VariableId(number), f"c1/bench/v{number}", BuiltinType.FLOAT64, Period(1, rate)
        )
        outcome = GrantedOutcome(subscription_id=number, variable=variable, granted={0: qos})
        incoming = SubscriptionDispatch(variable.name, EventHandlers(), failures)
        followers = ChangeFollowers(_nobody)
        listening.begin(Subscription(keeper, incoming, outcome, f"s{number}", followers), 1)


def _nobody(_work: Callable[[], object]) -> None:
    """Ignore changes, since there is no session."""


def _load(
    ports: tuple[int, int], variables: int, rate: int, seconds: float
) -> subprocess.Popen[str]:
    arguments = [str(each) for each in (*ports, variables, rate, seconds)]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.recorder_load", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )


def _report_of(load: subprocess.Popen[str]) -> tuple[int, float]:
    """Return the number of events sent, and the time of the first."""
    assert load.stdout is not None
    fields = load.stdout.readline().split()
    if not fields:
        raise BenchmarkError("the load ended before it had sent everything")
    return int(fields[0]), float(fields[1])
