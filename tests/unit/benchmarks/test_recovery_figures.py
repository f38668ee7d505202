"""What the recovery experiment reads from logs, and how it sums up."""

from __future__ import annotations

import pytest

from benchmarks.experiments.recovery import spread
from benchmarks.recovery_rig import Mark, marks_of
from benchmarks.recovery_trials import most_lost
from lab.ledger import Verdict

LOG = "\n".join(
    [
        "2026-01-02T03:04:05.678+00:00 info driver channel_down channel=c1/a→c1/b silent_ms=104",
        "2026-01-02T03:04:05.700+00:00 warning client no_session peer=broker/c1 reason='gone'",
        "Traceback (most recent call last):",
        "2026-01-02T03:04:06.000+00:00 info driver broker_gone",
    ]
)


def test_notes_are_found_among_other_lines_and_no_mark_is_too_early() -> None:
    down, gone = marks_of(LOG)
    at_ns = 1_767_323_045_678_999_999
    assert down == Mark(at_ns, "channel_down", {"channel": "c1/a→c1/b", "silent_ms": "104"})
    assert (gone.word, gone.facts) == ("broker_gone", {})


@pytest.mark.parametrize(
    ("facts", "is_said"),
    [({"channel": "c1/a→c1/b"}, True), ({"channel": "c1/b→c1/a"}, False), ({}, True)],
)
def test_a_mark_says_its_facts_and_no_others(facts: dict[str, str], *, is_said: bool) -> None:
    assert next(iter(marks_of(LOG))).says(facts) is is_said


def test_the_stream_that_lost_most_counts() -> None:
    assert most_lost(Verdict(lost=[(0, 10), (1, 10), (1, 20)])) == 2
    assert most_lost(Verdict()) == 0


def test_twenty_samples_have_their_greatest_as_the_95th_percentile() -> None:
    figures = spread("x", range(20, 0, -1))
    assert figures == {"x_p50": 11, "x_p95": 20, "x_max": 20}
