"""What an application wishes of a subscription, and the order that it becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from gridstat.endpoint.options import check_callback, check_several, check_type, modal_qos
from gridstat.endpoint.subscription_dispatch import Interests
from gridstat.endpoint.subscription_registry import Order
from gridstat.model.errors import Misuse
from gridstat.model.exact_numbers import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gridstat.endpoint.change import OnChange
    from gridstat.endpoint.subscription_dispatch import OnEvent, OnViolation
    from gridstat.model.extrapolation import Extrapolation
    from gridstat.model.qos import QosRequest
    from gridstat.model.status import ValueType


class SubscriptionOptions(TypedDict, total=False):
    """What a subscription shall be; all of it may be left out."""

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


def order_of(name: str, wishes: SubscriptionOptions) -> Order:
    """The wishes as an order; raises where they make no sense."""
    check_callback("on_event", wishes.get("on_event"))
    check_callback("on_violation", wishes.get("on_violation"))
    check_callback("on_change", wishes.get("on_change"))
    keep_events = whole_number("keep_events", wishes.get("keep_events", 0))
    if keep_events < 0:
        raise Misuse(f"keep_events is {keep_events}", hint="say how many to keep for `read`")
    extrapolate, value_type = wishes.get("extrapolate"), wishes.get("value_type")
    if extrapolate is not None and not isinstance(getattr(extrapolate, "points", None), int):
        raise Misuse(
            f"extrapolate is {extrapolate!r}, and must be an extrapolation",
            hint="extrapolate=gridstat.Polynomial(order=1, points=4)",
        )
    if value_type is not None:
        check_type(value_type)
    derived = check_several("derived", wishes.get("derived", ()))
    if not all(isinstance(name, str) for name in derived):
        raise Misuse(
            f"derived is {derived!r}, and must be names of derived values",
            hint="derived=['average_10']; `grid.find(name)[0].derived` lists them",
        )
    return Order(
        name=name,
        qos=modal_qos(wishes.get("qos"), wishes.get("preset"), wishes.get("modes")),
        value_type=value_type,
        interests=Interests(
            on_event=wishes.get("on_event"),
            on_violation=wishes.get("on_violation"),
            extrapolate=extrapolate,
        ),
        derived=derived,
        keep_events=keep_events,
        on_change=wishes.get("on_change"),
    )
