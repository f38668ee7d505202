"""The reference's memory of a source: what one more datagram costs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.core.reference_sources import SEEN_DATAGRAMS, SourceState

if TYPE_CHECKING:
    from collections.abc import Iterator


class WatchedSet(set[int]):
    """A set that counts the walks over all of it."""

    walks = 0

    def __iter__(self) -> Iterator[int]:
        self.walks += 1
        return super().__iter__()


def test_one_more_datagram_costs_the_reference_no_walk_over_all_that_it_has_seen() -> None:
    state = SourceState(opened_ns=1)
    state.seen = seen = WatchedSet()
    for counter in range(1, 3 * SEEN_DATAGRAMS):
        state.note(counter + counter // 100, port=0, is_probe=False, now_ns=counter)
    assert state.seen is seen
    assert seen.walks == 0


def test_the_reference_forgets_numbers_that_are_too_far_back_and_only_those() -> None:
    state = SourceState(opened_ns=1)
    for counter in (*range(1, 2_000), 2_500, 2_501, 4_000):
        state.note(counter, port=0, is_probe=False, now_ns=counter)
        assert state.seen == {n for n in state.seen if 0 <= counter - n < SEEN_DATAGRAMS}
    assert state.seen == {4_000}
    for counter in range(4_001, 4_100):
        state.note(counter, port=0, is_probe=False, now_ns=counter)
    assert state.seen == set(range(4_000, 4_100))
