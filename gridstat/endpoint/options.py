"""Options of the API's calls, and the requests that they mean.

Impossible options (a rate of 0, two options for one interval) raise `Misuse` here, before anything
is sent; options that the grid must judge come back as `Refused` with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, TypeVar, Unpack

from gridstat.model.call_options import checked_call
from gridstat.model.cloud import check_stored_name, check_stored_pattern
from gridstat.model.error_index import error_from
from gridstat.model.errors import GridStatError, LayoutError, Misuse, Refused
from gridstat.model.exact_numbers import exact_rate, real_number, whole_number
from gridstat.model.identifiers import VariableId
from gridstat.model.qos import BASELINE_MODE, LATENCY_US_MAX, ModalQos, QosRequest, preset
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.model.stamp_law import DELAY_MS_DEFAULT
from gridstat.model.status import (
    NAME_CHARS_MAX,
    BuiltinType,
    RecordType,
    StatusVariable,
    ValueType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.endpoint.arrival_clock import Arrival
    from gridstat.endpoint.change import OnChange
    from gridstat.endpoint.delivery import Delivery
    from gridstat.endpoint.violation import Violation
    from gridstat.model.channel_security import Security
    from gridstat.model.derived import Derivation
    from gridstat.model.extrapolation import Extrapolation
    from gridstat.net.command.endpoint_messages import RefusedOutcome

    OnEvent: TypeAlias = Callable[[Delivery], object] | Callable[[Delivery, float], object]
    OnViolation: TypeAlias = Callable[[Violation], object]

US_PER_MS: Final = 1_000
LATENCY_MS_MIN: Final = 1 / US_PER_MS
LATENCY_MS_MAX: Final = LATENCY_US_MAX / US_PER_MS
KEEP_EVENTS_MAX: Final = 10**8
"""Maximum number of events kept for `read`; so many take some gigabytes."""
INTERVAL_S_MAX: Final = 10.0**8
"""Longest interval of alerts and longest wait, about three years."""
WILD: Final = frozenset("*")
Item = TypeVar("Item")

Rate = float | Fraction
"""Events a second: a whole number of any type, or `Fraction(30_000, 1_001)` for 29.97."""


class QosOptions(TypedDict, total=False):
    """Quality of a subscription; each `…_worst` is the least acceptable value."""

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
    security: Security


class PublicationOptions(TypedDict, total=False):
    """Options of a publication: its interval, and what is sent along.

    With a `replay_speed` old events are sent again, with their own stamps, up to so many times as
    fast as they once came: flagged as replayed, and behind live traffic on every channel that has a
    declared bandwidth. `delay_ms` declares how old a live event may be at the first router: 100 ms
    unless declared, up to 10,000 by an access rule, and part of the predicted latency.
    """

    rate: Rate
    period: Period
    phase_ns: int
    derived: Iterable[Derivation]
    replay_speed: int
    delay_ms: int
    on_change: OnChange


class SubscriptionOptions(TypedDict, total=False):
    """Options of a subscription; all are optional."""

    qos: QosRequest
    preset: str
    modes: Mapping[int, QosRequest]
    value_type: ValueType
    on_event: OnEvent
    on_violation: OnViolation
    extrapolate: Extrapolation
    derived: Iterable[str]
    keep_events: int
    on_change: OnChange


@dataclass(frozen=True, slots=True)
class EventHandlers:
    """Handlers of a subscription's events, besides holding the newest.

    `hook` is internal: it passes a member's events to its group.
    """

    on_event: OnEvent | None = None
    on_violation: OnViolation | None = None
    extrapolate: Extrapolation | None = None
    hook: Callable[[Delivery, Arrival], None] | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """One subscription as the application requests it."""

    name: str
    qos: ModalQos
    value_type: ValueType | None = None
    handlers: EventHandlers = field(default_factory=EventHandlers)
    derived: tuple[str, ...] = ()
    keep_events: int = 0
    on_change: OnChange | None = None


@checked_call(options=QosOptions)
def qos(**options: Unpack[QosOptions]) -> QosRequest:
    """A quality of service: `qos(rate=10, latency_ms=50, redundancy=2)`.

    The interval is given as `rate` (events a second), `interval` (an exact `Period`) or `every`
    (each n-th slot). A `preset` sets all other options: `qos(preset="wide-area", rate=30)`. With
    `security="hop"` the contract is refused unless all channels on its paths are sealed.
    """
    return qos_from(preset(options["preset"]) if "preset" in options else QosRequest(), options)


def qos_from(base: QosRequest, options: QosOptions) -> QosRequest:
    """Return a quality of service with these options, and `base` for all others."""
    changes: dict[str, Any] = {
        name: whole_number(name, options[name])
        for name in ("redundancy", "priority", "redundancy_worst", "priority_worst")
        if name in options
    }
    changes |= _how_often(options, "") | _how_often(options, "_worst")
    if "latency_ms" in options:
        changes["latency_us"] = _microseconds("latency_ms", options["latency_ms"])
    if "latency_ms_worst" in options:
        changes["latency_us_worst"] = _microseconds("latency_ms_worst", options["latency_ms_worst"])
    if "security" in options:
        changes["security"] = options["security"]
    return replace(base, **changes)


def subscription_spec(name: str, options: SubscriptionOptions) -> SubscriptionSpec:
    """Return the options as a subscription request; raise where they make no sense."""
    check_callback("on_event", options.get("on_event"))
    check_callback("on_violation", options.get("on_violation"))
    check_callback("on_change", options.get("on_change"))
    keep_events = whole_number("keep_events", options.get("keep_events", 0))
    if not 0 <= keep_events <= KEEP_EVENTS_MAX:
        raise Misuse(
            f"keep_events is {keep_events}, and must be 0 to {KEEP_EVENTS_MAX:,}",
            hint="say how many to keep for `read`",
        )
    extrapolate, value_type = options.get("extrapolate"), options.get("value_type")
    if extrapolate is not None and not isinstance(getattr(extrapolate, "points", None), int):
        raise Misuse(
            f"extrapolate is {extrapolate!r}, and must be an extrapolation",
            hint="extrapolate=gridstat.Polynomial(order=1, points=4)",
        )
    if value_type is not None:
        check_type(value_type)
    derived = check_several("derived", options.get("derived", ()))
    if not all(_is_short_name(each) for each in derived):
        raise Misuse(
            f"derived is {derived!r}, and must be names of derived values",
            hint="derived=['average_10']; `grid.find(name)[0].derived` lists them",
        )
    return SubscriptionSpec(
        name=name,
        qos=modal_qos(options.get("qos"), options.get("preset"), options.get("modes")),
        value_type=value_type,
        handlers=EventHandlers(
            on_event=options.get("on_event"),
            on_violation=options.get("on_violation"),
            extrapolate=extrapolate,
        ),
        derived=derived,
        keep_events=keep_events,
        on_change=options.get("on_change"),
    )


def modal_qos(
    asked: QosRequest | None, named: str | None, modes: Mapping[int, QosRequest] | None
) -> ModalQos:
    """Return the requested quality by mode; without a mode it holds in all of them."""
    if asked is not None and not isinstance(asked, QosRequest):
        raise Misuse(
            f"qos is {asked!r}, and must be a quality of service",
            hint="qos=gridstat.qos(rate=10, latency_ms=50), or preset='wide-area'",
        )
    given = [name for name in (asked, named, modes) if name is not None]
    if len(given) > 1:
        raise Misuse(
            "say one of qos, preset and modes",
            hint="qos(preset=..., rate=...) combines a preset with options of your own",
        )
    if modes is not None:
        return check_modes(modes)
    if named is not None:
        asked = preset(named)
    return ModalQos({BASELINE_MODE: asked or QosRequest()})


def check_modes(modes: object) -> ModalQos:
    """Return the requested quality by mode; raise unless each mode has one."""
    if not isinstance(modes, Mapping) or not all(
        isinstance(asked, QosRequest) for asked in modes.values()
    ):
        raise Misuse(
            f"modes is {modes!r}, and must be a quality of service for each mode",
            hint="modes={0: gridstat.qos(rate=10), 2: gridstat.qos(rate=1)}",
        )
    return ModalQos(dict(modes))


def period_of_rate(rate: object) -> Period:
    """Return the exact period of so many events a second."""
    exact = exact_rate("a rate", rate)
    return Period(exact.denominator, exact.numerator)


def check_period(name: str, period: object) -> Period:
    """Return the period; raise if it is none. A number of seconds is the usual mistake."""
    if not isinstance(period, Period):
        raise Misuse(
            f"{name} is {period!r}, and must be a Period",
            hint="every tenth of a second is Period(1, 10), every five seconds Period(5, 1)",
        )
    return period


def periodic_variable(
    name: str, value_type: ValueType, options: PublicationOptions
) -> StatusVariable:
    """Return the variable to publish, its identifier still open."""
    if ("rate" in options) == ("period" in options):
        raise Misuse(
            f"say how often {name} is published: either rate or period",
            hint="rate=60, or period=Period(1, 60)",
        )
    period = period_of_rate(options["rate"]) if "rate" in options else options["period"]
    period = check_period("period", period)
    check_stored_name(name)
    check_type(value_type)
    derived = check_several("derived", options.get("derived", ()))
    if not all(hasattr(each, "declared") and not isinstance(each, type) for each in derived):
        raise Misuse(
            f"derived is {derived!r}, and must be derivations",
            hint="derived=[gridstat.MovingAverage(10)]",
        )
    return StatusVariable(
        variable_id=VariableId(0),
        name=name,
        value_type=value_type,
        period=period,
        phase_ns=whole_number("phase_ns", options.get("phase_ns", 0)),
        derived=tuple(each.declared(value_type) for each in derived),
        replay_speed=whole_number("replay_speed", options.get("replay_speed", 0)),
        delay_ms=whole_number("delay_ms", options.get("delay_ms", DELAY_MS_DEFAULT)),
    )


def alert_variable(
    name: str, value_type: ValueType, interval_s_min: float, *, is_belated: bool = False
) -> StatusVariable:
    """Return an alert: aperiodic, urgent, at most once in `interval_s_min`."""
    check_stored_name(name)
    check_type(value_type)
    is_belated = check_flag("is_belated", is_belated)
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
    """Raise unless it is a value type; a Python class is the usual mistake."""
    if not isinstance(value_type, BuiltinType | RecordType):
        raise Misuse(
            f"{value_type!r} is no value type",
            hint="INT64, FLOAT64, BOOL, or a RecordType of named fields",
        )


def check_pattern(name: str, *, is_pattern: bool) -> None:
    """Raise unless the name is a pattern (with stars), or is none, as requested."""
    if not isinstance(name, str):
        raise Misuse(f"{name!r} is not the name of a variable", hint="a name is a str")
    if bool(WILD.intersection(name)) != is_pattern:
        wanted = "subscribe_pattern takes a pattern" if is_pattern else "subscribe takes one name"
        other = "subscribe" if is_pattern else "subscribe_pattern"
        raise Misuse(f"{wanted}, not {name!r}", hint=f"use {other}")
    check_stored_pattern(name)  # The broker knows which names are new, and judges those.


def check_several(name: str, given: Iterable[Item]) -> tuple[Item, ...]:
    """Return the items as a tuple; raise for a single item or a str, the usual mistakes."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise Misuse(f"{name} is {given!r}, and must be a list", hint=f"{name}=[{given!r}]")
    return tuple(given)


def check_text(name: str, given: object, hint: str) -> str:
    """Return the text; raise with the hint if it is none. Bytes and numbers are usual mistakes."""
    if not isinstance(given, str):
        raise Misuse(f"{name} is {given!r}, and must be a str", hint=hint)
    return given


def check_flag(name: str, given: object) -> bool:
    """Return the flag; raise if it is none: a text such as "no" would count as true."""
    is_numpy = type(given).__module__ == "numpy" and type(given).__name__.startswith("bool")
    if not isinstance(given, bool) and not is_numpy:
        raise Misuse(
            f"{name} is {given!r}, and must be True or False", hint=f"{name}=True, or leave it out"
        )
    return bool(given)


def check_texts(name: str, given: object, hint: str) -> tuple[str, ...]:
    """Return one text or several as a tuple; raise with the hint if it is neither."""
    if isinstance(given, str):
        return (given,)
    found = tuple(given) if isinstance(given, Iterable) and not isinstance(given, bytes) else None
    if found is None or not all(isinstance(each, str) for each in found):
        raise Misuse(f"{name} is {given!r}, and must be a str or a list of them", hint=hint)
    return found


def check_path(name: str, given: object) -> Path:
    """Return the path of a folder; raise if it is none."""
    try:
        return Path(given)  # type: ignore[arg-type]
    except TypeError:
        raise Misuse(
            f"{name} is {given!r}, and must be a path", hint=f'{name}="folder", or a pathlib.Path'
        ) from None


def check_wait(name: str, wait_s: float) -> float:
    """Return the time to wait; raise if no clock can hold it, as for `inf` and `nan`."""
    wait_s = real_number(name, wait_s)
    if not abs(wait_s) <= INTERVAL_S_MAX:
        raise Misuse(
            f"{name} is {wait_s!r}, and must be at most {INTERVAL_S_MAX:,.0f} seconds",
            hint="say in seconds how long to wait",
        )
    return wait_s


def check_time_left(name: str, wait_s: float) -> float:
    """Return the time to wait for an answer; raise if none can come within it."""
    wait_s = check_wait(name, wait_s)
    if wait_s <= 0:
        raise Misuse(
            f"{name} is {wait_s!r}, and must be above 0", hint="say in seconds how long to wait"
        )
    return wait_s


def check_callback(name: str, callback: object) -> None:
    """Raise unless the callback is a plain function: it is called on the delivering thread, where a
    coroutine would never be awaited."""
    if callback is None:
        return
    while isinstance(callback, partial):
        callback = callback.func
    if not callable(callback):
        raise Misuse(
            f"{name} is {callback!r}, and must be a function", hint=f"{name}=print, without ()"
        )
    if iscoroutinefunction(callback) or iscoroutinefunction(type(callback).__call__):
        raise Misuse(
            f"{name} is a coroutine function, which would never be awaited",
            hint="give a plain function, or follow the events in a coroutine: "
            "`async for event in subscription.events()`",
        )


def refusal(outcome: RefusedOutcome) -> GridStatError:
    """Return the error that a refusal means, with all its fields."""
    error = error_from(outcome.code, outcome.reason, hint=outcome.hint)
    if isinstance(error, Refused):
        error.bottleneck = outcome.bottleneck
        error.shortfall = outcome.shortfall
    return error


def _is_short_name(given: object) -> bool:
    return isinstance(given, str) and 0 < len(given) <= NAME_CHARS_MAX


def _how_often(options: QosOptions, ending: str) -> dict[str, Any]:
    given = {
        name: options[f"{name}{ending}"]  # type: ignore[literal-required]
        for name in ("rate", "interval", "every")
        if f"{name}{ending}" in options
    }
    if len(given) > 1:
        raise Misuse(f"say one of {', '.join(f'{name}{ending}' for name in given)}")
    if "rate" in given:
        return {f"interval{ending}": period_of_rate(given["rate"])}
    if "interval" in given:
        return {f"interval{ending}": check_period(f"interval{ending}", given["interval"])}
    return {
        f"{name}{ending}": whole_number(f"{name}{ending}", value) for name, value in given.items()
    }


def _microseconds(name: str, latency_ms: float) -> int:
    latency_ms = real_number(name, latency_ms)
    if not LATENCY_MS_MIN <= latency_ms <= LATENCY_MS_MAX:
        raise LayoutError(
            f"{name} is {latency_ms!r}, and must be {LATENCY_MS_MIN:g} to {LATENCY_MS_MAX:,.0f}",
            hint="give it in milliseconds; one microsecond is 0.001",
        )
    return round(latency_ms * US_PER_MS)
