"""Checks of requests: rates of published variables, capacity of edges, identifiers and types.

An edge receives every event of its publishers, subscribed or not, so its capacity is checked when a
variable is published, and not with a subscription.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gridstat.broker.capacity.admission import obstacles, replay_obstacle
from gridstat.broker.capacity.charges import Amount, event_rate
from gridstat.model.errors import (
    IntervalNotSatisfiable,
    InvalidPeriod,
    LayoutError,
    RouterFull,
    TypeMismatch,
    VariableExists,
)
from gridstat.model.rate_law import NS_PER_S
from gridstat.model.status import BuiltinType, ValueType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.capacity.allocation import Refusal
    from gridstat.broker.capacity.resources import Resources
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.registry import EndPoint, Registry
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import SubscriptionRequest

INTERVAL_NS_MIN: Final = 1_000
"""Shortest interval of a variable; routers could not tell more frequent events apart."""
PERIOD_NS_MAX: Final = 86_400 * NS_PER_S


def checked_rate(variable: StatusVariable) -> Fraction:
    """Return the events a second of a variable; raise unless its period is within bounds."""
    rate = event_rate(variable)
    _check_law(variable)
    if rate * INTERVAL_NS_MIN > NS_PER_S:
        raise IntervalNotSatisfiable(
            f"{variable.name} would come every {float(NS_PER_S / rate):.3g} ns, and no router "
            f"takes a variable more often than every {INTERVAL_NS_MIN} ns",
            hint="publish with a longer period or minimum interval, or pack values into a record",
        )
    return rate


def _check_law(variable: StatusVariable) -> None:
    """Raise for a period above a day: a change waits for the next slot, which must be near."""
    period = variable.period
    if period is None:
        return
    if period.period_ns > PERIOD_NS_MAX:
        raise InvalidPeriod(
            f"{variable.name} would come every {period}, and a period is at most a day",
            hint="publish it without a period, with a minimum interval",
        )
    if variable.phase_ns >= period.period_ns:
        raise InvalidPeriod(
            f"{variable.name} has a phase of {variable.phase_ns} ns and a period of {period}",
            hint="a phase is less than one period; take the remainder",
        )


def edge_refusal(
    resources: Resources,
    edges: Iterable[str],
    coming: Iterable[StatusVariable],
    going: Iterable[StatusVariable] = (),
) -> Refusal | None:
    """Return why an edge cannot receive `coming` in place of `going`, if so; changes nothing."""
    new, old = _rates(coming), _rates(going)
    more_replay = new.replayed - old.replayed
    if new.live.value <= old.live.value and more_replay <= 0:
        return None
    for edge in sorted(edges):
        if edge not in resources.routers:
            continue
        account = resources.router(edge)
        if more_replay > 0 and account.replays.value + more_replay > account.replays_max:
            return replay_obstacle(resources, edge, more_replay).refusal()
        if new.live.value <= old.live.value:
            continue
        met = obstacles(resources, resources.replace_router_load(edge, old.live, new.live))
        resources.replace_router_load(edge, new.live, old.live)
        if met:
            return met[0].refusal()
    return None


class _Rates(NamedTuple):
    """Events a second of live variables, and of replayed ones, which are charged separately."""

    live: Amount
    replayed: Fraction


def _rates(variables: Iterable[StatusVariable]) -> _Rates:
    live = replayed = Fraction(0)
    for variable in variables:
        if variable.is_replay:
            replayed += event_rate(variable)
        else:
            live += event_rate(variable)
    return _Rates(Amount(live), replayed)


def check_room(context: BrokerContext, endpoint: EndPoint, edge: str) -> None:
    """Raise unless an edge can receive all variables that an end-point publishes."""
    publications = context.registry.publications
    coming = [publications[name].variable for name in sorted(endpoint.publications)]
    refusal = edge_refusal(context.reservations.resources, (edge,), coming)
    if refusal is not None:
        raise RouterFull(refusal.reason)


# Identifiers: two variables with one identifier would be charged to each other.


def check_identifier(registry: Registry, resources: Resources, variable: StatusVariable) -> None:
    """Raise if another variable of this cloud, or one that crosses or floods it, has the number."""
    number = variable.variable_id
    known = registry.publication_by_id(number) or resources.stream_costs.get(number)
    if known is not None and known.variable != variable:
        raise VariableExists(
            f"identifier {number} is of {known.variable.name} here, and of {variable.name} "
            "elsewhere",
            hint="clouds of one tree take their identifiers from its root",
        )


# Types: the one that a subscriber expects against the registered one.


def expected_type(wanted: SubscriptionRequest) -> ValueType | None:
    """Return the type that a request expects; None leaves the type unchecked."""
    if wanted.value_type is None:
        return None
    try:
        found: ValueType = msgspec.convert(wanted.value_type, ValueType)
    except msgspec.ValidationError as error:
        raise LayoutError(f"the expected type of {wanted.name} cannot be read: {error}") from error
    return found


def check_type(variable: StatusVariable, expected: ValueType | None) -> None:
    if expected is not None and expected != variable.value_type:
        raise TypeMismatch(
            f"{variable.name} is {_type_text(variable.value_type)}, not {_type_text(expected)}"
        )


def encode_type(expected: ValueType | None) -> bytes:
    return b"" if expected is None else msgspec.msgpack.encode(expected)


def _type_text(value_type: ValueType) -> str:
    if isinstance(value_type, BuiltinType):
        return value_type.value
    return f"record {value_type.name} of {value_type.size_bytes} bytes"
