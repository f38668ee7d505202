"""The book of answers: bounded, oldest first out, and what is older than all is a replay."""

from __future__ import annotations

from gridstat.broker.answers import ANSWERS_MAX, DURABLE_ANSWER_BYTES_MAX, AnswerBook


def test_the_oldest_answers_make_room_and_become_replays() -> None:
    book = AnswerBook()
    for number in range(1, ANSWERS_MAX + 11):
        assert not book.is_replay(number)
        book.put(number, b"%d" % number)
    assert len(book.held) == ANSWERS_MAX
    assert book.is_replay(10)
    assert not book.is_replay(11)  # It is kept, and answered.
    assert not book.is_replay(ANSWERS_MAX + 11)
    assert book.newest() == ANSWERS_MAX + 10


def test_a_forgotten_request_may_come_again() -> None:
    book = AnswerBook()
    book.put(5, b"five")
    book.forget(5)
    assert not book.is_replay(5)
    assert book.held == {}


def test_a_snapshot_keeps_the_newest_within_its_bound() -> None:
    book = AnswerBook()
    large = b"x" * (DURABLE_ANSWER_BYTES_MAX // 3)
    for number in range(1, 10):
        book.put(number, large)
    assert [number for number, _ in book.durable()] == [7, 8, 9]
    assert list(AnswerBook().durable()) == []


def test_an_empty_book_starts_from_its_floor() -> None:
    book = AnswerBook(floor=100)
    assert (book.is_replay(100), book.is_replay(101), book.newest()) == (True, False, 100)
