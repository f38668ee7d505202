"""Every public call refuses an option that it does not have, and says which one was meant.

The calls are found by looking, not by a list: each name of `gridstat.__all__`, and each public
method of each public class. A call that swallows unknown options fails here.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from enum import Enum
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gridstat
from gridstat.endpoint import connection_setup
from gridstat.endpoint.connection import Connection
from gridstat.endpoint.options import alert_variable
from gridstat.endpoint.receiver import Receiver
from gridstat.model.errors import GridStatError, LayoutError, Misuse, WrongCall
from tests.unit.endpoint.paper_grid import PaperGrid, PaperLink, granted, variable
from tests.unit.endpoint.paper_station import Station

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


# Arguments of a wrong type or beyond all bounds.

EDGE = "c1/e0@127.0.0.1:1"
WRONG_TO_CONNECT: list[tuple[str, dict[str, Any]]] = [
    *(("edges", {"edges": wrong}) for wrong in (5, None, 2.5, True, [1], [EDGE, None])),
    ("edges", {"edges": b"127.0.0.1:1"}),
    *(("name", {"name": wrong}) for wrong in (5, None, b"c1/me", ["c1/me"])),
    *(("name_service", {"name_service": wrong}) for wrong in (5, None, b"h:1", [5], True)),
    *(("folder", {"folder": wrong}) for wrong in (5, None, b".gridstat", [".gridstat"])),
    *(("certificates", {"certificates": wrong}) for wrong in (5, None, b"certs")),
    *(("timeout_s", {"timeout_s": wrong}) for wrong in (-5, 0, "5", True, None)),
    *(("answer_within_s", {"answer_within_s": wrong}) for wrong in (-5, 0, "5")),
    *(("fifo_priority", {"fifo_priority": wrong}) for wrong in (-1, 100, 1000, 10**12, 1.5, "5")),
    *(("ring_events", {"ring_events": wrong}) for wrong in (0, -1, 2.5, "5", 10**12)),
    *(("option_bytes", {"option_bytes": wrong}) for wrong in (-1, 2.5, "5", 10**12)),
    *(("variables_max", {"variables_max": wrong}) for wrong in (0, -1, 2.5, "5", 10**12)),
    ("on_change", {"on_change": 5}),
    *(("core_dumps", {"core_dumps": wrong}) for wrong in (1, 0, "yes", None)),
]


@pytest.mark.parametrize(("word", "options"), WRONG_TO_CONNECT, ids=repr)
def test_connect_refuses_a_wrong_argument_by_name_before_it_looks_anything_up(
    monkeypatch: pytest.MonkeyPatch, word: str, options: dict[str, Any]
) -> None:
    def look_up(*_: object) -> object:
        raise AssertionError("looked up")

    monkeypatch.setattr(connection_setup, "_looked_up", look_up)
    monkeypatch.setattr(connection_setup, "open_folder", look_up)
    monkeypatch.setattr(connection_setup, "Credentials", look_up)
    given: dict[str, Any] = {"edges": EDGE, "name": "c1/me", **options}
    with pytest.raises(Misuse, match=f"^{word} is ") as refusal:
        gridstat.connect(**given)
    assert refusal.value.hint


QUALITY = gridstat.qos(interval=gridstat.Period(1, 10))
WRONG_CALLS: list[tuple[str, Callable[[Any], object]]] = [
    *(
        (f"name is {wrong!r}", call)
        for wrong in (5, None, b"v", ["v"])
        for call in (
            lambda grid, wrong=wrong: grid.publish(wrong, gridstat.FLOAT64, rate=1),
            lambda grid, wrong=wrong: grid.publish_alert(wrong, gridstat.BOOL, interval_s_min=1),
            lambda grid, wrong=wrong: grid.publish_many([wrong], gridstat.FLOAT64, rate=1),
            lambda grid, wrong=wrong: grid.full_name(wrong),
            lambda grid, wrong=wrong: grid.group(wrong, modes={0: QUALITY}),
        )
    ),
    ("names is b'v'", lambda grid: grid.publish_many(b"v", gridstat.FLOAT64, rate=1)),
    *(
        (f"modes is {wrong!r}", call)
        for wrong in (5, b"x", [1], {0: 5}, {0: None}, {0: {"rate": 1}})
        for call in (
            lambda grid, wrong=wrong: grid.subscribe("c1/a/v", modes=wrong),
            lambda grid, wrong=wrong: grid.subscribe_pattern("c1/*", modes=wrong),
            lambda grid, wrong=wrong: grid.group("g", modes=wrong),
        )
    ),
    ("there is no preset", lambda grid: grid.subscribe("c1/a/v", preset=["wide-area"])),
    ("there is no preset", lambda grid: grid.subscribe("c1/a/v", preset="")),
    ("there is no preset", lambda _: gridstat.qos(preset={})),  # type: ignore[arg-type]
    *(
        ("derived is", lambda grid, wrong=wrong: grid.subscribe("c1/a/v", derived=wrong))
        for wrong in (5, None, "average_10", b"average_10", [5], [None], [""], ["x" * 129])
    ),
    *(
        (
            "derived is",
            lambda grid, wrong=wrong: grid.publish("v", gridstat.FLOAT64, rate=1, derived=wrong),
        )
        for wrong in (5, None, "x", ["x"], [5], [gridstat.MovingAverage])
    ),
    *(
        ("keep_events is", lambda grid, wrong=wrong: grid.subscribe("c1/a/v", keep_events=wrong))
        for wrong in (-1, 2.5, "5", None, 10**12)
    ),
    *(
        (
            "is_belated is",
            lambda grid, wrong=wrong: grid.publish_alert(
                "v", gridstat.BOOL, interval_s_min=1, is_belated=wrong
            ),
        )
        for wrong in ("no", "", 0, 1, None)
    ),
    *(
        ("latency_ms", lambda _, wrong=wrong: gridstat.qos(latency_ms=wrong))
        for wrong in (0, 1e-9, 0.000_9, -1, "5")
    ),
    ("latency_ms_worst", lambda _: gridstat.qos(latency_ms_worst=1e-9)),
    ("pattern is 5", lambda grid: grid.find(5)),
    ("after is 5", lambda grid: grid.find("c1/**", after=5)),
    ("publications is 5", lambda grid: grid.send_many(5, [1.0])),
    ("publications is", lambda grid: grid.send_many([5], [1.0])),
]


@pytest.fixture
def grid() -> Iterator[PaperGrid]:
    found = PaperGrid()
    yield found
    found.close()


@pytest.mark.parametrize(("text", "call"), WRONG_CALLS)
def test_a_call_refuses_a_wrong_argument_by_name(
    grid: PaperGrid, text: str, call: Callable[[Any], object]
) -> None:
    link = PaperLink(grid)
    link.publications = Station("c1/e0").book  # type: ignore[attr-defined]
    with pytest.raises(Misuse, match=f"^{re.escape(text)}") as refusal:
        call(Connection(link))  # type: ignore[arg-type]
    assert refusal.value.hint
    assert not link.cloud.asked


@pytest.mark.parametrize("wrong", [2.5, "5", None, True])
def test_a_stream_or_a_read_of_no_number_of_events_is_refused(grid: PaperGrid, wrong: Any) -> None:
    grid.cloud.ready.append((granted(variable()),))
    connection = Connection(PaperLink(grid))  # type: ignore[arg-type]
    voltage = connection.subscribe("c1/a/v", keep_events=8)
    for call, word in (
        (voltage.events, "events_max"),
        (voltage.read, "events_max"),
        (voltage.changes, "changes_max"),
    ):
        with pytest.raises(Misuse, match=f"^{word} is"):
            call(wrong)


def test_the_least_latency_and_the_flags_of_numpy_are_taken() -> None:
    assert gridstat.qos(latency_ms=0.001).latency_us == 1
    flag: Any = np.True_
    alert = alert_variable("c1/a/v", gridstat.BOOL, 1.0, is_belated=flag)
    assert alert.is_belated is True


INT8 = gridstat.Field("a", gridstat.FieldKind.INT8)
WRONG_VALUES: list[tuple[str, Callable[[], object]]] = [
    *(
        ("name is", lambda wrong=wrong: gridstat.Field(wrong, gridstat.FieldKind.INT8))
        for wrong in (5, None, b"a", ["a"])
    ),
    *(
        ("field a is", lambda wrong=wrong: gridstat.Field("a", wrong))
        for wrong in ("b", "int8", 5, None, float, gridstat.INT64)
    ),
    *(
        ("name is", lambda wrong=wrong: gridstat.RecordType(wrong, (INT8,)))
        for wrong in (5, None, b"a", ["a"])
    ),
    *(
        ("fields is", lambda wrong=wrong: gridstat.RecordType("r", wrong))
        for wrong in (5, None, "a", INT8, ("a",), {"a": gridstat.FieldKind.INT8})
    ),
    ("name is 5", lambda: gridstat.DerivedValue(5, gridstat.FLOAT64)),  # type: ignore[arg-type]
    *(
        ("derived value x is", lambda wrong=wrong: gridstat.DerivedValue("x", wrong))
        for wrong in ("float64", float, None, gridstat.FieldKind.FLOAT64)
    ),
    *(
        ("interval is", lambda wrong=wrong: gridstat.QosRequest(interval=wrong))
        for wrong in (5, 0.1, "1/10")
    ),
    *(
        ("interval_worst is", lambda wrong=wrong: gridstat.QosRequest(interval_worst=wrong))
        for wrong in (5, "1/10")
    ),
    ("function is 5", lambda: gridstat.UserExtrapolation(5)),  # type: ignore[arg-type]
    ("orders is 5", lambda: gridstat.PolynomialAverage(orders=5)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("text", "call"), WRONG_VALUES)
def test_a_value_of_the_api_refuses_a_wrong_part_by_name(
    text: str, call: Callable[[], object]
) -> None:
    with pytest.raises(LayoutError, match=f"^{text}") as refusal:
        call()
    assert refusal.value.hint


def test_the_fields_of_a_record_may_be_a_list() -> None:
    fields: Any = [INT8]
    record = gridstat.RecordType("r", fields)
    assert record == gridstat.RecordType("r", (INT8,))
    assert hash(record) == hash(gridstat.RecordType("r", (INT8,)))
