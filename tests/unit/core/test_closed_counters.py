"""Counters of closed channels are remembered within a bound, in the core and in its reference."""

from __future__ import annotations

import pytest

from gridstat.core import closed_counters
from gridstat.core._core import Core
from gridstat.core.closed_counters import ClosedCounters
from gridstat.core.reference import ReferenceCore
from gridstat.core.rows import ChannelSpec


def test_a_channel_opened_again_goes_on_at_its_counter() -> None:
    counters = ClosedCounters(2)
    counters.closed(1, 70)
    assert counters.of(1) == 70
    assert counters.of(2) == 0


def test_the_channel_closed_longest_ago_is_forgotten_first() -> None:
    counters = ClosedCounters(2)
    for channel_id, counter in ((1, 10), (2, 20), (1, 30), (3, 40)):
        counters.closed(channel_id, counter)
    assert [counters.of(each) for each in (1, 2, 3)] == [30, 0, 40]
    assert len(counters) == 2


def test_an_open_channel_takes_no_place() -> None:
    counters = ClosedCounters(2)
    counters.closed(1, 10)
    counters.opened(1)
    counters.opened(9)
    assert len(counters) == 0


@pytest.mark.parametrize("kind", [Core, ReferenceCore])
def test_a_core_remembers_the_counters_of_so_many_closed_channels_only(
    kind: type[Core] | type[ReferenceCore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClosedCounters.__init__, "__defaults__", (3,))
    core = kind()
    for channel_id in range(1, 6):
        core.open_channel(ChannelSpec(channel_id, counter_start=100))
        core.close_channel(channel_id)
    firsts = []
    for channel_id in range(1, 6):
        core.open_channel(ChannelSpec(channel_id))
        firsts.append(core.sending_state(channel_id)["first_counter"])
    assert firsts == [1, 1, 101, 101, 101]
    core.close()


def test_the_bound_holds_the_channels_of_a_large_router() -> None:
    assert closed_counters.CLOSED_MAX >= 2**16
