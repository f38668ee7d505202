"""What an application may ask, in its own words, and the requests that these words mean.

Words that cannot be meant (a rate of 0, two ways to say how often) raise `Misuse` here, before
anything is sent; words that the grid must judge come back as `Refused` with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

from gridstat.model.call_options import checked_call
from gridstat.model.error_index import error_from
from gridstat.model.errors import GridStatError, LayoutError, Misuse, Refused
from gridstat.model.exact_numbers import exact_rate, real_number, whole_number
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
Item = TypeVar("Item")

Rate = float | Fraction
"""Events a second: a whole number of any type, or `Fraction(30_000, 1_001)` for 29.97."""


class QosOptions(TypedDict, total=False):
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


class PublicationOptions(TypedDict, total=False):
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


@checked_call(options=QosOptions)
def qos(**wishes: Unpack[QosOptions]) -> QosRequest:
    """A quality of service: `qos(rate=10, latency_ms=50, redundancy=2)`.

    How often is said as `rate` (events a second), `interval` (an exact `Period`) or `every` (each
    n-th slot). A `preset` sets what is not said: `qos(preset="wide-area", rate=30)`.
    """
    return qos_from(preset(wishes["preset"]) if "preset" in wishes else QosRequest(), wishes)


def qos_from(base: QosRequest, wishes: QosOptions) -> QosRequest:
    """A quality of service, where nothing else is wished for as `base` has it."""
    changes: dict[str, Any] = {
        name: whole_number(name, wishes[name])
        for name in ("redundancy", "priority", "redundancy_worst", "priority_worst")
        if name in wishes
    }
    changes |= _how_often(wishes, "") | _how_often(wishes, "_worst")
    if "latency_ms" in wishes:
        changes["latency_us"] = _microseconds("latency_ms", wishes["latency_ms"])
    if "latency_ms_worst" in wishes:
        changes["latency_us_worst"] = _microseconds("latency_ms_worst", wishes["latency_ms_worst"])
    return replace(base, **changes)


def modal_qos(
    asked: QosRequest | None, named: str | None, modes: Mapping[int, QosRequest] | None
) -> ModalQos:
    """What a subscription asks in each mode; without a mode it holds in all of them."""
    if asked is not None and not isinstance(asked, QosRequest):
        raise Misuse(
            f"qos is {asked!r}, and must be a quality of service",
            hint="qos=gridstat.qos(rate=10, latency_ms=50), or preset='wide-area'",
        )
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
    exact = exact_rate("a rate", rate)
    return Period(exact.denominator, exact.numerator)


def check_period(name: str, period: object) -> Period:
    """The period, if it is one; a number of seconds is the usual mistake."""
    if not isinstance(period, Period):
        raise Misuse(
            f"{name} is {period!r}, and must be a Period",
            hint="every tenth of a second is Period(1, 10), every five seconds Period(5, 1)",
        )
    return period


def periodic_variable(
    name: str, value_type: ValueType, wishes: PublicationOptions
) -> StatusVariable:
    """The variable that shall be published, its identifier still open."""
    if ("rate" in wishes) == ("period" in wishes):
        raise Misuse(
            f"say how often {name} is published: either rate or period",
            hint="rate=60, or period=Period(1, 60)",
        )
    period = period_of_rate(wishes["rate"]) if "rate" in wishes else wishes["period"]
    period = check_period("period", period)
    check_type(value_type)
    derived = wishes.get("derived", ())
    if not all(hasattr(each, "declared") for each in check_several("derived", derived)):
        raise Misuse(
            f"derived is {derived!r}, and must be derivations",
            hint="derived=[gridstat.MovingAverage(10)]",
        )
    return StatusVariable(
        variable_id=VariableId(0),
        name=name,
        value_type=value_type,
        period=period,
        phase_ns=whole_number("phase_ns", wishes.get("phase_ns", 0)),
        derived=tuple(each.declared(value_type) for each in derived),
        replay_speed=whole_number("replay_speed", wishes.get("replay_speed", 0)),
    )


def alert_variable(
    name: str, value_type: ValueType, interval_s_min: float, *, is_belated: bool = False
) -> StatusVariable:
    """An alert: aperiodic, urgent, never more often than once in `interval_s_min`."""
    check_type(value_type)
    interval_s_min = real_number("interval_s_min", interval_s_min)
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
    if not isinstance(name, str):
        raise Misuse(f"{name!r} is not the name of a variable", hint="a name is a str")
    if bool(WILD.intersection(name)) != is_pattern:
        wanted = "subscribe_pattern takes a pattern" if is_pattern else "subscribe takes one name"
        other = "subscribe" if is_pattern else "subscribe_pattern"
        raise Misuse(f"{wanted}, not {name!r}", hint=f"use {other}")


def check_several(name: str, given: Iterable[Item]) -> tuple[Item, ...]:
    """What was given, if it is several of something; a lone one, or a str, is the usual mistake."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise Misuse(f"{name} is {given!r}, and must be a list", hint=f"{name}=[{given!r}]")
    return tuple(given)


def check_wait(word: str, wait_s: float) -> float:
    """A time to wait that a clock can hold, or one that is over; `inf` and `nan` are neither."""
    wait_s = real_number(word, wait_s)
    if not abs(wait_s) <= INTERVAL_S_MAX:
        raise Misuse(
            f"{word} is {wait_s!r}, and must be at most {INTERVAL_S_MAX:,.0f} seconds",
            hint="say in seconds how long to wait",
        )
    return wait_s


def check_callback(word: str, callback: object) -> None:
    """A callback is called on the delivering thread, where nobody awaits a coroutine."""
    if callback is None:
        return
    while isinstance(callback, partial):
        callback = callback.func
    if not callable(callback):
        raise Misuse(
            f"{word} is {callback!r}, and must be a function", hint=f"{word}=print, without ()"
        )
    if iscoroutinefunction(callback) or iscoroutinefunction(type(callback).__call__):
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


def _how_often(wishes: QosOptions, ending: str) -> dict[str, Any]:
    given = {
        word: wishes[f"{word}{ending}"]  # type: ignore[literal-required]
        for word in ("rate", "interval", "every")
        if f"{word}{ending}" in wishes
    }
    if len(given) > 1:
        raise Misuse(f"say one of {', '.join(f'{word}{ending}' for word in given)}")
    if "rate" in given:
        return {f"interval{ending}": period_of_rate(given["rate"])}
    if "interval" in given:
        return {f"interval{ending}": check_period(f"interval{ending}", given["interval"])}
    return {
        f"{word}{ending}": whole_number(f"{word}{ending}", value) for word, value in given.items()
    }


def _microseconds(name: str, latency_ms: float) -> int:
    latency_ms = real_number(name, latency_ms)
    if not 0 < latency_ms <= LATENCY_MS_MAX:
        raise LayoutError(
            f"{name} is {latency_ms!r}, and must be above 0 and at most {LATENCY_MS_MAX:,.0f}"
        )
    return max(1, round(latency_ms * US_PER_MS))
