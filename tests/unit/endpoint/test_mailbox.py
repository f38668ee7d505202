"""A bounded box between the delivering thread and one reader."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gridstat.endpoint.mailbox import Mailbox
from gridstat.model.errors import Misuse


def test_items_come_out_in_their_order() -> None:
    box: Mailbox[int] = Mailbox(10)
    for item in range(3):
        box.put(item)
    assert [box.take() for _ in range(4)] == [0, 1, 2, None]


def test_a_full_box_drops_the_oldest_and_counts_its_weight() -> None:
    box: Mailbox[str] = Mailbox(10)
    box.put("a", 4)
    box.put("b", 4)
    box.put("c", 4)
    assert (box.take(), box.dropped) == ("b", 4)


def test_of_an_item_heavier_than_the_box_the_newest_part_is_kept() -> None:
    box: Mailbox[str] = Mailbox(3, lambda item, weight: item[weight:])
    box.put("a")
    box.put("bcdefgh", 7)
    assert (box.take(), box.take(), box.dropped) == ("fgh", None, 5)


def test_of_the_oldest_item_only_as_much_is_dropped_as_is_needed() -> None:
    box: Mailbox[str] = Mailbox(6, lambda item, weight: item[weight:])
    box.put("abcd", 4)
    box.put("efgh", 4)
    assert (box.take(), box.take(), box.dropped) == ("cd", "efgh", 2)


def test_what_is_put_back_into_a_full_box_is_bounded_too() -> None:
    box: Mailbox[str] = Mailbox(4, lambda item, weight: item[weight:])
    box.put("cdef", 4)
    box.put_back("ab", 2)
    assert (box.take(), box.dropped) == ("cdef", 2)


@pytest.mark.parametrize("weight_max", [0, -1])
def test_a_box_for_nothing_is_refused(weight_max: int) -> None:
    with pytest.raises(Misuse, match="a box for"):
        Mailbox(weight_max)


def test_what_the_reader_puts_back_comes_first_again() -> None:
    box: Mailbox[str] = Mailbox(10)
    box.put("b")
    box.put_back("a", 1)
    assert (box.take(), box.take()) == ("a", "b")


def test_waiting_ends_when_something_comes_or_nothing_more_will() -> None:
    box: Mailbox[int] = Mailbox(10)
    assert not box.wait(0)
    sender = threading.Thread(target=box.put, args=(1,))
    sender.start()
    assert box.wait(None)
    sender.join()
    box.take()
    ender = threading.Thread(target=box.end)
    ender.start()
    assert not box.wait(None)
    ender.join()
    box.put(2)
    assert box.take() is None


def test_a_coroutine_is_woken_from_another_thread() -> None:
    box: Mailbox[int] = Mailbox(10)

    async def read() -> list[int | None]:
        found: list[int | None] = []
        while await box.wait_async():
            found.append(box.take())
        return found

    def write() -> None:
        for item in range(100):
            box.put(item)
        box.end()

    sender = threading.Thread(target=write)
    sender.start()
    found = asyncio.run(read())
    sender.join()
    # The box holds ten, so some may be gone; what is there is in order, up to the last.
    assert found == sorted(found, key=lambda item: -1 if item is None else item)
    assert found[-1] == 99


def test_a_reader_whose_loop_is_closed_does_no_harm() -> None:
    box: Mailbox[int] = Mailbox(10)

    async def give_up() -> None:
        waiting = asyncio.ensure_future(box.wait_async())
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(give_up())
    box.put(1)
    assert box.take() == 1
