"""What an application may ask, in its own words, and the requests that these words mean.

Words that cannot be meant (a rate of 0, two ways to say how often) raise `Misuse` here, before
anything is sent; words that the grid must judge come back as `Refused` with its reason.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from gridstat.model.error_index import error_from
from gridstat.model.errors import GridStatError, LayoutError, Misuse, Refused
from gridstat.model.identifiers import VariableId
from gridstat.model.qos import BASELINE_MODE, LATENCY_US_MAX, ModalQos, QosRequest, preset
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.model.status import BuiltinType, RecordType, StatusVariable, ValueType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gridstat.endpoint.change import OnChange
    from gridstat.model.derived import Derivation
    from gridstat.net.command.endpoint_messages import RefusedOutcome

US_PER_MS: Final = 1_000
LATENCY_MS_MAX: Final = LATENCY_US_MAX / US_PER_MS
INTERVAL_S_MAX: Final = 10.0**8
"""Three years between two alerts, or of waiting: no clock of ours holds centuries."""
WILD: Final = frozenset("*")

Rate = int | Fraction
"""Events a second; `Fraction(30_000, 1_001)` for 29.97."""


class QosWishes(TypedDict, total=False):
    """How good a subscription shall be; each `…_worst` is what is still acceptable."""

    preset: str
    rate: Rate
    interval: Period
    every: int
    latency_ms: float
    redundancy: int
    priority: int
    rate_worst: Rate
    interval_worst: Period
    every_worst: int
    latency_ms_worst: float
    redundancy_worst: int
    priority_worst: int


class PublicationWishes(TypedDict, total=False):
    """How often a variable is published, and what is sent along.

    With a `replay_speed` old events are sent again, with their own stamps, up to so many times as
    fast as they once came: flagged as replayed, and behind live traffic on every channel that has a
    declared bandwidth.
    """

    rate: Rate
    period: Period
    phase_ns: int
    derived: Sequence[Derivation]
    replay_speed: int
    on_change: OnChange


def qos(**wishes: Unpack[QosWishes]) -> QosRequest:
    """A quality of service: `qos(rate=10, latency_ms=50, redundancy=2)`.

    How often is said as `rate` (events a second), `interval` (an exact `Period`) or `every` (each
    n-th slot). A `preset` sets what is not said: `qos(preset="wide-area", rate=30)`.
    """
    return qos_from(preset(wishes["preset"]) if "preset" in wishes else QosRequest(), wishes)


def qos_from(base: QosRequest, wishes: QosWishes) -> QosRequest:
    """A quality of service, where nothing else is wished for as `base` has it."""
    changes: dict[str, Any] = {
        name: wishes[name]
        for name in ("redundancy", "priority", "redundancy_worst", "priority_worst")
        if name in wishes
    }
    changes |= _how_often(wishes, "") | _how_often(wishes, "_worst")
    if "latency_ms" in wishes:
        changes["latency_us"] = _microseconds(wishes["latency_ms"])
    if "latency_ms_worst" in wishes:
        changes["latency_us_worst"] = _microseconds(wishes["latency_ms_worst"])
    try:
        return replace(base, **changes)
    except TypeError as problem:
        raise Misuse(f"a quality of service that cannot be meant: {problem}") from problem


def modal_qos(
    asked: QosRequest | None, named: str | None, modes: Mapping[int, QosRequest] | None
) -> ModalQos:
    """What a subscription asks in each mode; without a mode it holds in all of them."""
    given = [word for word in (asked, named, modes) if word is not None]
    if len(given) > 1:
        raise Misuse(
            "say one of qos, preset and modes",
            hint="qos(preset=..., rate=...) combines a preset with wishes of your own",
        )
    if modes is not None:
        return ModalQos(dict(modes))
    return ModalQos({BASELINE_MODE: asked or (preset(named) if named else QosRequest())})


def period_of_rate(rate: object) -> Period:
    """The period of so many events a second, exactly."""
    if isinstance(rate, bool) or not isinstance(rate, int | Fraction) or rate <= 0:
        raise Misuse(
            f"a rate is a positive whole number or a Fraction of events a second, not {rate!r}",
            hint="29.97 a second is Fraction(30_000, 1_001); one in 5 s is Fraction(1, 5)",
        )
    exact = Fraction(rate)
    return Period(exact.denominator, exact.numerator)


def periodic_variable(
    name: str, value_type: ValueType, wishes: PublicationWishes
) -> StatusVariable:
    """The variable that shall be published, its identifier still open."""
    if ("rate" in wishes) == ("period" in wishes):
        raise Misuse(
            f"say how often {name} is published: either rate or period",
            hint="rate=60, or period=Period(1, 60)",
        )
    period = period_of_rate(wishes["rate"]) if "rate" in wishes else wishes["period"]
    check_type(value_type)
    return StatusVariable(
        variable_id=VariableId(0),
        name=name,
        value_type=value_type,
        period=period,
        phase_ns=wishes.get("phase_ns", 0),
        derived=tuple(each.declared(value_type) for each in wishes.get("derived", ())),
        replay_speed=wishes.get("replay_speed", 0),
    )


def alert_variable(
    name: str, value_type: ValueType, interval_s_min: float, *, is_belated: bool = False
) -> StatusVariable:
    """An alert: aperiodic, urgent, never more often than once in `interval_s_min`."""
    check_type(value_type)
    if not 0 < interval_s_min <= INTERVAL_S_MAX:
        raise Misuse(
            f"an alert needs a minimum interval above 0, of at most {INTERVAL_S_MAX:,.0f} s, "
            f"not {interval_s_min!r}",
            hint="it bounds what an excited sensor may send; 0.1 allows ten a second",
        )
    return StatusVariable(
        variable_id=VariableId(0),
        name=name,
        value_type=value_type,
        period=None,
        is_alert=True,
        is_belated=is_belated,
        interval_ns_min=max(1, round(interval_s_min * NS_PER_S)),
    )


def check_type(value_type: object) -> None:
    """Whether it is a value type at all; a Python class is the usual mistake."""
    if not isinstance(value_type, BuiltinType | RecordType):
        raise Misuse(
            f"{value_type!r} is no value type",
            hint="INT64, FLOAT64, BOOL, or a RecordType of named fields",
        )


def check_pattern(name: str, *, is_pattern: bool) -> None:
    """A pattern has stars, a name has none."""
    if bool(WILD.intersection(name)) != is_pattern:
        wanted = "subscribe_pattern takes a pattern" if is_pattern else "subscribe takes one name"
        other = "subscribe" if is_pattern else "subscribe_pattern"
        raise Misuse(f"{wanted}, not {name!r}", hint=f"use {other}")


def check_wait(word: str, wait_s: float) -> float:
    """A time to wait that a clock can hold, or one that is over; `inf` and `nan` are neither."""
    if not abs(wait_s) <= INTERVAL_S_MAX:
        raise Misuse(
            f"{word} is {wait_s!r}, and must be at most {INTERVAL_S_MAX:,.0f} seconds",
            hint="say in seconds how long to wait",
        )
    return wait_s


def check_callback(word: str, callback: object) -> None:
    """A callback is called on the delivering thread, where nobody awaits a coroutine."""
    while isinstance(callback, partial):
        callback = callback.func
    called = type(callback).__call__ if callable(callback) else None
    if iscoroutinefunction(callback) or iscoroutinefunction(called):
        raise Misuse(
            f"{word} is a coroutine function, and nobody would await it",
            hint="give a plain function, or follow the events in a coroutine: "
            "`async for event in subscription.events()`",
        )


def refusal(outcome: RefusedOutcome) -> GridStatError:
    """The error that a refusal means, with all that it says."""
    error = error_from(outcome.code, outcome.reason, hint=outcome.hint)
    if isinstance(error, Refused):
        error.bottleneck = outcome.bottleneck
        error.shortfall = outcome.shortfall
    return error


def _how_often(wishes: QosWishes, ending: str) -> dict[str, Any]:
    given = {
        word: wishes[f"{word}{ending}"]  # type: ignore[literal-required]
        for word in ("rate", "interval", "every")
        if f"{word}{ending}" in wishes
    }
    if len(given) > 1:
        raise Misuse(f"say one of {', '.join(f'{word}{ending}' for word in given)}")
    if "rate" in given:
        return {f"interval{ending}": period_of_rate(given["rate"])}
    return {f"{word}{ending}": value for word, value in given.items()}


def _microseconds(latency_ms: float) -> int:
    if not 0 < latency_ms <= LATENCY_MS_MAX:
        raise LayoutError(
            f"a latency of {latency_ms!r} ms, and must be above 0 and at most {LATENCY_MS_MAX:,.0f}"
        )
    return max(1, round(latency_ms * US_PER_MS))
