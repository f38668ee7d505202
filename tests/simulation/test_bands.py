"""Bands beside first come, over random networks and demands."""

from __future__ import annotations

import pytest

from lab.simulation.bands import main, serve


@pytest.mark.parametrize("seed", range(30))
def test_what_is_granted_by_bands_is_worth_no_less_than_by_first_come(seed: int) -> None:
    first_come, bands = serve(seed, has_bands=False), serve(seed, has_bands=True)
    assert bands.value >= first_come.value
    assert bands.urgent_events_per_s >= first_come.urgent_events_per_s


def test_the_program_tells_both_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--first", "3"]) == 0
    assert "2 networks" in capsys.readouterr().out
