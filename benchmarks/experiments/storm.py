"""Grants of a protection subscriber beside end-points that take all they can get.

Five neighbours, each alone: a greedy pair that reserves every channel, a publisher of thousands of
variables against a stranger's `**`, an end-point that sends requests without a pause, one that
finds all variables again and again, and one with thousands of access rules that finds something
else each time. Last an end-point asks for paths which are hard to search: four between the same two
edge routers, each request within a latency just below the least that there is, which the end-point
has learned from a contract of its own. The cloud has the quotas of every new cloud. The protection
subscriber asks for one variable after another, at the edge router of the neighbour. A quiet run
lies before each neighbour, and the grants beside it are also given as ratios to that run. A run
that misses a bound fails, and so does one whose neighbour left its work undone or ended too early.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks.cloud_plan import CLOUD, edge_name, two_rings
from benchmarks.cloud_rig import CloudRig
from benchmarks.errors import BenchmarkError
from benchmarks.experiments.experiment import (
    Bound,
    Experiment,
    Figure,
    Options,
    Parameter,
    Result,
)
from benchmarks.machine import MachineWatch
from benchmarks.subscribing import STORM_S_MAX, quantile
from gridstat.model.access_rules import AccessRule
from lab.open_access import OPEN_RULE

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.experiments.experiment import Progress
    from benchmarks.processes import Answer, RoleProcess

BOUNDS: Final = {"grant_ms_p50": 20.0, "grant_ms_p99": 100.0, "undone": 0.0, "idle_share": 0.2}
"""Upper bounds of each neighbour's figures."""
FINDS_LEAST: Final = 10
SEARCHES_RATIO_MAX: Final = 1.1
"""A hostile searcher may cost others a tenth of their median."""
SEARCH_ROUNDS: Final = 5
"""Quiet runs and runs beside the searcher take turns, since their ratio is judged."""
SEARCH_PAUSE_S: Final = 0.05
LATENCY_US_WIDE: Final = 5_000_000
ASKED_MAX: Final = 200
"""Requests within which the hostile searcher learns the least latency."""
US_PER_MS: Final = 1_000
SEARCH_BELOW_US: Final = 32
"""Microseconds below the least latency within which a search takes longest: of so many bounds, one
after another, none is asked for again before something has changed."""
SEARCH_MS_LEAST: Final = 5.0
"""Least processor time of a hostile search; without it the searcher would be no neighbour."""
EDGES, RING = 4, 3
HERE, THERE = edge_name(0), edge_name(1)
RULED: Final = f"{CLOUD}/ruled"
"""End-point with very many access rules."""
APART: Final = edge_name(2)
"""Edge router of the hostile searcher and its publisher, besides `HERE`: two steps from it."""
BANDWIDTH: Final = 12_500_000
"""A hundred megabits a second: a greedy pair can fill it."""
QOS: Final = {"latency_ms": 50, "redundancy": 2, "priority": 3}
FAST, SLOW = (1, 100), (1, 1)
AT_A_TIME: Final = 500
"""Variables of one request of the publisher of thousands."""


def idle_share(began_ns: int, ended_ns: int, worked_until_ns: int) -> float:
    """Return the part of a run at whose end a neighbour did nothing any more."""
    return round(min(max(0, ended_ns - worked_until_ns) / (ended_ns - began_ns), 1.0), 3)


def _ended(answer: Answer) -> int:
    return int(answer["ended_ns"])


class Storms:
    """One cloud, its protection subscriber, and neighbours that begin and end around a run."""

    def __init__(self, rig: CloudRig, options: Options) -> None:
        self._rig = rig
        self._lone = options.whole("lone")
        self._pmu = rig.end_points({f"{CLOUD}/pmu": [THERE]})
        self._protection = rig.end_points({f"{CLOUD}/protection": [HERE]})
        self._runs = 0
        self._searches = 0

    def grants(self) -> list[float]:
        """Return the milliseconds of each grant, ascending, of variables not subscribed before."""
        self._runs += 1
        prefix = f"run-{self._runs}-"
        self._pmu.ask(_publish(prefix, self._lone, SLOW), within_s=STORM_S_MAX)
        names = [f"{CLOUD}/pmu/{prefix}{at}" for at in range(self._lone)]
        answer = self._protection.ask(
            _subscribe(f"{CLOUD}/protection", names, outstanding=1), within_s=STORM_S_MAX
        )
        assert answer["granted"] == self._lone, answer["refused"]
        # Events of all variables may arrive at once: with those of each run, more would be late.
        self._protection.ask({"do": "unsubscribe"}, within_s=STORM_S_MAX)
        return sorted(answer["took_ms"])

    def beside_a_greedy_pair(self, count: int) -> Beside:
        """Measure while one subscriber asks for all that its publisher sends."""
        publisher = self._rig.end_points({f"{CLOUD}/greedy-publisher": [THERE]})
        subscriber = self._rig.end_points({f"{CLOUD}/greedy": [HERE]})
        publisher.ask(_publish("g", count, FAST), within_s=STORM_S_MAX)
        names = [f"{CLOUD}/greedy-publisher/g{at}" for at in range(count)]
        beside = self._beside(
            subscriber, _subscribe(f"{CLOUD}/greedy", names, outstanding=64), count, _answered
        )
        subscriber.ask({"do": "unsubscribe"}, within_s=STORM_S_MAX)
        return beside

    def beside_many_variables(self, count: int) -> Beside:
        """Measure while a publisher registers thousands of variables against a stranger's `**`."""
        stranger = self._rig.end_points({f"{CLOUD}/stranger": [edge_name(2)]})
        question = {"do": "subscribe_pattern", "pattern": f"{CLOUD}/**", "qos": QOS}
        stranger.ask(question | {"noted": f"{CLOUD}/mallory/"}, within_s=STORM_S_MAX)
        mallory = self._rig.end_points({f"{CLOUD}/mallory": [HERE]})
        questions = [
            _publish(f"m{first}-", min(AT_A_TIME, count - first), SLOW)
            for first in range(0, count, AT_A_TIME)
        ]

        def worked_until(answer: Answer) -> int:
            """The broker matches the pattern long after the last variable is published."""
            return max(int(answer["ended_ns"]), int(stranger.ask({"do": "matched"})["newest_ns"]))

        return self._beside(
            mallory,
            {"do": "each", "questions": questions},
            len(questions),
            lambda of: of["done"],
            worked_until,
        )

    def beside_finds(self, seconds: float) -> Beside:
        """Measure while one end-point finds all variables of the cloud without a pause."""
        finder = self._rig.end_points({f"{CLOUD}/finder": [HERE]})
        question = {"do": "find", "pattern": f"{CLOUD}/**", "seconds": seconds}
        return self._beside(finder, question, FINDS_LEAST, lambda of: sum(map(bool, of["found"])))

    def beside_many_rules(self, seconds: float) -> Beside:
        """Measure while an end-point with very many rules finds with patterns of all kinds."""
        finder = self._rig.end_points({RULED: [HERE]})
        question = {"do": "find", "pattern": f"{CLOUD}/*/x{{at}}", "seconds": seconds}
        return self._beside(finder, question, FINDS_LEAST, lambda of: len(of["found"]))

    def beside_a_storm(self, count: int) -> Beside:
        """Measure while one end-point sends requests without a pause."""
        storm = self._rig.end_points({f"{CLOUD}/storm": [HERE]})
        prefix = "storm-"
        self._pmu.ask(_publish(prefix, 1, SLOW), within_s=STORM_S_MAX)
        names = [f"{CLOUD}/pmu/{prefix}0"] * count
        return self._beside(
            storm, _subscribe(f"{CLOUD}/storm", names, outstanding=256), count, _answered
        )

    def hostile_searcher(self) -> RoleProcess:
        """Return an end-point at the same two edge routers as the publisher that it asks for."""
        edges = [HERE, APART]
        publisher = self._rig.end_points({f"{CLOUD}/hostile-publisher": edges})
        publisher.ask(_publish("h", 1, SLOW), within_s=STORM_S_MAX)
        return self._rig.end_points({f"{CLOUD}/hostile": edges})

    @staticmethod
    def least_us(hostile: RoleProcess) -> int:
        """Return the least latency of four paths at present, by contracts that are ended again.

        A bound that is refused is no proof: a little below, other paths may be granted.
        """
        least_us, below_us = LATENCY_US_WIDE, 0
        for _ in range(ASKED_MAX):
            answer = hostile.ask(_hostile(least_us - below_us), within_s=STORM_S_MAX)
            if answer["granted"]:
                hostile.ask({"do": "unsubscribe"}, within_s=STORM_S_MAX)
                least_us, below_us = int(answer["latency_us"]), 1
            elif below_us > SEARCH_BELOW_US:
                return least_us
            else:
                below_us *= 2
            assert below_us, answer["refused"]
        raise BenchmarkError(f"four paths take less time whenever asked for: {least_us} µs")

    def beside_searches(self, hostile: RoleProcess, count: int) -> Beside:
        """Measure while an end-point asks, a few times a second, for what takes long to refuse."""
        questions: list[dict[str, Any]] = []
        least_us = self.least_us(hostile)
        for _ in range(count):
            self._searches += 1
            below_us = SEARCH_BELOW_US // 4 + self._searches % SEARCH_BELOW_US
            questions += [
                _hostile(least_us - below_us),
                {"do": "wait", "seconds": SEARCH_PAUSE_S},
            ]
        return self._beside(
            hostile, {"do": "each", "questions": questions}, len(questions), lambda of: of["done"]
        )

    def _beside(
        self,
        neighbour: RoleProcess,
        question: dict[str, Any],
        wanted: int,
        work_of: Callable[[Answer], int],
        worked_until: Callable[[Answer], int] = _ended,
    ) -> Beside:
        """Measure grants while a neighbour works; `work_of` is what it has done by its answer, and
        `worked_until` when the work that it caused was over."""
        neighbour.begin(question)
        began_ns = time.monotonic_ns()
        took_ms = self.grants()
        ended_ns = time.monotonic_ns()
        answer = neighbour.finish(within_s=STORM_S_MAX)
        return Beside(
            took_ms,
            max(0, wanted - work_of(answer)),
            idle_share(began_ns, ended_ns, worked_until(answer)),
        )


@dataclass(frozen=True, slots=True)
class Beside:
    """Grants beside a neighbour, the work that it left undone, and the time when it had ended."""

    took_ms: list[float]
    undone: int
    idle_share: float


def _answered(answer: Answer) -> int:
    """Return the requests that were decided, with whatever outcome; at least one was granted."""
    return len(answer["took_ms"]) if answer["granted"] else 0


def rules_of(count: int) -> tuple[AccessRule, ...]:
    """Return the rule for everybody, and so many for one end-point."""
    many = (
        AccessRule(f"many-{at}", RULED, ("find", "subscribe"), f"{CLOUD}/s-{at}/**")
        for at in range(count)
    )
    return OPEN_RULE, *many


def measure(options: Options, progress: Progress) -> Result:
    """Measure the grants beside each neighbour, and alone before it."""
    watch = MachineWatch()
    figures: dict[str, Figure] = {}
    progress(0.0, "starting a cloud")
    topology = two_rings(EDGES, RING, bandwidth=BANDWIDTH)
    rules = rules_of(options.whole("rules"))
    with CloudRig(topology, folder=options.text("folder"), quotas="", rules=rules) as rig:
        storms = Storms(rig, options)
        storms.grants()  # Warms up.
        runs: dict[str, Callable[[], Beside]] = {
            "greedy_pair": lambda: storms.beside_a_greedy_pair(options.whole("greedy")),
            "request_storm": lambda: storms.beside_a_storm(options.whole("requests")),
            "many_variables": lambda: storms.beside_many_variables(options.whole("variables")),
            "finds": lambda: storms.beside_finds(options.real("finds")),
            "many_rules": lambda: storms.beside_many_rules(options.real("finds")),
        }
        alone = list[float]()
        for at, (name, run) in enumerate(runs.items()):
            progress(0.1 + 0.8 * at / len(runs), name.replace("_", " "))
            quiet = storms.grants()
            beside = run()
            figures |= _figures(name, beside.took_ms) | _ratios(name, beside.took_ms, quiet)
            figures |= {f"{name}_undone": beside.undone, f"{name}_idle_share": beside.idle_share}
            alone += quiet
        figures |= _figures("alone", sorted(alone))
        progress(0.9, "hostile searches")
        before_ms = rig.survey()["requests"]["search_ms"]
        figures |= _searched(storms, options.whole("searches"))
        figures["search_ms_each"] = round(
            (rig.survey()["requests"]["search_ms"] - before_ms)
            / max(1, SEARCH_ROUNDS * options.whole("searches")),
            3,
        )
        figures["requests_refused"] = rig.survey()["requests"]["refused"]
        figures["requests_delayed"] = rig.survey()["requests"]["delayed"]
    progress(1.0, "done")
    bounds = tuple(
        Bound(f"{name}_{end}", float(figures[f"{name}_{end}"]), most)
        for name in runs
        for end, most in BOUNDS.items()
    )
    ratio = figures["hostile_searches_ratio_p50"]
    assert isinstance(ratio, float)
    each_ms = figures["search_ms_each"]
    assert isinstance(each_ms, float)
    missing_ms = round(max(0.0, SEARCH_MS_LEAST - each_ms), 3)
    figures["search_ms_each_missing"] = missing_ms
    bounds += (
        Bound("hostile_searches_ratio_p50", ratio, SEARCHES_RATIO_MAX),
        Bound("search_ms_each_missing", missing_ms, 0.0),
    )
    figures |= {"grants_each": options.whole("lone"), **watch.figures()}
    return Result(
        figures=figures,
        title="grants of a protection subscriber beside greedy neighbours",
        columns=("figure", "value"),
        table=tuple((name, f"{value}") for name, value in figures.items()),
        bounds=bounds,
    )


def _searched(storms: Storms, count: int) -> dict[str, Figure]:
    """Measure beside the hostile searcher and without it, in turns."""
    hostile = storms.hostile_searcher()
    quiet, beside = list[float](), list[float]()
    for _ in range(SEARCH_ROUNDS):
        quiet += storms.grants()
        beside += storms.beside_searches(hostile, count).took_ms
    name = "hostile_searches"
    return _figures(name, sorted(beside)) | _ratios(name, sorted(beside), sorted(quiet))


def _figures(name: str, took_ms: list[float]) -> dict[str, Figure]:
    return {
        f"{name}_grant_ms_p50": round(quantile(took_ms, 0.50), 2),
        f"{name}_grant_ms_p99": round(quantile(took_ms, 0.99), 2),
    }


def _ratios(name: str, took_ms: list[float], quiet_ms: list[float]) -> dict[str, Figure]:
    """Return how many times longer grants take than in the quiet run before."""
    return {
        f"{name}_ratio_{end}": round(quantile(took_ms, part) / quantile(quiet_ms, part), 2)
        for end, part in (("p50", 0.50), ("p99", 0.99))
    }


def _hostile(latency_us: int) -> dict[str, Any]:
    """Return a request of the hostile searcher for four paths within a latency."""
    asked = _subscribe(f"{CLOUD}/hostile", [f"{CLOUD}/hostile-publisher/h0"])
    return asked | {"qos": {"latency_ms": latency_us / US_PER_MS, "redundancy": 4}}


def _publish(prefix: str, count: int, period: tuple[int, int]) -> dict[str, Any]:
    return {"do": "publish", "prefix": prefix, "count": count, "period": period}


def _subscribe(who: str, names: list[str], *, outstanding: int = 1) -> dict[str, Any]:
    return {
        "do": "subscribe",
        "names": {who: names},
        "per_request": 1,
        "outstanding": outstanding,
        "qos": QOS,
    }


STORM = Experiment(
    name="storm",
    summary="grants of a protection subscriber beside neighbours that take all they can get",
    parameters=(
        Parameter("lone", 200, "grants of the protection subscriber beside each", least=10),
        Parameter("greedy", 2_000, "variables of the greedy pair, 100 events/s each", least=1),
        Parameter("requests", 4_000, "requests of the storm", least=1),
        Parameter("searches", 40, "requests of the hostile searcher in each of 5 runs", least=1),
        Parameter("variables", 10_000, "variables against a stranger's pattern", least=1),
        Parameter(
            "finds", 6.0, "seconds in which all variables are found again and again", least=0.1
        ),
        Parameter("rules", 10_000, "access rules of the end-point with very many", least=1),
        Parameter("folder", "", "where the cloud's files and journal lie; a temporary one"),
    ),
    measure=measure,
)
