"""Invalid options of an application: they are refused before anything is sent."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from gridstat.endpoint.contract import Contract, mode_numbers, terms_in
from gridstat.endpoint.edge_address import EdgeAddress, parse_edge
from gridstat.endpoint.options import (
    alert_variable,
    check_callback,
    check_pattern,
    modal_qos,
    periodic_variable,
    qos,
)
from gridstat.model.errors import GridStatError, Misuse
from gridstat.model.qos import Qos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType
from tests.unit.endpoint.paper_grid import variable


def test_a_quality_is_said_in_everyday_units() -> None:
    assert qos(rate=10, latency_ms=50, redundancy=2, priority=1) == QosRequest(
        interval=Period(1, 10), latency_us=50_000, redundancy=2, priority=1
    )


def test_how_often_may_be_said_in_three_ways() -> None:
    assert qos(every=4).every == 4
    assert qos(interval=Period(2, 1)).interval == Period(2, 1)
    assert qos(rate=Fraction(30_000, 1_001)).interval == Period(1_001, 30_000)


def test_the_worst_that_is_acceptable_is_said_likewise() -> None:
    found = qos(rate=30, rate_worst=10, latency_ms=10, latency_ms_worst=50, redundancy_worst=1)
    assert found.interval_worst == Period(1, 10)
    assert found.latency_us_worst == 50_000
    assert found.redundancy_worst == 1


def test_a_preset_sets_what_is_not_said() -> None:
    found = qos(preset="wide-area", rate=30)
    assert (found.latency_us, found.redundancy, found.interval) == (12_000, 2, Period(1, 30))


@pytest.mark.parametrize(
    "wishes",
    [
        {"rate": 0},
        {"rate": -1},
        {"rate": 29.97},
        {"rate": True},
        {"rate": 10, "every": 2},
        {"latency_ms": 0},
        {"redundancy": 9},
        {"preset": "fast"},
        {"latency_ms": 10, "latency_ms_worst": 5},
        {"latency_ms": float("inf")},
        {"latency_ms": float("nan")},
        {"latency_ms": 1e300},
        {"latency_ms_worst": float("inf")},
        {"redundancy": float("nan")},
        {"redundancy": 1.5},
        {"every": 2.5},
        {"priority": 10**30},
        {"every_worst": 2, "rate_worst": 1},
    ],
)
def test_a_quality_that_cannot_be_meant_is_refused(wishes: Any) -> None:
    with pytest.raises(Misuse):
        qos(**wishes)


def test_modes_have_whole_numbers() -> None:
    with pytest.raises(Misuse, match="modes are numbers"):
        modal_qos(None, None, {1.5: QosRequest()})  # type: ignore[dict-item]


def test_modes_presets_and_qualities_do_not_mix() -> None:
    with pytest.raises(Misuse, match="say one of"):
        modal_qos(QosRequest(), "wide-area", None)
    assert modal_qos(None, "protection", None).modes[0].latency_us == 4_000
    assert modal_qos(None, None, {2: QosRequest(every=5)}).modes == {2: QosRequest(every=5)}


@pytest.mark.parametrize("wishes", [{}, {"rate": 60, "period": Period(1, 60)}, {"rate": 0.5}])
def test_a_publication_says_how_often_exactly_once(wishes: Any) -> None:
    with pytest.raises(Misuse):
        periodic_variable("c1/a/v", BuiltinType.FLOAT64, wishes)


def test_a_python_type_is_no_value_type() -> None:
    with pytest.raises(Misuse, match="is no value type"):
        periodic_variable("c1/a/v", float, {"rate": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("interval_s_min", [0, -1, float("nan"), float("inf"), 1e300])
def test_an_alert_needs_a_minimum_interval(interval_s_min: float) -> None:
    with pytest.raises(Misuse, match="minimum interval"):
        alert_variable("c1/a/v", BuiltinType.BOOL, interval_s_min)


def test_names_and_patterns_are_told_apart() -> None:
    with pytest.raises(Misuse, match="takes one name"):
        check_pattern("c1/*/v", is_pattern=False)
    with pytest.raises(Misuse, match="takes a pattern"):
        check_pattern("c1/a/v", is_pattern=True)


def test_the_fastest_of_the_active_modes_is_what_is_due() -> None:
    fast, slow = (Qos(every, 10_000 * every, 1, 3) for every in (2, 10))
    contract = Contract(1, variable(), {1: slow, 2: fast})
    assert terms_in(contract, 0b001) is None
    slowly, quickly = terms_in(contract, 0b010), terms_in(contract, 0b110)
    assert slowly is not None
    assert quickly is not None
    assert (slowly.every, quickly.every) == (10, 2)
    assert quickly.latency_ns == 20_000_000


def test_a_baseline_contract_holds_in_every_mode() -> None:
    contract = Contract(1, variable(), {0: Qos(3, 1_000, 1, 3)})
    for modes in (0b001, 0b1000):
        terms = terms_in(contract, modes)
        assert terms is not None
        assert terms.every == 3


def test_a_mask_reads_as_mode_numbers() -> None:
    assert mode_numbers(0b100) == {0, 2}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("c1/e0@127.0.0.1:7101", EdgeAddress("c1/e0", "127.0.0.1", 7_101)),
        ("c1/e0@[::1]:7101", EdgeAddress("c1/e0", "::1", 7_101)),
        ("c1/e0@edge.example:1", EdgeAddress("c1/e0", "edge.example", 1)),
    ],
)
def test_an_edge_is_written_with_its_name_and_address(text: str, found: EdgeAddress) -> None:
    assert parse_edge(text) == found
    assert found.identity.peer == "router/c1/e0"


@pytest.mark.parametrize(
    "text", ["", "c1/e0", "c1/e0@host", "@host:1", "c1/e0@host:0", "c1/e0@host:65536", "c1/*@h:1"]
)
def test_an_edge_without_name_or_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(GridStatError) as problem:
        parse_edge(text)
    assert "c1/e0@127.0.0.1:7101" in problem.value.hint


class _Awaitable:
    async def __call__(self, _: object) -> None:
        raise AssertionError("never awaited")


async def _awaitable(*_: object) -> None:
    raise AssertionError("never awaited")


@pytest.mark.parametrize("callback", [_awaitable, partial(partial(_awaitable, 1), 2), _Awaitable()])
def test_a_coroutine_function_as_a_callback_is_refused_with_what_to_do(callback: object) -> None:
    with pytest.raises(Misuse, match="on_event is a coroutine function") as refused:
        check_callback("on_event", callback)
    assert "events()" in refused.value.hint


@pytest.mark.parametrize("callback", [None, print, partial(print, 1), [].append, Misuse])
def test_plain_callables_are_callbacks(callback: object) -> None:
    check_callback("on_event", callback)
