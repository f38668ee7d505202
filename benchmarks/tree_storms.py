"""Subscriptions between clouds in a management plane in this process, and their cost."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from pathlib import Path
from resource import getpagesize
from typing import TYPE_CHECKING, Final, TypeAlias

from benchmarks.errors import BenchmarkError
from gridstat.model.identifiers import VariableId
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.command.endpoint_messages import (
    GrantedOutcome,
    PublicationRequest,
    Publish,
    PublishedOutcome,
    RefusedOutcome,
    Subscribe,
    SubscriptionRequest,
)
from lab.management_plane import ManagementPlane
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gridstat.net.command.endpoint_messages import Outcome
    from lab.national_grid import NationalGrid

Pair: TypeAlias = tuple[str, str]
"""A publisher's cloud and a subscriber's."""
PERIOD: Final = Period(1, 10)
LATENCY_US: Final = 5_000_000
"""Wide bound, since the work is measured and not the refusals."""
PER_REQUEST: Final = 16
OUTSTANDING: Final = 8
"""Requests pending at once, each of as many subscriptions."""
PER_S: Final = 1_000
"""Contracts of the whole grid in a second of its own time, so that no work piles up."""
SETTLE_S: Final = 60
ROUNDS_COLLECTED: Final = 16


@dataclass(frozen=True, slots=True)
class TreeStorm:
    """Cost of a storm of subscriptions; processor time is the brokers' alone."""

    granted: int
    cpu_s: float
    tree_messages: int
    router_messages: int
    held_bytes: int
    """Growth of the process, without the routers."""
    journal_bytes: int
    clouds_crossed: int
    """Clouds on the way of each contract, both ends included, summed."""

    @property
    def per_s(self) -> float:
        return self.granted / self.cpu_s if self.cpu_s else 0.0

    def each(self, amount: float) -> float:
        return amount / max(1, self.granted)


@dataclass(frozen=True, slots=True)
class FirstContract:
    """Processor time of the first contract on a way.

    `clouds` are those on the way, `latency_us` its predicted latency.
    """

    cpu_us: float
    clouds: tuple[str, ...]
    latency_us: int


class TreeSubscribers:
    """One publisher and some applications in each of some clouds.

    Every storm takes new variables; all applications of a cloud take the same.
    """

    def __init__(self, grid: NationalGrid, clouds: Iterable[str], applications: int = 1) -> None:
        self.plane = ManagementPlane(grid)
        self.plane.start()
        self._applications = applications
        self.published: dict[str, int] = {}
        """Number of variables by cloud."""
        self._taken: dict[Pair, int] = {}
        for cloud in dict.fromkeys(clouds):
            edges = grid.plan.clouds[cloud].edges
            self.plane.attach(publisher_of(cloud), edges[0])
            for at in range(applications):
                self.plane.attach(application_of(cloud, at), edges[-1 - at % len(edges)])
        self.plane.run()
        self.plane.answers.clear()

    def publish(self, pairs: Iterable[Pair], each: int) -> None:
        """Publish as many variables as every pair needs to take so many more."""
        for pair in pairs:
            wanted = self._taken.get(pair, 0) + each
            known = self.published.get(pair[0], 0)
            if wanted > known:
                self.publish_in(pair[0], wanted - known)

    def publish_in(self, cloud: str, count: int) -> None:
        """Publish so many more variables in a cloud."""
        first = self.published.get(cloud, 0)
        self.published[cloud] = first + count
        names = [variable_of(cloud, number) for number in range(first, first + count)]
        for at in range(0, count, PER_REQUEST):
            with self.plane.aside():
                requests = tuple(
                    PublicationRequest(variable=_variable(name))
                    for name in names[at : at + PER_REQUEST]
                )
                key = self.plane.ask(publisher_of(cloud), Publish(publications=requests))
            check(self.plane.answered([key])[0], PublishedOutcome)

    def subscribe(self, pair: Pair, count: int) -> list[GrantedOutcome]:
        """Subscribe to so many published variables in one request."""
        with self.plane.aside():
            ((endpoint, command),) = self._of_pair(pair, count, applications=1)
            key = self.plane.ask(endpoint, command)
        outcomes = self.plane.answered([key])[0]
        check(outcomes, GrantedOutcome)
        return [one for one in outcomes if isinstance(one, GrantedOutcome)]

    def firsts(self, pairs: Sequence[Pair]) -> list[FirstContract]:
        """Measure the first contract of each pair, one after the other."""
        self.publish(pairs, 1)
        found = []
        for pair in pairs:
            before_s = self.cpu_s()
            (granted,) = self.subscribe(pair, 1)
            cpu_us = 1e6 * (self.cpu_s() - before_s)
            found.append(FirstContract(cpu_us, clouds_on(granted), granted.paths[0].latency_us))
        return found

    def storm(
        self,
        pairs: Sequence[Pair],
        count: int,
        progress: Callable[[float], None] = lambda _: None,
    ) -> TreeStorm:
        """Subscribe so often, cycling over the pairs of publisher's and subscriber's clouds."""
        plane = self.plane
        gc.collect()
        # A broker is a separate process: its collector does not traverse all the others.
        gc.freeze()
        before = State.of(plane)
        asked = self._requests(pairs, count)
        granted = crossed = rounds = 0
        while granted < count:
            with plane.aside():
                keys = [plane.ask(*one) for _, one in zip(range(OUTSTANDING), asked, strict=False)]
            if not keys:
                break
            answers = plane.answered(keys)
            with plane.aside():
                for outcomes in answers:
                    check(outcomes, GrantedOutcome)
                    crossed += len(outcomes) * len(clouds_on(outcomes[0]))
                some = sum(map(len, answers))
                granted += some
                progress(granted / count)
                rounds += 1
                if rounds % ROUNDS_COLLECTED == 0:
                    gc.collect()
                    gc.freeze()
            plane.run(until_ns=plane.now_ns + some * NS_PER_S // PER_S)
        plane.run(until_ns=plane.now_ns + SETTLE_S * NS_PER_S)
        after = State.of(plane)
        gc.unfreeze()
        gc.collect()
        return TreeStorm(
            granted=granted,
            cpu_s=after.cpu_s - before.cpu_s,
            tree_messages=after.tree_messages - before.tree_messages,
            router_messages=after.router_messages - before.router_messages,
            held_bytes=State.of(plane).bytes_held - before.bytes_held,
            journal_bytes=after.journal_bytes - before.journal_bytes,
            clouds_crossed=crossed,
        )

    def cpu_s(self) -> float:
        """Return the processor time of the brokers until now."""
        return time.process_time() - self.plane.aside_s

    def _requests(self, pairs: Sequence[Pair], count: int) -> Iterator[tuple[str, Subscribe]]:
        """Yield requests pair by pair, until there are enough or nothing is left to take."""
        left = count
        while left > 0:
            is_any = False
            for pair in pairs:
                share = -(-left // self._applications)
                for endpoint, command in self._of_pair(
                    pair, min(PER_REQUEST, share), self._applications
                ):
                    yield endpoint, command
                    is_any = True
                    left -= len(command.subscriptions)
                if left <= 0:
                    break
            if not is_any:
                return

    def _of_pair(self, pair: Pair, some: int, applications: int) -> list[tuple[str, Subscribe]]:
        """Return requests for the next variables of a publisher, one for every application."""
        publisher, subscriber = pair
        first = self._taken.get(pair, 0)
        last = min(first + some, self.published.get(publisher, 0))
        self._taken[pair] = last
        names = [variable_of(publisher, number) for number in range(first, last)]
        command = Subscribe(
            subscriptions=tuple(
                SubscriptionRequest(name=name, qos=QUALITY, label=name) for name in names
            )
        )
        if not names:
            return []
        return [(application_of(subscriber, at), command) for at in range(applications)]


@dataclass(frozen=True, slots=True)
class State:
    """State of a plane; the clock is read before anything is summed up."""

    cpu_s: float
    tree_messages: int
    router_messages: int
    bytes_held: int
    journal_bytes: int

    @classmethod
    def of(cls, plane: ManagementPlane) -> State:
        cpu_s = time.process_time() - plane.aside_s
        of_routers = sum(router.size_bytes for router in plane.routers.values())
        return cls(
            cpu_s,
            plane.tree_messages,
            plane.router_messages,
            resident_bytes() - of_routers,
            plane.operation_bytes,
        )


def resident_bytes() -> int:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


QUALITY: Final = ModalQos({0: QosRequest(latency_us=LATENCY_US)})


def publisher_of(cloud: str) -> str:
    return f"{cloud}/pmus"


def application_of(cloud: str, number: int) -> str:
    return f"{cloud}/application{number}"


def variable_of(cloud: str, number: int) -> str:
    return f"{publisher_of(cloud)}/v{number}"


def clouds_on(outcome: Outcome) -> tuple[str, ...]:
    """Return the clouds on a contract's first path, each once."""
    assert isinstance(outcome, GrantedOutcome)
    return tuple(dict.fromkeys(map(cloud_of, outcome.paths[0].routers)))


def check(outcomes: Iterable[Outcome], wanted: type[Outcome]) -> None:
    """Raise unless all outcomes are of the wanted type."""
    for outcome in outcomes:
        if not isinstance(outcome, wanted):
            why = outcome.reason if isinstance(outcome, RefusedOutcome) else f"{outcome}"
            raise BenchmarkError(f"a request was not granted: {why}")


def _variable(name: str) -> StatusVariable:
    return StatusVariable(VariableId(0), name, BuiltinType.FLOAT64, PERIOD)
