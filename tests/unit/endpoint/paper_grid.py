"""A connection's insides on paper: a cloud that answers at once, a receiver that only counts."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gridstat.core.samples import SAMPLE
from gridstat.endpoint.arrival_clock import Arrival
from gridstat.endpoint.change_notifier import ChangeNotifier
from gridstat.endpoint.deliverer import Deliverer
from gridstat.endpoint.expected_variables import ExpectedVariables
from gridstat.endpoint.subscription_registry import SubscriptionRegistry
from gridstat.model.identifiers import VariableId
from gridstat.model.qos import Qos
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.codec.value import ValueCodec
from gridstat.net.command.endpoint_messages import GrantedOutcome, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.core.samples import Samples, VariableCounters
    from gridstat.endpoint.change import Change
    from gridstat.model.status import Value
    from gridstat.net.command.endpoint_messages import EndPointCommand

MS = 1_000_000
WALL_AHEAD_NS = 1_000_000 * MS
"""Lead of the wall clock over the steady one."""
HUNDREDTH = Period(1, 100)
Result = TypeVar("Result")


def variable(
    name: str = "c1/a/v",
    variable_id: int = 1,
    *,
    value_type: BuiltinType = BuiltinType.FLOAT64,
    period: Period | None = HUNDREDTH,
) -> StatusVariable:
    return StatusVariable(VariableId(variable_id), name, value_type, period)


def granted(
    of: StatusVariable, subscription_id: int = 1, *, every: int = 1, latency_ms: int = 20
) -> GrantedOutcome:
    qos = Qos(every=every, latency_us=latency_ms * 1_000, redundancy=1, priority=3)
    return GrantedOutcome(subscription_id=subscription_id, variable=of, granted={0: qos})


@dataclass(slots=True)
class PaperClock:
    """Both clocks, which advance only on request."""

    steady: int = 0

    def steady_ns(self) -> int:
        return self.steady

    def posix_ns(self) -> int:
        return self.steady + WALL_AHEAD_NS


@dataclass(slots=True)
class PaperReceiver:
    """Notes what is expected; its counters are what a test says."""

    expected: dict[int, tuple[Period | None, int]] = field(default_factory=dict)
    terms: dict[int, tuple[Period | None, int, int]] = field(default_factory=dict)
    counted: dict[int, VariableCounters] = field(default_factory=dict)

    def expect(
        self,
        variable_id: int,
        period: Period | None,
        phase_ns: int = 0,
        *,
        every: int = 1,
        deadline_ns: int = 0,
    ) -> None:
        del phase_ns
        terms = (period, every, deadline_ns)
        if self.terms.setdefault(variable_id, terms) != terms:
            self.counted.pop(variable_id, None)  # Other terms are counted from nothing.
        self.expected[variable_id], self.terms[variable_id] = (period, every), terms

    def forget(self, variable_id: int) -> None:
        del self.expected[variable_id], self.terms[variable_id]

    def variable_counters(self, variable_id: int) -> VariableCounters:
        return self.counted.get(variable_id, counters())

    def fileno(self) -> int:
        return -1


def counters(**counted: int) -> VariableCounters:
    return {
        "delivered": counted.get("delivered", 0),
        "duplicate": counted.get("duplicate", 0),
        "late": counted.get("late", 0),
        "unknown": counted.get("unknown", 0),
        "missing": counted.get("missing", 0),
        "extra": 0,
        "too_old": 0,
        "too_old_by": [0, 0, 0, 0],
        "ring_full": counted.get("ring_full", 0),
        "first_slot": counted.get("first_slot", 0),
        "last_slot": counted.get("last_slot", 0),
        "copies": [counted.get("delivered", 0), counted.get("duplicate", 0)],
        "passed": 0,
        "came": [0, 0, 0, 0],
        "first": [0, 0, 0, 0],
        "late_by": [0, 0, 0, 0],
    }


@dataclass(slots=True)
class PaperCloud:
    """Answers each command with what was laid ready, in order; keeps the commands."""

    ready: list[tuple[Outcome, ...]] = field(default_factory=list)
    newest: tuple[bytes, ...] = ()
    asked: list[EndPointCommand] = field(default_factory=list)

    def ask(
        self,
        command: EndPointCommand,
        use: Callable[[tuple[Outcome, ...], tuple[bytes, ...]], Result],
    ) -> Future[Result]:
        self.asked.append(command)
        future: Future[Result] = Future()
        try:
            outcomes = self.ready.pop(0) if self.ready else ()
            future.set_result(use(outcomes, self.newest))
        except Exception as error:
            future.set_exception(error)
        return future


class PaperGrid:
    """The subscribing side of a connection, its delivering thread run by the test itself."""

    def __init__(self) -> None:
        self.clock = PaperClock()
        self.cloud = PaperCloud()
        self.receiver = PaperReceiver()
        self.deliverer = Deliverer(self.receiver, self.clock)  # type: ignore[arg-type]
        self.listening = ExpectedVariables(self.receiver, self.deliverer, self.clock)
        self.told: list[Change] = []
        """All changes that the callback of the connection received."""
        self.notifier = ChangeNotifier(self.deliverer.post, self.clock, self.told.append)
        self.book = SubscriptionRegistry(
            self.cloud, self.listening, self.deliverer, self.clock, self.notifier
        )

    def close(self) -> None:
        self.deliverer.close()

    def work(self) -> None:
        """Do the work of the delivering thread between two batches."""
        self.deliverer.run_posted()
        self.deliverer.fire_due(self.arrival())
        self.deliverer.caught_up_ns = self.clock.steady

    def arrival(self) -> Arrival:
        return Arrival(self.clock.steady_ns(), self.clock.posix_ns())

    def send(
        self,
        of: StatusVariable,
        *events: tuple[float, Value],
        latency_ms: float = 2,
        flags: int = 0,
        derived: Sequence[float] = (),
    ) -> None:
        """Let events arrive in one batch; each is its stamp in ms since the start, and a value."""
        rows, options = [], b""
        codec = ValueCodec(of)
        for sequence, (created_ms, value) in enumerate(events):
            created_ns = int(created_ms * MS) + WALL_AHEAD_NS
            payload = codec.encode(value, derived)
            word = int.from_bytes(payload[:8], "big", signed=True)
            received_ns = created_ns + int(latency_ms * MS)
            row = (created_ns, received_ns, of.variable_id, of.option_count, flags, sequence, word)
            rows.append(row)
            options += payload[8:]
        newest_ns = max(row[1] for row in rows) - WALL_AHEAD_NS
        self.clock.steady = max(self.clock.steady, newest_ns)
        batch: Samples = np.array(rows, SAMPLE)
        self.deliverer.deliver(batch, options, self.arrival())

    def wait_until(self, ms: float) -> None:
        """Let time pass, millisecond by millisecond."""
        while self.clock.steady < int(ms * MS):
            self.clock.steady = min(self.clock.steady + MS, int(ms * MS))
            self.work()


class PaperLink:
    """The parts of a connection that groups need."""

    def __init__(self, grid: PaperGrid) -> None:
        self.name = "c1/reader"
        self.attached_edges = ("c1/e0",)
        self.subscriptions = grid.book
        self.deliverer = grid.deliverer
        self.cloud: PaperCloud = grid.cloud
        self.ask = grid.cloud.ask

    def close(self, *, keep: bool = False) -> None:
        del keep
        self.subscriptions.end()
