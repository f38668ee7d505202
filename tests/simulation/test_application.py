"""A simulated application believes as much as a real one would, and no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from gridstat.model.qos import ModalQos
from gridstat.net.command.endpoint_messages import (
    GrantedOutcome,
    Matched,
    Subscribe,
    SubscriptionRequest,
)
from lab.simulation.application import Application, Asked

if TYPE_CHECKING:
    from lab.simulation.endpoint_node import EndPointNode

PATTERN, CATCH = 7, 8


def application() -> Application:
    judge = SimpleNamespace(answered=lambda *_: None)
    return Application(cast("EndPointNode", SimpleNamespace(judge=judge)))


def caught() -> Matched:
    granted = GrantedOutcome(subscription_id=CATCH, variable=None)
    return Matched(pattern_id=PATTERN, granted=granted)


def test_a_catch_of_an_earlier_process_is_not_believed_in() -> None:
    found = application()
    found.notified(caught())
    assert found.caught == {}


def test_a_catch_that_is_ahead_of_its_pattern_is_believed_in_once_that_is_granted() -> None:
    found = application()
    wanted = SubscriptionRequest(name="c1/*", qos=ModalQos(), label="s1")
    found.waiting[1] = Asked(Subscribe(subscriptions=(wanted,)), 0)
    found.notified(caught())
    found.answered(1, (GrantedOutcome(subscription_id=PATTERN, variable=None, label="s1"),))
    assert found.caught == {CATCH: PATTERN}
