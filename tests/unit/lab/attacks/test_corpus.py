"""The verdict on an attack of forged and replayed datagrams: none was believed, all were read."""

from __future__ import annotations

from typing import Any

import pytest

from lab.attacks.corpus import Corpus, Score, shortfalls, summary


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
    ],
)
def test_an_attack_that_was_not_made_or_not_rejected_fails(
    sent: int, rejected: int, dropped: int, complaint: str
) -> None:
    assert shortfalls(1_000, sent=sent, rejected=rejected, dropped=dropped) == [complaint]


def score(**rejected: int) -> Score:
    return Score(sent=dict(rejected), rejected=dict(rejected))


def test_a_run_with_attacks_of_both_kinds_passes() -> None:
    facts = summary(score(forged=3, altered=2, replay=4, unsealed=9), 1.0)
    assert facts["is_passed"]
    assert (facts["forged_rejected"], facts["replayed_rejected"]) == (5, 4)
    assert facts["plain_rejected"] == 9, "plain datagrams are no forged ones"


@pytest.mark.parametrize(
    "found", [Score(), score(forged=3), score(replay=4), score(unsealed=3, replay=4)]
)
def test_a_run_without_an_attack_of_each_kind_fails(found: Score) -> None:
    assert not summary(found, 1.0)["is_passed"]


def test_a_run_in_which_nothing_was_rejected_fails() -> None:
    assert not summary(Score(sent={"forged": 3, "replay": 4}, dropped=7), 1.0)["is_passed"]


class HalfRead(Corpus):
    """A corpus whose router reads every second datagram, or none."""

    def __init__(self, *, share: float) -> None:
        self.score = Score()
        self.asked: list[int] = []
        self._share = share

    def _attack(self, name: str, hop: Any, do: str, *, at: str = "", **words: Any) -> int:
        del name, hop, do, at
        self.asked.append(words["count"])
        return int(words["count"] * self._share)


def test_an_attack_goes_on_until_enough_were_rejected() -> None:
    corpus = HalfRead(share=0.5)
    corpus._attack_until(8_000, "forged", None, "forge")  # type: ignore[arg-type]
    assert corpus.asked == [8_000, 4_000, 2_000, 1_000, 1_000]
    assert not corpus.score.complaints


def test_an_attack_of_which_nothing_is_read_is_a_complaint() -> None:
    corpus = HalfRead(share=0)
    corpus._attack_until(8_000, "forged", None, "forge")  # type: ignore[arg-type]
    assert corpus.score.complaints == ["forged: 8000 of 8000 datagrams were never rejected"]
