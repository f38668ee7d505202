"""Representations of public objects: one line, with the name and the main facts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import gridstat
from gridstat.endpoint.connection import Connection
from gridstat.endpoint.contract import Contract
from gridstat.endpoint.delivery import Delivery
from gridstat.endpoint.flooded import FloodedEvent
from gridstat.endpoint.group_sets import GroupSet
from gridstat.endpoint.ledger import Ledger
from gridstat.endpoint.options import EventHandlers, SubscriptionSpec
from gridstat.endpoint.path_ledger import PathLedger
from gridstat.endpoint.subscriber import Subscription
from gridstat.endpoint.violation import Reason, Violation
from gridstat.model.extrapolation import Polynomial
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.short_text import TEXT_CHARS_MAX
from gridstat.model.status import EventFlag, TimeQuality
from gridstat.net.command.endpoint_messages import FoundOutcome, GrantedOutcome, GrantedPath
from tests.unit.endpoint.paper_grid import MS, PaperGrid, PaperLink, granted, variable
from tests.unit.endpoint.paper_station import Station

if TYPE_CHECKING:
    from collections.abc import Iterator

VOLTAGE = variable()
LONG = "c1/" + "x" * 200 + "/v"
EVENT = Delivery(231.4, 1_000_000, 1_412_000, name="c1/a/v")


@pytest.fixture
def grid() -> Iterator[PaperGrid]:
    found = PaperGrid()
    yield found
    found.close()


def subscribe(grid: PaperGrid, **handlers: Any) -> Subscription:
    paths = (GrantedPath(("c1/e0",), (1,), 412), GrantedPath(("c1/e1",), (2,), 300))
    plain = granted(VOLTAGE)
    grid.cloud.ready.append(
        (GrantedOutcome(plain.subscription_id, VOLTAGE, plain.granted, paths=paths),)
    )
    order = SubscriptionSpec(VOLTAGE.name, ModalQos(), handlers=EventHandlers(**handlers))
    (found,) = grid.book.subscribe([order])
    assert isinstance(found, Subscription), found
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (EVENT, "<Delivery c1/a/v, value 231.4, stamp 1000000, latency 412 µs>"),
        (
            EVENT._replace(flags=EventFlag.CACHED, time_quality=TimeQuality.BAD),
            "<Delivery c1/a/v, value 231.4, stamp 1000000, latency 412 µs, cached, bad time>",
        ),
        (
            EVENT._replace(is_extrapolated=True),
            "<Delivery c1/a/v, value 231.4, extrapolated, due at 1000000>",
        ),
        (
            FloodedEvent(VOLTAGE, EVENT),
            "<FloodedEvent c1/a/v, value 231.4, stamp 1000000, latency 412 µs>",
        ),
        (
            GroupSet(7, {"c1/a/v": EVENT}),
            "<GroupSet slot 7, 1 member, {'c1/a/v': 231.4}>",
        ),
        (
            Ledger(expected=10, delivered=9, lost=1, late=2, paths=(PathLedger("path 1"),)),
            "<Ledger expected 10 = delivered 9 + lost 1, late 2>",
        ),
        (
            PathLedger("path 1", ("c1/e0", "c1/e1"), 10, 9, 1, is_open=False),
            "<PathLedger path 1, expected 10 = delivered 9 + lost 1, left, 2 routers>",
        ),
        (
            Violation("c1/a/v", 12, 1_000_000, Reason.LATE, EVENT),
            "<Violation c1/a/v, late, slot 12, expected at 1000000, latency 412 µs>",
        ),
        (
            Contract(3, VOLTAGE, {}, (GrantedPath(("c1/e0",), (1,), 412),), degraded=("rate",)),
            "<Contract c1/a/v, number 3, 1 path, 412 µs predicted, degraded in 1>",
        ),
        (VOLTAGE, "<StatusVariable c1/a/v, number 1, float64 every 1/100 s>"),
        (gridstat.qos(rate=10), "QosRequest(interval=Period(seconds=1, per_seconds=10))"),
        (QosRequest(), "QosRequest()"),
    ],
)
def test_a_value_says_its_name_and_its_facts(value: object, text: str) -> None:
    assert repr(value) == text


def test_a_subscription_says_its_newest_value_and_its_state(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    assert repr(voltage) == "<Subscription c1/a/v, no event yet, 2 paths>"
    assert repr(voltage.snapshot()) == "<Snapshot c1/a/v, no event yet>"
    grid.send(VOLTAGE, (100, 231.4))
    voltage.unsubscribe()
    assert repr(voltage) == "<Subscription c1/a/v, value 231.4, 2 paths, ended>"
    assert repr(voltage.snapshot()).startswith("<Snapshot c1/a/v, value 231.4, stamp 1")


def test_a_pattern_says_what_it_has_matched(grid: PaperGrid) -> None:
    grid.cloud.ready.append((GrantedOutcome(10, None, degraded=("one was not caught",)),))
    pattern = grid.book.subscribe_pattern(SubscriptionSpec("c1/*/v", ModalQos()), None)
    assert repr(pattern) == "<PatternSubscription c1/*/v, 0 matches, 1 missed>"
    pattern.unsubscribe()
    assert repr(pattern).endswith(", ended>")


def test_a_connection_and_a_group_say_their_state(grid: PaperGrid) -> None:
    link = PaperLink(grid)
    connection = Connection(link)  # type: ignore[arg-type]
    assert repr(connection) == "<Connection c1/reader, attached to c1/e0>"
    link.attached_edges = ()  # type: ignore[assignment]
    assert repr(connection) == "<Connection c1/reader, not attached>"
    group = connection.group("angles", interval=Period(1, 10), latency_ms=100)
    grid.cloud.ready += [(FoundOutcome((VOLTAGE,)),), (granted(VOLTAGE),)]
    group.add("c1/a/v")
    assert repr(group) == "<Group angles, 1 member, every 1/10 s, 0 complete, 0 incomplete>"
    connection.close()
    assert repr(connection) == "<Connection c1/reader, closed>"
    assert repr(group).startswith("<Group angles, closed")


def test_a_publication_says_its_kind_and_its_state() -> None:
    station = Station("c1/e0")
    voltage = station.publish()
    assert repr(voltage) == "<Publication c1/a/v, float64 every 1/60 s>"
    voltage.end()
    assert repr(voltage) == "<Publication c1/a/v, float64 every 1/60 s, ended>"


@pytest.mark.parametrize(
    "value",
    [
        Delivery("é\n\x1b[31m" * 99, 2**64 - 1, 2**64 - 1, name=LONG),  # type: ignore[arg-type]
        GroupSet(2**63, {f"{LONG}{n}": EVENT for n in range(50)}),
        Violation(f"{LONG}\x1b[31m\n", 2**63, 2**64 - 1, Reason.MISSING),
        Contract(2**31, replace(VOLTAGE, name=LONG), {}, degraded=("x",) * 99),
        Ledger(2**60, 2**60, 2**60, 2**60, recovered=2**60, dropped=2**60, extrapolated=2**60),
        replace(VOLTAGE, name=LONG),
    ],
    ids=lambda value: type(value).__name__,
)
def test_however_much_there_is_to_say_it_is_one_short_line(value: object) -> None:
    assert len(repr(value)) <= TEXT_CHARS_MAX == 120
    assert repr(value).isprintable()


def test_a_delivery_says_which_variable_it_is_of(grid: PaperGrid) -> None:
    heard: list[Delivery] = []
    voltage = subscribe(grid, on_event=heard.append, extrapolate=Polynomial(order=1, points=2))
    grid.clock.steady = 98 * MS
    grid.send(VOLTAGE, (100, 1.0), (110, 2.0))
    grid.wait_until(200)
    assert [event.is_extrapolated for event in heard[:3]] == [False, False, True]
    assert {event.name for event in heard} == {"c1/a/v"}
    assert heard[0].name is heard[1].name
    assert voltage.newest is not None
    assert voltage.newest.copy().name == "c1/a/v"
