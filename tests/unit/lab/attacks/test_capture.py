"""The verdict on a capture: a counter used twice, unsealed datagrams, changes of the epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lab.attacks.capture import RECORD, Finding, judge, rotations_in
from lab.attacks.kills import is_passed

if TYPE_CHECKING:
    import numpy.typing as npt


def captured(*rows: tuple[int, int, int, int, int]) -> npt.NDArray[np.void]:
    """Return records of channel, epoch, version, counter and digest."""
    return np.array(list(rows), dtype=RECORD)


def test_a_counter_with_two_contents_is_found() -> None:
    found = judge(
        captured((1, 7, 3, 10, 111), (2, 7, 3, 10, 5), (1, 7, 3, 11, 6), (1, 7, 3, 10, 9))
    )
    assert found == Finding(datagrams=4, channels=2, keys=2, two_contents=1)


def test_the_same_content_twice_is_only_repeated() -> None:
    found = judge(captured((1, 7, 3, 10, 111), (1, 7, 3, 10, 111)))
    assert (found.repeated, found.two_contents) == (1, 0)


def test_another_epoch_or_channel_has_counters_of_its_own() -> None:
    found = judge(captured((1, 7, 3, 10, 1), (1, 8, 3, 10, 2), (2, 7, 3, 10, 3)))
    assert (found.keys, found.two_contents) == (3, 0)


def test_an_unsealed_datagram_is_counted_apart() -> None:
    assert judge(captured((1, 0, 2, 10, 1), (1, 7, 3, 10, 2))).plain == 1


def test_a_key_that_a_restarted_process_uses_again_is_found() -> None:
    """Counters begin at random numbers, so that a repeated key repeats no counter."""
    first, again = 3 * 2**40, 5 * 2**40
    alive = [(1, 7, 3, first + at, at) for at in range(4)]
    fresh = [(1, 90, 3, again + at, 9) for at in range(4)]
    same = [(1, 7, 3, again + at, 9) for at in range(4)]
    assert is_passed(judge(captured(*alive, *fresh)), kills=1)
    found = judge(captured(*alive, *same))
    assert (found.two_contents, found.starts, found.starts_in_epoch) == (0, 1, 1)
    assert not is_passed(found, kills=1)


def test_a_run_in_which_nobody_was_killed_is_not_passed() -> None:
    alive = [(1, 7 + at // 2, 3, 2**40 + at, at) for at in range(8)]
    found = judge(captured(*alive))
    assert (found.keys, found.starts) == (4, 0)
    assert not is_passed(found, kills=4)


def test_findings_of_several_places_add_up() -> None:
    one = Finding(datagrams=2, channels=1, keys=1, two_contents=1, dropped=3)
    assert one + one == Finding(datagrams=4, channels=2, keys=2, two_contents=2, dropped=6)


def test_changes_of_the_epoch_are_counted_by_channel_in_order() -> None:
    rows = [(1, epoch, 3, at, 0) for at, epoch in enumerate((255, 255, 0, 0, 1))]
    assert rotations_in(captured(*rows, (2, 9, 3, 1, 0))) == {1: 2, 2: 0}
