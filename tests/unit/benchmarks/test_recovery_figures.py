"""Figures of the recovery experiment, read from logs and summed up."""

from __future__ import annotations

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.experiments.recovery import FAILURES_MAX, Trials, spread
from benchmarks.recovery_rig import Mark, complaint_of_contracts, marks_of
from benchmarks.recovery_trials import CloudState, StateChange, most_lost
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
def test_a_mark_has_its_facts_and_no_others(facts: dict[str, str], *, is_said: bool) -> None:
    assert next(iter(marks_of(LOG))).has(facts) is is_said


def test_the_stream_that_lost_most_counts() -> None:
    assert most_lost(Verdict(lost=[(0, 10), (1, 10), (1, 20)])) == 2
    assert most_lost(Verdict()) == 0


def test_twenty_samples_have_their_greatest_as_the_95th_percentile() -> None:
    figures = spread("x", range(20, 0, -1))
    assert figures == {"x_p50": 11, "x_p95": 20, "x_max": 20}


def test_of_no_samples_there_is_no_figure() -> None:
    assert spread("x", []) == {}


def trials() -> Trials:
    return Trials(progress=lambda share, what: None, steps=10)


def test_a_trial_that_fails_is_counted_with_its_reason_and_spoils_no_other() -> None:
    def trial(at: int) -> int:
        if at == 1:
            raise BenchmarkError("nothing came", hint="look")
        return at

    run = trials()
    assert run.several(4, "cut", trial) == [0, 2, 3]
    assert run.figures_of_failures() == {
        "trials_failed": 1,
        "trials_left_out": 0,
        "failure_1": "cut, trial 2: nothing came",
    }


def test_trials_that_go_on_failing_are_left_out_and_counted() -> None:
    def trial(at: int) -> int:
        raise BenchmarkError(f"trial {at}")

    run = trials()
    assert run.several(20, "cut", trial) == []
    figures = run.figures_of_failures()
    assert figures["trials_failed"] == FAILURES_MAX
    assert figures["trials_left_out"] == 20 - FAILURES_MAX


def survey(
    paths: dict[int, list[list[str]]], *, digest: str = "a", state: str = "granted"
) -> dict[str, list[dict[str, object]]]:
    return {
        "subscriptions": [
            {"subscription_id": number, "paths": found, "state": state}
            for number, found in paths.items()
        ],
        "publications": [{"name": "c1/v", "variable_id": 7}],
        "routers": [{"name": "c1/e0", "digest": digest}],
    }


@pytest.mark.parametrize(
    ("after", "change"),
    [
        (survey({1: [["e0"]], 2: [["e0"]]}), StateChange()),
        (survey({1: [["e0"]], 2: [["e1"]]}, digest="b"), StateChange(moved=1)),
        (survey({1: [["e0"]], 2: [["e0"]]}, digest="b"), StateChange(are_reordered=True)),
        (survey({1: [["e0"]]}), StateChange(are_others=True)),
    ],
)
def test_moves_other_contracts_and_other_orders_are_told_apart(
    after: dict[str, list[dict[str, object]]], change: StateChange
) -> None:
    before = CloudState.of(survey({1: [["e0"]], 2: [["e0"]]}))
    assert before.change_to(CloudState.of(after)) == change


def test_a_contract_with_an_old_path_left_is_no_state_to_compare() -> None:
    assert complaint_of_contracts(survey({1: [["e0"]]})) is None
    assert complaint_of_contracts(survey({1: [["e0"]]}, state="moving")) == "contract 1 is moving"
