"""Every public call refuses an option that it does not have, and says which one was meant.

The calls are found by looking, not by a list: each name of `gridstat.__all__`, and each public
method of each public class. A call that swallows unknown options fails here.
"""

from __future__ import annotations

import asyncio
import inspect
from enum import Enum
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest

import gridstat
from gridstat.endpoint.connection import Connection
from gridstat.endpoint.receiver import Receiver
from gridstat.model.errors import GridStatError, Misuse, WrongCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NO_SUCH = "no_such_option"
PASSES_ON = {"Connection.run"}
"""Hands all it is given to another function, which refuses."""
LEFT_TO_PYTHON = {
    "Contract",
    "Delivery",
    "FloodedEvent",
    "GroupSet",
    "Ledger",
    "PathLedger",
    "Publication.column",
    "Publication.identifier_at",
    "Qos",
    "Violation",
}
"""Values that an application is given and does not make, and methods that only the connection
calls, for each of many events: Python's own refusal is enough."""


def public_calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in gridstat.__all__:
        found = getattr(gridstat, name)
        if not callable(found):
            continue
        yield name, found
        if isinstance(found, type):
            for method, function in inspect.getmembers(found, inspect.isroutine):
                # What a class inherits from Python (of tuples, numbers, exceptions) is Python's.
                if not method.startswith("_") and isinstance(function, FunctionType):
                    yield f"{name}.{method}", function


CALLS = dict(public_calls())


def is_ours(name: str) -> bool:
    """Return whether a refusal must be an error of ours."""
    first = name.partition(".")[0]
    owner = getattr(gridstat, first)
    is_value = isinstance(owner, type) and issubclass(owner, Enum | GridStatError)
    return not is_value and not LEFT_TO_PYTHON.intersection((name, first))


def with_unknown_option(call: Callable[..., Any]) -> None:
    """Call with something for each parameter that is needed, and with one that there is not."""
    needed: list[Any] = []
    if not (isinstance(call, type) and issubclass(call, Enum | GridStatError)):
        needed = [
            None
            for each in inspect.signature(call).parameters.values()
            if each.default is each.empty
            and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        ]
    found = call(*needed, **{NO_SUCH: 1})
    if inspect.iscoroutine(found):
        asyncio.run(found)


def test_the_walk_finds_the_calls_of_an_application() -> None:
    known = {
        "Connection.find",
        "Connection.group",
        "Connection.publish",
        "Connection.publish_alert",
        "Connection.publish_many",
        "Connection.send_many",
        "Connection.subscribe",
        "Connection.subscribe_later",
        "Connection.subscribe_many",
        "Connection.subscribe_pattern",
        "Group.add",
        "Group.latest",
        "PatternSubscription.unsubscribe",
        "Period",
        "Polynomial",
        "Publication.change_period",
        "Publication.send",
        "Subscription.change",
        "Subscription.read",
        "connect",
        "connect_async",
        "qos",
    }
    assert known <= CALLS.keys()


@pytest.mark.parametrize("name", sorted(CALLS.keys() - PASSES_ON))
def test_an_unknown_option_is_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match=NO_SUCH) as refusal:
        with_unknown_option(CALLS[name])
    if is_ours(name):
        assert isinstance(refusal.value, WrongCall)
        assert refusal.value.hint


def test_a_call_that_swallows_options_would_be_found() -> None:
    def swallows(name: str, **_options: object) -> str:
        return name

    with pytest.raises(pytest.fail.Exception), pytest.raises(TypeError, match=NO_SUCH):
        with_unknown_option(swallows)


def test_what_runs_a_call_in_a_coroutine_hands_the_refusal_on() -> None:
    grid = Connection(None)  # type: ignore[arg-type]
    with pytest.raises(WrongCall, match="find"):
        asyncio.run(grid.run(grid.find, "c1/**", most=3))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("call", "text", "hint"),
    [
        (
            lambda grid: grid.subscribe("c1/a/v", redundancy=2),
            "subscribe() has no option 'redundancy'",
            "it belongs into qos=gridstat.qos(redundancy=2)",
        ),
        (
            lambda grid: grid.subscribe_pattern("c1/*", redundency=2),
            "subscribe_pattern() has no option 'redundency'",
            "it belongs into qos=gridstat.qos(redundancy=2)",
        ),
        (
            lambda _: gridstat.qos(redundency=2),  # type: ignore[call-arg]
            "qos() has no option 'redundency'",
            "did you mean 'redundancy'?",
        ),
        (
            lambda grid: grid.publish("v", gridstat.FLOAT64, rate=1, derive=[]),
            "publish() has no option 'derive'",
            "did you mean 'derived'?",
        ),
        (
            lambda _: gridstat.connect("c1/e0", "c1/me", fifo_prio=3),  # type: ignore[call-arg]
            "connect() has no option 'fifo_prio'",
            "did you mean 'fifo_priority'?",
        ),
        (
            lambda _: gridstat.Polynomial(degree=2),  # type: ignore[call-arg]
            "Polynomial() has no option 'degree'",
            "its options are order, points",
        ),
        (
            lambda _: gridstat.Publication.send(None, 1.0, created=5),  # type: ignore[arg-type]
            "send() has no option 'created'",
            "did you mean 'created_ns'?",
        ),
        (
            lambda _: gridstat.PatternSubscription.unsubscribe(  # type: ignore[call-arg]
                None,  # type: ignore[arg-type]
                at_once=True,
            ),
            "unsubscribe() has no option 'at_once'",
            "it has no options",
        ),
        (
            lambda grid: grid.subscribe("c1/a/v", gridstat.qos(rate=1)),
            "subscribe(): too many positional arguments",
            "write subscribe(name, *, qos=…, preset=…",
        ),
    ],
)
def test_the_refusal_says_what_to_write(
    call: Callable[[Any], object], text: str, hint: str
) -> None:
    with pytest.raises(Misuse) as refusal:
        call(Connection(None))  # type: ignore[arg-type]
    assert refusal.value.args[0] == text
    assert refusal.value.hint.startswith(hint)


@pytest.mark.parametrize("name", ["connect_async", "Connection.run", "ChangeStream.aclose"])
def test_a_checked_coroutine_function_is_seen_as_one(name: str) -> None:
    assert inspect.iscoroutinefunction(CALLS[name])


def test_a_coroutine_function_refuses_when_it_is_awaited() -> None:
    waiting = gridstat.connect_async("c1/e0", "c1/me", fifo_prio=3)  # type: ignore[call-arg]
    with pytest.raises(WrongCall) as refusal:
        asyncio.run(waiting)
    assert refusal.value.args[0] == "connect_async() has no option 'fifo_prio'"
    assert refusal.value.hint.startswith("did you mean 'fifo_priority'?")


def test_help_shows_every_option_of_a_call() -> None:
    assert "fifo_priority" in str(inspect.signature(gridstat.connect))
    assert "keep_events" in str(inspect.signature(Connection.subscribe))


def test_a_type_error_of_the_application_itself_is_not_changed() -> None:
    def extrapolate(*_: object) -> float:
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        gridstat.UserExtrapolation(extrapolate).extrapolate([1], [1.0], 2)


def test_a_receiver_refuses_an_unknown_setting() -> None:
    with pytest.raises(WrongCall) as refusal:
        Receiver(ring_event=8)  # type: ignore[call-arg]
    assert refusal.value.hint == "did you mean 'ring_events'?"
