"""Silence is judged by the core's facts; a return must last for three datagrams and an interval."""

from __future__ import annotations

import pytest

from gridstat.router.agent_events import SourceReceived, SourceSilent
from gridstat.router.liveness import SourceLiveness

MS = 1_000_000
WEST = 3


def facts(
    *, silent_ms: int, probes: int, data: int = 0, heard_ms: int | None = None
) -> dict[int, dict[str, int]]:
    """Return the core's facts on a source; without `heard_ms` a datagram came every 25 ms."""
    datagrams = probes + data
    heard_ns = (25 * datagrams if heard_ms is None else heard_ms) * MS
    return {
        WEST: {
            "silent_ns": silent_ms * MS,
            "probes": probes,
            "datagrams": datagrams,
            "heard_ns": heard_ns,
        }
    }


@pytest.fixture
def liveness() -> SourceLiveness:
    liveness = SourceLiveness()
    liveness.watch(WEST, silent_ms_max=100)
    return liveness


@pytest.fixture
def heard(liveness: SourceLiveness) -> SourceLiveness:
    liveness.judge(facts(silent_ms=0, probes=0))
    assert liveness.judge(facts(silent_ms=5, probes=1)) == []
    assert liveness.judge(facts(silent_ms=5, probes=3)) == [SourceReceived(WEST)]
    return liveness


@pytest.mark.feature("S0-113")
def test_a_source_that_falls_silent_is_said_to_be_silent_once(heard: SourceLiveness) -> None:
    assert heard.judge(facts(silent_ms=100, probes=50)) == []
    assert heard.judge(facts(silent_ms=101, probes=50)) == [SourceSilent(WEST, 101)]
    assert heard.judge(facts(silent_ms=121, probes=50)) == []


def test_it_returns_after_three_probes_and_not_before(heard: SourceLiveness) -> None:
    heard.judge(facts(silent_ms=500, probes=50))
    assert heard.judge(facts(silent_ms=1, probes=51)) == []
    assert heard.judge(facts(silent_ms=1, probes=52)) == []
    assert heard.judge(facts(silent_ms=1, probes=53)) == [SourceReceived(WEST)]
    assert heard.judge(facts(silent_ms=1, probes=54)) == []


def test_stray_probes_with_silence_between_them_are_no_return(heard: SourceLiveness) -> None:
    heard.judge(facts(silent_ms=500, probes=50))
    for probes in (51, 52, 53, 54):
        assert heard.judge(facts(silent_ms=1, probes=probes)) == []
        assert heard.judge(facts(silent_ms=101, probes=probes)) == []


def test_it_returns_by_data_alone_where_no_probe_is_sent_beside_data(heard: SourceLiveness) -> None:
    heard.judge(facts(silent_ms=500, probes=50))
    assert heard.judge(facts(silent_ms=1, probes=50, data=1)) == []
    assert heard.judge(facts(silent_ms=1, probes=50, data=2)) == []
    assert heard.judge(facts(silent_ms=1, probes=50, data=3)) == [SourceReceived(WEST)]


def test_a_burst_of_data_is_no_return_before_it_has_lasted_for_an_interval(
    heard: SourceLiveness,
) -> None:
    heard.judge(facts(silent_ms=500, probes=50, heard_ms=1_000))
    assert heard.judge(facts(silent_ms=1, probes=50, data=90, heard_ms=2_000)) == []
    assert heard.judge(facts(silent_ms=1, probes=50, data=99, heard_ms=2_024)) == []
    assert heard.judge(facts(silent_ms=1, probes=50, data=100, heard_ms=2_025)) == [
        SourceReceived(WEST)
    ]


def test_a_return_lasts_for_an_interval_also_where_a_long_silence_is_allowed() -> None:
    """A quarter of the allowed silence would be a second."""
    liveness = SourceLiveness()
    liveness.watch(WEST, silent_ms_max=4_000, probe_interval_ms=25)
    liveness.judge(facts(silent_ms=4_001, probes=50, heard_ms=1_000))
    assert liveness.judge(facts(silent_ms=1, probes=50, data=90, heard_ms=6_000)) == []
    assert liveness.judge(facts(silent_ms=1, probes=50, data=99, heard_ms=6_024)) == []
    assert liveness.judge(facts(silent_ms=1, probes=51, data=99, heard_ms=6_025)) == [
        SourceReceived(WEST)
    ]


def test_a_new_interval_holds_for_the_next_return(heard: SourceLiveness) -> None:
    heard.judge(facts(silent_ms=500, probes=50, heard_ms=1_000))
    heard.judge(facts(silent_ms=1, probes=50, data=90, heard_ms=2_000))
    heard.watch(WEST, silent_ms_max=100, probe_interval_ms=5)
    assert heard.judge(facts(silent_ms=1, probes=50, data=99, heard_ms=2_005)) == [
        SourceReceived(WEST)
    ]


def test_a_source_that_was_never_heard_is_silent_too(liveness: SourceLiveness) -> None:
    assert liveness.judge(facts(silent_ms=99, probes=0)) == []
    assert liveness.judge(facts(silent_ms=101, probes=0)) == [SourceSilent(WEST, 101)]


def test_nobody_minds_the_silence_of_a_source_without_a_bound(heard: SourceLiveness) -> None:
    heard.watch(WEST, silent_ms_max=0)
    assert heard.judge(facts(silent_ms=10_000, probes=0)) == []


def test_a_new_bound_changes_the_judgement_and_forgets_nothing(heard: SourceLiveness) -> None:
    heard.watch(WEST, silent_ms_max=500)
    assert heard.judge(facts(silent_ms=300, probes=3)) == []
    heard.watch(WEST, silent_ms_max=200)
    assert heard.judge(facts(silent_ms=300, probes=3)) == [SourceSilent(WEST, 300)]


def test_a_closed_source_is_forgotten(heard: SourceLiveness) -> None:
    heard.forget(WEST)
    assert heard.judge(facts(silent_ms=10_000, probes=0)) == []
    heard.watch(WEST, silent_ms_max=100)
    assert heard.judge({}) == []


@pytest.mark.parametrize(("silent_ms", "after_ms"), [(0, 100), (60, 40), (95, 5), (100, 0)])
def test_it_knows_how_soon_a_source_can_be_silent_for_too_long(
    heard: SourceLiveness, silent_ms: int, after_ms: int
) -> None:
    heard.judge(facts(silent_ms=silent_ms, probes=4))
    assert heard.silent_after_ns == after_ms * MS


def test_what_is_silent_already_is_not_awaited(heard: SourceLiveness) -> None:
    heard.judge(facts(silent_ms=101, probes=4))
    assert heard.silent_after_ns is None
    heard.judge(facts(silent_ms=90, probes=5))  # One probe is no return yet.
    assert heard.silent_after_ns is None
