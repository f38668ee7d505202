"""The experiment itself, with one trial of each kind; what it finds must hold, not how quickly."""

from __future__ import annotations

import pytest

from benchmarks.experiments import EXPERIMENTS

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.feature("S0-113", "S0-114", "S0-115")
def test_every_fault_on_two_ways_is_noticed_and_only_single_paths_feel_it() -> None:
    told: list[float] = []
    figures = (
        EXPERIMENTS["recovery"]
        .run(
            {
                "only": "channel,router,broker",
                "trials": 1,
                "restarts": 0,
                "dead_s": 0.5,
                "variables": 2,
            },
            lambda share, _: told.append(share),
        )
        .figures
    )
    assert told == sorted(told)
    assert told[-1] == 1.0
    for name in ("channel", "router"):
        for what in ("detect_ms_p95", "restore_ms_p95", "lost_per_fault"):
            assert float(figures[f"{name}_{what}"]) > 0, "a single path feels it"
    assert figures["faults_two_path_lost"] == figures["faults_duplicate"] == 0
    assert figures["lost"] == 0, "a dead broker costs nothing"
    assert figures["restarts_with_other_contracts"] == 0, "nor does it forget any"
    assert figures["trials_failed"] == figures["trials_left_out"] == 0
    assert float(figures["digest_equal_s_p95"]) > 0
