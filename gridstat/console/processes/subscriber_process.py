"""The process of all subscribers: each has a receiver of its own and a ledger of its slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gridstat.console.grid import subscriber_key
from gridstat.console.simulation.deliveries import Deliveries, Expectation
from gridstat.endpoint import Receiver
from gridstat.model.errors import LinkDown
from gridstat.model.identifiers import VariableId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gridstat.console.grid import Grid, Subscriber
    from gridstat.console.processes.lines import Address, Line
    from gridstat.console.static_plan import StaticPlan

COUNTED = ("duplicate", "malformed", "unknown", "policed_jump", "ring_full")


class SubscriberProcess:
    """Receives from the start, since a router may send as soon as it is connected."""

    def __init__(self, grid: Grid, plan: StaticPlan, *, known: Mapping[str, Address]) -> None:
        self._plan = plan
        self._subscribers: list[ReceivingSubscriber] = []
        try:
            for subscriber in grid.subscribers:
                key = subscriber_key(subscriber.name)
                address = known.get(key, subscriber.endpoint.address)
                self._subscribers.append(ReceivingSubscriber(subscriber, plan, address=address))
        except BaseException:
            self.close()
            raise

    def ready(self) -> Line:
        return {
            "is": "ready",
            "addresses": {
                subscriber_key(entry.subscriber.name): entry.address for entry in self._subscribers
            },
        }

    def handle(self, line: Line) -> Line | None:
        match line["do"]:
            case "connect":
                return {"is": "connected"}  # Who receives need not know who sends.
            case "report":
                self.work()
                return {
                    "is": "report",
                    "subscribers": {
                        entry.subscriber.name: entry.report() for entry in self._subscribers
                    },
                }
            case _:
                return None

    def wait_s(self) -> float | None:
        return None

    def filenos(self) -> Sequence[int]:
        return [entry.receiver.fileno() for entry in self._subscribers]

    def work(self) -> None:
        for entry in self._subscribers:
            entry.drain()

    def close(self) -> None:
        for entry in self._subscribers:
            entry.receiver.close()


class ReceivingSubscriber:
    """One subscriber: what it hears is entered into its ledger, slot by slot."""

    def __init__(self, subscriber: Subscriber, plan: StaticPlan, *, address: Address) -> None:
        self.subscriber = subscriber
        host, data_port, urgent_port = address
        try:
            self.receiver = Receiver(host=host, data_port=data_port, urgent_port=urgent_port)
        except LinkDown as error:
            raise LinkDown(
                f'"{subscriber.name}" {error.args[0]}',
                hint="choose another data_port and urgent_port for it, or 0 to have them chosen",
            ) from error
        self.address: Address = (host, *self.receiver.ports)
        self._deliveries = Deliveries(
            Expectation(
                variable_id=variable.variable_id,
                period=variable.pmu.period,
                every=subscriber.every,
                phase_ns=variable.pmu.phase_ns,
            )
            for variable in plan.variables_of(subscriber)
        )
        for tally in self._deliveries.tallies.values():
            expected = tally.expectation
            self.receiver.expect(expected.variable_id, expected.period, expected.phase_ns)
        self.receiver.start()

    def drain(self) -> None:
        while len(batch := self.receiver.read()):
            rows = zip(
                batch["variable_id"].tolist(),
                batch["created_ns"].tolist(),
                batch["value"].view(np.float64).tolist(),
                strict=True,
            )
            for variable_id, created_ns, value in rows:
                self._deliveries.take(VariableId(variable_id), created_ns, value=value)

    def report(self) -> dict[str, Any]:
        counters = self.receiver.counters()
        return {
            "delivered": self._deliveries.delivered,
            "lost": self._deliveries.lost,
            "misplaced": self._deliveries.misplaced,
            **{name: counters[name] for name in COUNTED},
            "latency": self.receiver.latency_histogram(),
            "variables": {
                str(tally.expectation.variable_id): [
                    tally.first_slot,
                    tally.newest_slot,
                    tally.delivered,
                ]
                for tally in self._deliveries.tallies.values()
            },
        }
