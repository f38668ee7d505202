"""The book of answers: bounded, oldest first out, and what is older than all is a replay."""

from __future__ import annotations

from gridstat.broker.records.answer_cache import (
    ANSWER_BYTES_MAX,
    ANSWERS_MAX,
    DURABLE_ANSWER_BYTES_MAX,
    AnswerCache,
)


def test_the_oldest_answers_make_room_and_become_replays() -> None:
    book = AnswerCache()
    for number in range(1, ANSWERS_MAX + 11):
        assert not book.is_replay(number)
        book.put(number, b"%d" % number)
    assert len(book.held) == ANSWERS_MAX
    assert book.is_replay(10)
    assert not book.is_replay(11)  # It is kept, and answered.
    assert not book.is_replay(ANSWERS_MAX + 11)
    assert book.newest() == ANSWERS_MAX + 10


def test_a_forgotten_request_may_come_again() -> None:
    book = AnswerCache()
    book.put(5, b"five")
    book.forget(5)
    assert not book.is_replay(5)
    assert book.held == {}


def test_a_snapshot_keeps_the_newest_within_its_bound() -> None:
    book = AnswerCache()
    large = b"x" * (DURABLE_ANSWER_BYTES_MAX // 3)
    for number in range(1, 10):
        book.put(number, large)
    assert [number for number, _ in book.durable()] == [7, 8, 9]
    assert list(AnswerCache().durable()) == []


def test_what_a_snapshot_does_not_keep_is_below_its_floor() -> None:
    book = AnswerCache(floor=2)
    assert book.durable_floor() == 2
    for number in range(3, 10):
        book.put(number, b"x" * (DURABLE_ANSWER_BYTES_MAX // 3))
    assert book.durable_floor() == 6
    book.put(10, b"x" * (DURABLE_ANSWER_BYTES_MAX + 1))
    assert (list(book.durable()), book.durable_floor()) == ([], 10)


def test_large_answers_make_room_but_for_the_newest() -> None:
    book = AnswerCache()
    for number in range(1, 10):
        book.put(number, b"x" * (ANSWER_BYTES_MAX // 3))
    assert (list(book.held), book.floor) == ([7, 8, 9], 6)
    book.put(9, b"y")
    assert book.size_bytes == 2 * (ANSWER_BYTES_MAX // 3) + 1
    book.put(10, b"x" * (ANSWER_BYTES_MAX + 1))
    assert (list(book.held), book.floor) == ([10], 9)


def test_the_newest_request_may_be_below_the_floor() -> None:
    book = AnswerCache(floor=100)
    book.put(50, b"late")
    assert book.newest() == 100


def test_an_empty_book_starts_from_its_floor() -> None:
    book = AnswerCache(floor=100)
    assert (book.is_replay(100), book.is_replay(101), book.newest()) == (True, False, 100)
