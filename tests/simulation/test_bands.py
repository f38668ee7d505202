"""Bands beside first come, over random networks and demands."""

from __future__ import annotations

from random import Random

import pytest

from lab.simulation.bands import WORST_FACTORS, demands, main, network, serve


@pytest.mark.parametrize("seed", range(30))
def test_what_is_granted_by_bands_is_worth_no_less_than_by_first_come(seed: int) -> None:
    first_come, bands = serve(seed, has_bands=False), serve(seed, has_bands=True)
    assert bands.value >= first_come.value
    assert bands.urgent_events_per_s >= first_come.urgent_events_per_s
    for one in (first_come, bands):
        assert 0 < one.rate_value <= one.value


def test_demands_have_wide_and_narrow_bands_and_none() -> None:
    random = Random(0)
    _, names = network(random)
    found = {each.qos.modes[0].every_worst for each in demands(random, names)}
    assert found == set(WORST_FACTORS)
    assert 1 in found


def test_the_program_tells_both_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--first", "3"]) == 0
    told = capsys.readouterr().out
    assert "2 networks" in told
    assert "by rates" in told
