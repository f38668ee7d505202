"""Answers stay readable and within a frame."""

from __future__ import annotations

from gridstat.broker.outcomes import WORDS_MAX, few_words


def test_of_many_words_the_first_are_said_and_the_others_counted() -> None:
    words = [f"{number} was not caught" for number in range(WORDS_MAX + 7)]
    assert few_words(words) == (*words[:WORDS_MAX], "and 7 more")
    assert few_words(words[:WORDS_MAX]) == tuple(words[:WORDS_MAX])
    assert few_words([]) == ()
