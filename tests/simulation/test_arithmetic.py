"""The simulator's own arithmetic agrees with the product's laws, which it does not use."""

from __future__ import annotations

import ast
from fractions import Fraction
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.latency_model import LATENCY_MODEL_DEFAULT
from gridstat.model.probe_law import PROBES_DEFAULT
from gridstat.model.rate_law import union_rate
from lab.simulation import arithmetic
from lab.simulation import properties as of_cloud
from lab.simulation.arithmetic import SCALE, burst_us, probe_bytes_per_s, router_us, share_of
from lab.simulation.tree import properties as of_tree

LAWS = {"union_rate", "is_overloaded", "predict", "router_us", "burst_us", "probe_interval_ms"}
"""Names of the product's laws of charge, union rate and latency."""
ORDERS_ALLOWED = {"tables.py": {"probe_interval_ms"}}
"""An order of a channel repeats the interval of its probes; nothing is counted from it."""


@given(st.frozensets(st.integers(1, 24), min_size=1, max_size=5))
def test_the_share_of_slots_is_the_union_rate(everys: frozenset[int]) -> None:
    assert share_of(everys) == union_rate(everys)


def test_two_divisors_take_what_either_takes() -> None:
    assert share_of(frozenset({2, 3})) == Fraction(4, 6)
    assert share_of(frozenset({2, 4})) == Fraction(1, 2)
    assert share_of(frozenset()) == 0


@given(st.integers(100, 1_000_000))
def test_probes_take_what_a_channel_is_charged_for_them(bandwidth: int) -> None:
    assert probe_bytes_per_s(bandwidth) == PROBES_DEFAULT.bytes_per_s_of(bandwidth)


@given(st.integers(0, 100_000), st.integers(0, 200), st.sampled_from((0, 3_000, 400_000)))
def test_latencies_are_those_of_the_law_but_for_its_rounding(
    events_per_s: int, burst: int, bandwidth: int
) -> None:
    law = LATENCY_MODEL_DEFAULT
    assert 0 <= law.router_us(events_per_s) - router_us(events_per_s * SCALE) <= 1
    size = burst * arithmetic.EVENT_BYTES
    assert -0.01 <= law.burst_us(burst, size, bandwidth) - burst_us(burst, bandwidth) <= 1.01
    assert law.predict(()) == arithmetic.ENDS_US


def test_no_property_asks_the_product_for_a_law() -> None:
    for package in (of_cloud, of_tree):
        for path in sorted(Path(package.__path__[0]).glob("*.py")):
            tree = ast.parse(path.read_text())
            imported = {
                name.name
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gridstat.")
                for name in node.names
            }
            attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            used = LAWS & (imported | (attributes - vars(arithmetic).keys()))
            assert used <= ORDERS_ALLOWED.get(path.name, set()), path.name
