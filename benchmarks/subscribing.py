"""Clients that subscribe all at once in a cloud, and the cost for each kind of process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.cloud_plan import CLOUD, edge_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.cloud_rig import CloudRig
    from benchmarks.processes import Answer, RoleProcess

STORM_S_MAX = 600.0
SETTLE_S = 0.5


@dataclass(frozen=True, slots=True)
class Asked:
    """Form of the requests: variables each, requests pending at each client, the quality."""

    per_request: int
    outstanding: int
    qos: Mapping[str, Any]
    keep_events: int = 0


@dataclass(frozen=True, slots=True)
class Storm:
    """Result of a storm; CPU in seconds over all processes of a kind."""

    granted: int
    failed: int
    reasons: tuple[str, ...]
    seconds: float
    took_ms: tuple[float, ...]
    broker_cpu_s: float
    router_cpu_s: float
    client_cpu_s: float
    requests_per_commit: float

    @property
    def per_s(self) -> float:
        return self.granted / self.seconds if self.seconds else 0.0

    def each_ms(self, cpu_s: float) -> float:
        """Return the milliseconds for each subscription."""
        return 1e3 * cpu_s / max(1, self.granted)


class Subscribers:
    """One publisher and one client at each of the first edges; clients share a few processes."""

    def __init__(self, rig: CloudRig, *, clients: int, processes: int) -> None:
        self._rig = rig
        self.clients = [f"{CLOUD}/client-{number}" for number in range(clients)]
        self.publishers = [f"{CLOUD}/pmu-{number}" for number in range(clients)]
        places = {name: [edge_name(number)] for number, name in enumerate(self.publishers)}
        self.publishing = rig.end_points(places)
        self._processes: dict[RoleProcess, list[str]] = {}
        for first in range(min(processes, clients)):
            names = self.clients[first::processes]
            ends = {name: [edge_name(self.clients.index(name))] for name in names}
            self._processes[rig.end_points(ends)] = names

    def publish(
        self, prefix: str, count: int, period: tuple[int, int], *, step_ns: int = 0
    ) -> list[str]:
        """Publish so many variables of each publisher; return all names, publisher by publisher.

        With `step_ns` each variable is due that much later than the one before.
        """
        question = {"do": "publish", "prefix": prefix, "count": count, "period": period}
        steps = {"phase_step_ns": count * step_ns, "own_step_ns": step_ns}
        self.publishing.ask({**question, **steps}, within_s=STORM_S_MAX)
        return [f"{name}/{prefix}{at}" for name in self.publishers for at in range(count)]

    def storm(self, names: Mapping[str, Sequence[str]], asked: Asked) -> Storm:
        """Let all clients subscribe to their names at once; wait for every answer."""
        before = self._state()
        for process, clients in self._processes.items():
            process.begin(
                {
                    "do": "subscribe",
                    "names": {name: names[name] for name in clients if name in names},
                    "per_request": asked.per_request,
                    "outstanding": asked.outstanding,
                    "qos": asked.qos,
                    "keep_events": asked.keep_events,
                }
            )
        answers = [process.finish(within_s=STORM_S_MAX) for process in self._processes]
        return _storm(answers, before, self._state())

    def unsubscribe(self) -> None:
        """End all contracts of all clients, and wait for the routers."""
        for process in self._processes:
            process.begin({"do": "unsubscribe"})
        for process in self._processes:
            process.finish(within_s=STORM_S_MAX)
        self._rig.await_in_step()

    def paths_taken(self) -> list[Answer]:
        """Return the latencies of the clients' events, by publisher and client."""
        found: list[Answer] = []
        for process in self._processes:
            found += process.ask({"do": "take_paths"}, within_s=STORM_S_MAX)["paths"]
        return found

    def pulse(self, prefix: str, *, period_s: float, seconds: float) -> None:
        """Send each of these variables, evenly over the period, and wait for the last."""
        question = {"do": "pulse", "prefix": prefix, "period_s": period_s, "seconds": seconds}
        self.publishing.ask({**question, "is_apart": True}, within_s=seconds + STORM_S_MAX)
        time.sleep(SETTLE_S)

    def shifted(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Return all names for each client, each list beginning at another publisher."""
        step = len(names) // len(self.clients)
        return {
            client: [*names[at * step :], *names[: at * step]]
            for at, client in enumerate(self.clients)
        }

    def _state(self) -> _State:
        return _State(
            journal=self._rig.survey()["journal"],
            broker_ns=self._rig.broker.cpu_ns(),
            router_ns=sum(router.cpu_ns() for router in self._rig.routers.values()),
        )


@dataclass(frozen=True, slots=True)
class _State:
    journal: Mapping[str, float]
    broker_ns: int
    router_ns: int


def _storm(answers: Iterable[Answer], before: _State, after: _State) -> Storm:
    all_answers = list(answers)
    reasons = sorted({reason for answer in all_answers for reason in answer["refused"]})
    took_ms = tuple(sorted(ms for answer in all_answers for ms in answer["took_ms"]))
    commits = after.journal["commits"] - before.journal["commits"]
    began_ns = min(answer["began_ns"] for answer in all_answers)
    return Storm(
        granted=sum(int(answer["granted"]) for answer in all_answers),
        failed=sum(sum(answer["refused"].values()) for answer in all_answers),
        reasons=tuple(reasons),
        seconds=(max(answer["ended_ns"] for answer in all_answers) - began_ns) / 1e9,
        took_ms=took_ms,
        broker_cpu_s=(after.broker_ns - before.broker_ns) / 1e9,
        router_cpu_s=(after.router_ns - before.router_ns) / 1e9,
        client_cpu_s=sum(float(answer["cpu_s"]) for answer in all_answers),
        requests_per_commit=len(took_ms) / commits if commits else 0.0,
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share lies; 0 for no values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
