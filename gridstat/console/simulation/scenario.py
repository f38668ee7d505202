"""Disturbances with their streams and their truth: what alarms have to find, and nothing else.

    for scenario in scenarios(range(50), load_rules()):
        scenario.streams(...), scenario.alarms

A draw that lies too close to a limit is drawn again; `redrawn` says how often, and why last.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.console.simulation.disturbance import DURATION_S, draw_disturbance
from gridstat.console.simulation.expected_alarms import (
    Span,
    Swings,
    Undecidable,
    spans_of_change,
    spans_of_limits,
)
from gridstat.console.simulation.recording import NOMINAL_VOLT
from gridstat.console.simulation.stations import recording_of
from gridstat.console.simulation.swing import simulate
from gridstat.model.alarms.limits import Limits, RateOfChange
from gridstat.model.alarms.oscillation import Oscillation
from gridstat.model.alarms.silence import Silence
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gridstat.console.simulation.disturbance import Disturbance
    from gridstat.console.simulation.recording import Recording
    from gridstat.console.simulation.swing import Array, Motion
    from gridstat.model.alarms.runs import AlarmLaw, Times
    from gridstat.model.rate_law import Period
    from gridstat.pipeline.alarm_rules import AlarmRule

DRAWS_MAX: Final = 200
SIDE_BY_SIDE: Final = 200
"""Draws that are simulated together: a step costs hardly more for many than for one."""
APART_RAD_MAX: Final = 2.2
"""Plants further apart than this fall out of step, and no PMU is needed to see it."""
NOISE: Final = {
    "frequency": 0.001,
    "voltage-magnitude": 0.001 * NOMINAL_VOLT,
    "voltage-angle": 0.05,
    "frequency-change": 0.01,
}
"""Standard deviation of what PMUs add to the truth."""
NOISE_MARGIN: Final = 6.0
LOST_SHARE: Final = 0.002
SHORT_SILENCE: Final = (0.3, 0.8)
LONG_SILENCE: Final = (1.2, 2.0)
"""Shares of what a rule allows."""
SILENT_S: Final = 4.0
"""Time at which a station falls silent, if it does; long before any disturbance."""


@dataclass(frozen=True, slots=True)
class ExpectedAlarm:
    """An alarm that must be raised, once, with its onset in a span of seconds from the start."""

    rule: str
    variable: str
    span: Span


@dataclass(frozen=True, slots=True)
class Silent:
    """A station whose events of so many slots are lost; none if it is 0."""

    station: int
    slots: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """One disturbance as PMUs saw it, and the alarms that it must raise."""

    seed: int
    disturbance: Disturbance
    recording: Recording
    silent: Silent
    alarms: tuple[ExpectedAlarm, ...]
    redrawn: int
    reason: str

    def stream(
        self, station: int, quantity: str, period: Period, start_ns: int
    ) -> tuple[Times, Array]:
        """Stamps and values of one variable, with noise, and without what was lost."""
        rng = np.random.default_rng([self.seed, station, sum(quantity.encode())])
        slots = np.arange(DURATION_S * period.per_seconds // period.seconds, dtype=np.int64)
        offsets_ns = slots * period.seconds * NS_PER_S // period.per_seconds
        values = self.recording.quantity(quantity, offsets_ns / NS_PER_S, station=station)
        values = values + rng.normal(0.0, NOISE[quantity], len(values))
        is_kept = rng.random(len(values)) >= LOST_SHARE
        if station == self.silent.station:
            first = int(SILENT_S * period.per_seconds / period.seconds)
            is_kept[first - 1] = True
            is_kept[first : first + self.silent.slots] = False
            is_kept[first + self.silent.slots] = True
        return start_ns + offsets_ns[is_kept], values[is_kept]


@dataclass(frozen=True, slots=True)
class Watch:
    """Watched stations, their rules and their period; names are cloud/seed/station."""

    rules: Sequence[AlarmRule]
    stations: Sequence[int]
    quantities: Sequence[str]
    period: Period
    cloud: str = "test"

    def variable(self, seed: int, station: int, quantity: str) -> str:
        return f"{self.cloud}/seed-{seed}/bus-{station}/{quantity}"


def scenarios(seeds: Iterable[int], watch: Watch) -> list[Scenario]:
    """One for each seed, each decided; those that are not are drawn again, all side by side."""
    found: dict[int, Scenario] = {}
    reasons = dict.fromkeys(seeds, "")
    attempt = 0
    while wanted := [seed for seed in sorted(reasons) if seed not in found]:
        if attempt >= DRAWS_MAX:
            problem = f"seeds {wanted} were never decided, at last for {reasons[wanted[0]]}"
            raise AssertionError(problem)
        attempts = range(attempt, attempt + max(1, SIDE_BY_SIDE // len(wanted)))
        draws = [(seed, each) for seed in wanted for each in attempts]
        drawn = [draw_disturbance(*draw) for draw in draws]
        motions = simulate([each.case for each in drawn])
        for (seed, each), disturbance, motion in zip(draws, drawn, motions, strict=True):
            if seed not in found:
                try:
                    found[seed] = _decide((seed, each, reasons[seed]), disturbance, motion, watch)
                except Undecidable as undecided:
                    reasons[seed] = str(undecided)
        attempt = attempts[-1] + 1
    return [found[seed] for seed in sorted(found)]


def _decide(
    drawn: tuple[int, int, str], disturbance: Disturbance, motion: Motion, watch: Watch
) -> Scenario:
    seed, attempt, reason = drawn
    if np.ptp(motion.angles, axis=1).max() > APART_RAD_MAX:
        raise Undecidable("plants that nearly fall out of step")
    recording = recording_of(disturbance.case, motion)
    silent = _draw_silence(seed, attempt, watch)
    view = _View(recording, Swings(disturbance, motion), silent, watch.period)
    alarms = []
    for rule in sorted(watch.rules, key=lambda rule: isinstance(rule.law, Oscillation)):
        for station, quantity in product(watch.stations, watch.quantities):
            variable = watch.variable(seed, station, quantity)
            if rule.watches(variable):
                expected = view.spans(rule.law, station, quantity)
                alarms += [ExpectedAlarm(rule.name, variable, span) for span in expected]
    return Scenario(seed, disturbance, recording, silent, tuple(alarms), attempt, reason)


@dataclass(frozen=True, slots=True)
class _View:
    """Everything that the truth of one draw is taken from."""

    recording: Recording
    swings: Swings
    silent: Silent
    period: Period

    def spans(self, law: AlarmLaw, station: int, quantity: str) -> list[Span]:
        signal = self.recording.quantity(quantity, self.recording.times_s, station=station)
        match law:
            case Silence():
                return _spans_of_silence(law, self.silent, station, self.period)
            case Oscillation():
                return self.swings.spans(law, station)
            case Limits():
                return spans_of_limits(law, signal, NOISE_MARGIN * NOISE[quantity])
            case RateOfChange():
                return spans_of_change(law, signal)
            case _:
                raise AssertionError(f"no truth is known for {law}")


def _draw_silence(seed: int, attempt: int, watch: Watch) -> Silent:
    """Draw the silence of a station in every third seed, clearly longer or shorter than a rule
    allows."""
    rng = np.random.default_rng([seed, attempt, 1])
    allowed = [rule.law.slots for rule in watch.rules if isinstance(rule.law, Silence)]
    if not allowed or seed % 3:
        return Silent(-1, 0)
    share = rng.uniform(*(SHORT_SILENCE if rng.integers(3) == 0 else LONG_SILENCE))
    return Silent(int(rng.choice(list(watch.stations))), int(share * allowed[0]))


def _spans_of_silence(law: Silence, silent: Silent, station: int, period: Period) -> list[Span]:
    if station != silent.station or silent.slots < law.slots:
        return []
    if silent.slots == law.slots:
        raise Undecidable("a silence near its limit")
    begins_s = SILENT_S + law.slots * period.seconds / period.per_seconds
    return [Span(begins_s - 0.1, begins_s + 0.1)]
