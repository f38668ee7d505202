"""Answers stay readable and within a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.requests.outcomes import (
    WORDS_MAX,
    encode_outcome,
    encode_outcomes,
    few_words,
    join_outcomes,
)
from gridstat.net.command.endpoint_messages import DoneOutcome, GrantedOutcome, RefusedOutcome

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import Outcome


def test_of_many_texts_the_first_are_listed_and_the_others_counted() -> None:
    words = [f"{number} was not caught" for number in range(WORDS_MAX + 7)]
    assert few_words(words) == (*words[:WORDS_MAX], "and 7 more")
    assert few_words(words[:WORDS_MAX]) == tuple(words[:WORDS_MAX])
    assert few_words([]) == ()


def test_outcomes_that_are_bytes_already_make_the_same_answer() -> None:
    outcomes: tuple[Outcome, ...] = (
        GrantedOutcome(subscription_id=7, variable=None, label="s"),
        RefusedOutcome(code=1039, reason="full"),
        DoneOutcome(),
    )
    for some in (outcomes, outcomes[:1], ()):
        assert join_outcomes(map(encode_outcome, some)) == encode_outcomes(some)
