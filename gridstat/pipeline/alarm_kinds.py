"""Parameters of each kind of alarm rule, checked, as laws.

Durations are seconds in a file and nanoseconds in a law. Every parameter has a range, which bounds
the look-back of a rule and the rows that each batch reads again.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from gridstat.model.alarms.limits import Limits, RateOfChange
from gridstat.model.alarms.oscillation import Oscillation
from gridstat.model.alarms.runs import Memory
from gridstat.model.alarms.silence import Silence
from gridstat.model.errors import ConfigurationError
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gridstat.model.alarms.runs import AlarmLaw

INFINITE: Final = float("inf")
HOLD_S_MAX: Final = 600.0
CLEAR_S: Final = 10.0
CLEAR_S_MAX: Final = 3_600.0
GAP_S: Final = 2.0
STAGES_MAX: Final = 8
SLOTS_MAX: Final = 100_000
BIN_NS: Final = NS_PER_S // 10
"""Ten averages a second: enough for swings of up to 2.5 Hz."""
HIGH_HZ_MAX: Final = 2.5
STEP_NS: Final = NS_PER_S
PERIODS_MIN: Final = 2.0
"""Periods of the slowest swing in a window, one in each of its halves."""


@dataclass(frozen=True, slots=True)
class KindOfLaw:
    """Law, text of its findings, and severity of a stage."""

    law: AlarmLaw
    words: str
    severity: str = ""


class Parameters:
    """The parameters of one rule, taken out one by one; none may be left over."""

    def __init__(self, given: Mapping[str, Any], known: Sequence[str]) -> None:
        self._given = given
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                listed = f"known here: {', '.join(known)}"
                hint = f"did you mean `{near[0]}`? {listed}" if near else listed
                raise ConfigurationError(f"unknown key `{key}`", hint=hint)

    def has(self, key: str) -> bool:
        return key in self._given

    def number(
        self, key: str, default: float | None = None, *, least: float, most: float = INFINITE
    ) -> float:
        value = self._given.get(key, default)
        if value is None:
            raise ConfigurationError(f"{key} is missing", hint=f"write {key} = …")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigurationError(f"{key} {value!r}", hint="write a number without quotes")
        if not least <= value <= most or value in {INFINITE, -INFINITE}:
            bounds = f"{least:g} to {most:g}" if most < INFINITE else f"{least:g} or more"
            bounds = bounds if least > -INFINITE else "a finite number"
            raise ConfigurationError(f"{key} {value!r} is out of range", hint=bounds)
        return float(value)

    def nanoseconds(self, key: str, default: float | None, *, least: float, most: float) -> int:
        return round(self.number(key, default, least=least, most=most) * NS_PER_S)

    def memory(self, hold_s: float = 0.0) -> Memory:
        return Memory(
            hold_ns=self.nanoseconds("hold_s", hold_s, least=0.0, most=HOLD_S_MAX),
            clear_ns=self.nanoseconds("clear_s", CLEAR_S, least=0.1, most=CLEAR_S_MAX),
            gap_ns=self.nanoseconds("gap_s", GAP_S, least=0.01, most=HOLD_S_MAX),
        )


MEMORY: Final = ("hold_s", "clear_s", "gap_s")


def threshold(given: Mapping[str, Any]) -> list[KindOfLaw]:
    return [_beyond(Parameters(given, ("above", "below", *MEMORY)), 0.0)]


def band(given: Mapping[str, Any]) -> list[KindOfLaw]:
    taken = Parameters(given, ("low", "high", *MEMORY))
    low = taken.number("low", least=-INFINITE)
    high = taken.number("high", least=-INFINITE)
    if low >= high:
        raise ConfigurationError(f"low {low:g} is not below high {high:g}", hint="swap them")
    words = f"{{value:.6g}} is outside {low:g} … {high:g}"
    return [KindOfLaw(Limits(low, high, taken.memory()), words)]


def rate(given: Mapping[str, Any]) -> list[KindOfLaw]:
    taken = Parameters(given, ("per_s", "window_s", *MEMORY))
    law = RateOfChange(
        per_s_max=taken.number("per_s", least=1e-12),
        window_ns=taken.nanoseconds("window_s", 0.5, least=0.01, most=HOLD_S_MAX),
        memory=taken.memory(),
    )
    return [KindOfLaw(law, "changes by {value:.4g} a second, {limit:g} is the limit")]


def missing(given: Mapping[str, Any]) -> list[KindOfLaw]:
    taken = Parameters(given, ("slots", "clear_s"))
    slots = taken.number("slots", least=1, most=SLOTS_MAX)
    if slots != int(slots):
        raise ConfigurationError(f"slots {slots:g}", hint="slots are whole")
    clear_ns = taken.nanoseconds("clear_s", CLEAR_S, least=0.1, most=CLEAR_S_MAX)
    return [KindOfLaw(Silence(int(slots), clear_ns), "nothing came in {value:.0f} slots")]


def frequency(given: Mapping[str, Any]) -> list[KindOfLaw]:
    taken = Parameters(given, ("stages", "clear_s", "gap_s"))
    stages = given.get("stages")
    hint = "write stages = [{ below = 59.9, hold_s = 0.5 }, …], each an alarm of its own"
    if not isinstance(stages, list) or not 1 <= len(stages) <= STAGES_MAX:
        raise ConfigurationError(f"stages: 1 to {STAGES_MAX} are needed", hint=hint)
    found = []
    for stage in stages:
        if not isinstance(stage, dict):
            raise ConfigurationError(f"stage {stage!r} is no table", hint=hint)
        common = {key: given[key] for key in ("clear_s", "gap_s") if taken.has(key)}
        known = ("above", "below", "severity", *MEMORY)
        law = _beyond(Parameters({**common, **stage}, known), 0.1)
        found.append(KindOfLaw(law.law, law.words, str(stage.get("severity", ""))))
    return found


def oscillation(given: Mapping[str, Any]) -> list[KindOfLaw]:
    own = ("amplitude", "damping_ratio", "low_hz", "high_hz", "window_s")
    taken = Parameters(given, (*own, *MEMORY))
    window_ns = taken.nanoseconds("window_s", 10.0, least=2.0, most=30.0)
    low_hz = taken.number("low_hz", 0.2, least=0.01, most=HIGH_HZ_MAX)
    high_hz = taken.number("high_hz", 2.0, least=0.02, most=HIGH_HZ_MAX)
    if low_hz >= high_hz:
        raise ConfigurationError("low_hz is not below high_hz", hint="swap them")
    if low_hz * window_ns < PERIODS_MIN * NS_PER_S:
        hint = f"window_s must hold {PERIODS_MIN:g} periods: {PERIODS_MIN / low_hz:g} or more"
        raise ConfigurationError(f"window_s is too short for {low_hz:g} Hz", hint=hint)
    memory = taken.memory(hold_s=2.0)
    if memory.gap_ns < STEP_NS:
        raise ConfigurationError("gap_s is too short", hint="1 or more, the step of the window")
    law = Oscillation(
        amplitude_min=taken.number("amplitude", least=1e-12),
        damping_max=taken.number("damping_ratio", 0.03, least=0.0, most=1.0),
        low_hz=low_hz,
        high_hz=high_hz,
        window_ns=window_ns - window_ns % (2 * BIN_NS),
        step_ns=STEP_NS,
        bin_ns=BIN_NS,
        memory=memory,
    )
    return [KindOfLaw(law, "swings by {value:.3g}, {limit:g} is the limit")]


def _beyond(taken: Parameters, hold_s: float) -> KindOfLaw:
    if taken.has("above") == taken.has("below"):
        raise ConfigurationError("neither or both of above and below", hint="give one of them")
    memory = taken.memory(hold_s)
    held = f" for {memory.hold_ns / NS_PER_S:g} s" if memory.hold_ns else ""
    if taken.has("above"):
        high = taken.number("above", least=-INFINITE)
        return KindOfLaw(Limits(-INFINITE, high, memory), f"{{value:.6g}} above {high:g}{held}")
    low = taken.number("below", least=-INFINITE)
    return KindOfLaw(Limits(low, INFINITE, memory), f"{{value:.6g}} below {low:g}{held}")


KINDS: Final[Mapping[str, Callable[[Mapping[str, Any]], list[KindOfLaw]]]] = MappingProxyType(
    {
        "threshold": threshold,
        "band": band,
        "rate": rate,
        "missing": missing,
        "frequency": frequency,
        "oscillation": oscillation,
    }
)
