"""The verdict on an attack of forged and replayed datagrams: none was believed, most were read."""

from __future__ import annotations

import pytest

from lab.attacks.corpus import Score, shortfalls, summary


@pytest.mark.parametrize(
    ("sent", "rejected", "dropped"), [(1_000, 1_000, 0), (1_000, 600, 400), (900, 900, 0)]
)
def test_an_attack_that_was_rejected_is_complete(sent: int, rejected: int, dropped: int) -> None:
    assert shortfalls(1_000, sent=sent, rejected=rejected, dropped=dropped) == []


@pytest.mark.parametrize(
    ("sent", "rejected", "dropped", "complaint"),
    [
        (0, 0, 0, "only 0 of 1000 datagrams were sent"),
        (899, 899, 0, "only 899 of 1000 datagrams were sent"),
        (1_000, 999, 0, "1 of 1000 datagrams were not rejected"),
        (1_000, 499, 501, "only 499 of 1000 datagrams were read, and rejected"),
    ],
)
def test_an_attack_that_was_not_made_or_not_rejected_fails(
    sent: int, rejected: int, dropped: int, complaint: str
) -> None:
    assert shortfalls(1_000, sent=sent, rejected=rejected, dropped=dropped) == [complaint]


def score(**sent: int) -> Score:
    return Score(sent=sent, rejected=sum(sent.values()))


def test_a_run_with_attacks_of_both_kinds_passes() -> None:
    facts = summary(score(forged=3, altered=2, replay=4), 1.0)
    assert (facts["forged"], facts["replayed"], facts["is_passed"]) == (5, 4, True)


@pytest.mark.parametrize("found", [Score(), score(forged=3), score(replay=4)])
def test_a_run_without_an_attack_of_each_kind_fails(found: Score) -> None:
    assert not summary(found, 1.0)["is_passed"]


def test_a_run_in_which_nothing_was_rejected_fails() -> None:
    assert not summary(Score(sent={"forged": 3, "replay": 4}, dropped=7), 1.0)["is_passed"]
