"""The attack that the experiment on listeners asks for must have been made on every daemon."""

from __future__ import annotations

import pytest

from benchmarks.experiments.experiment import Bound
from benchmarks.experiments.listeners import attacked


def missed(half_open: list[int], handshakes_per_s: list[float]) -> list[str]:
    """Return the missed bounds of an attack of 100 connections and 10 handshakes a second."""
    found = {"half_open": half_open, "handshakes_per_s": handshakes_per_s}
    bounds = [
        Bound(figure, value, at_most)
        for figure, value, at_most in attacked(found, 100, 10)
        if at_most is not None
    ]
    return [bound.figure for bound in bounds if not bound.is_met]


def test_an_attack_that_was_made_in_full_is_one() -> None:
    assert missed([100, 100], [10.0, 9.9]) == []


@pytest.mark.parametrize(
    ("half_open", "handshakes_per_s", "missing"),
    [
        ([100, 99], [10.0, 10.0], ["half_open_missing"]),
        ([100, 100], [10.0, 9.0], ["handshakes_missing_per_s"]),
    ],
)
def test_an_attack_that_one_daemon_did_not_see_in_full_fails_the_run(
    half_open: list[int], handshakes_per_s: list[float], missing: list[str]
) -> None:
    assert missed(half_open, handshakes_per_s) == missing
