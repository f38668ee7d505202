"""Messages between brokers for each kind of operation: publish, change, unsubscribe, flood."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.errors import BenchmarkError
from benchmarks.tree_storms import (
    LATENCY_US,
    PER_REQUEST,
    SETTLE_S,
    application_of,
    check,
    variable_of,
)
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    DoneOutcome,
    GrantedOutcome,
    Unsubscribe,
)
from gridstat.net.command.operator_messages import RemoveFlooding, SetFlooding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.tree_storms import Pair, TreeSubscribers

SLOWER: Final = ModalQos({0: QosRequest(every=2, latency_us=LATENCY_US)})
PUBLISHED: Final = 256
"""Enough for a cloud to ask for identifiers now and then, as it does in a long run."""


def messages_per_operation(subscribers: TreeSubscribers, pairs: Sequence[Pair]) -> dict[str, float]:
    """Return means over the pairs; a flood is requested at the broker right above the publisher.

    `flood_root` is requested at the root, so that every cloud of the grid receives it.
    """
    plan = subscribers.plane.grid.plan
    above = [plan.brokers[publisher].parent for publisher, _ in pairs]
    subscribers.publish(pairs, PER_REQUEST)
    granted = [(pair, subscribers.subscribe(pair, PER_REQUEST)) for pair in pairs]
    subscriber_ids = [
        (application_of(pair[1], 0), one.subscription_id) for pair, some in granted for one in some
    ]
    publishers = list(dict.fromkeys(publisher for publisher, _ in pairs))

    def publish() -> None:
        for cloud in publishers:
            subscribers.publish_in(cloud, PUBLISHED)

    def change() -> None:
        for subscriber, number in subscriber_ids:
            command = ChangeSubscription(subscription_id=number, qos=SLOWER)
            key = subscribers.plane.ask(subscriber, command)
            check(subscribers.plane.answered([key])[0], GrantedOutcome)

    def unsubscribe() -> None:
        for subscriber, number in subscriber_ids:
            key = subscribers.plane.ask(subscriber, Unsubscribe(subscription_ids=(number,)))
            check(subscribers.plane.answered([key])[0], DoneOutcome)

    def flood(brokers: Sequence[str]) -> None:
        for broker, (publisher, _) in zip(brokers, pairs, strict=False):
            _flood(subscribers, broker, variable_of(publisher, 0))

    counted = {
        "publish": (publish, PUBLISHED * len(publishers)),
        "change": (change, len(subscriber_ids)),
        "unsubscribe": (unsubscribe, len(subscriber_ids)),
        "flood": (lambda: flood(above), len(pairs)),
        "flood_root": (lambda: flood(["root"]), 1),
    }
    return {name: _messages(subscribers, act) / count for name, (act, count) in counted.items()}


def _messages(subscribers: TreeSubscribers, act: Callable[[], None]) -> int:
    """Return the number of messages between brokers until rest."""
    plane = subscribers.plane
    before = plane.tree_messages
    act()
    plane.run(until_ns=plane.now_ns + SETTLE_S * NS_PER_S)
    return plane.tree_messages - before


def _flood(subscribers: TreeSubscribers, broker: str, name: str) -> None:
    """Begin a flood and end it again; both count as one."""
    for command in (
        SetFlooding(request_id=1, name=name),
        RemoveFlooding(request_id=2, name=name),
    ):
        answer = subscribers.plane.command(broker, command)
        if answer.refused is not None:
            raise BenchmarkError(f"{broker} does not flood {name}: {answer.refused.reason}")
