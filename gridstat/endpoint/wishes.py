"""What an application wishes of a subscription, and the order that it becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from gridstat.endpoint.asking import check_callback, modal_qos
from gridstat.endpoint.incoming import Interests
from gridstat.endpoint.subscription_book import Order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gridstat.endpoint.change import OnChange
    from gridstat.endpoint.incoming import OnEvent, OnViolation
    from gridstat.model.extrapolation import Extrapolation
    from gridstat.model.qos import QosRequest
    from gridstat.model.status import ValueType


class SubscriptionWishes(TypedDict, total=False):
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


def order_of(name: str, wishes: SubscriptionWishes) -> Order:
    """The wishes as an order; raises where they make no sense."""
    check_callback("on_event", wishes.get("on_event"))
    check_callback("on_violation", wishes.get("on_violation"))
    check_callback("on_change", wishes.get("on_change"))
    return Order(
        name=name,
        qos=modal_qos(wishes.get("qos"), wishes.get("preset"), wishes.get("modes")),
        value_type=wishes.get("value_type"),
        interests=Interests(
            on_event=wishes.get("on_event"),
            on_violation=wishes.get("on_violation"),
            extrapolate=wishes.get("extrapolate"),
        ),
        derived=tuple(wishes.get("derived", ())),
        keep_events=wishes.get("keep_events", 0),
        on_change=wishes.get("on_change"),
    )
