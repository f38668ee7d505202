"""Bounds on the parts of a cloud, so that a core can hold them."""

from __future__ import annotations

from typing import Any

import pytest

from gridstat.core.rows import ChannelSpec, check_channel
from gridstat.model.cloud import EventChannel
from gridstat.model.errors import LayoutError
from gridstat.model.identifiers import ChannelId

BOUNDS = {
    "bandwidth_bytes_per_s": (0, 2**40),
    "latency_us": (0, 60_000_000),
    "level": (0, 255),
    "mtu_bytes": (64, 9_000),
    "queue_events_max": (1, 2**20),
}


def channel(**facts: Any) -> EventChannel:
    return EventChannel(ChannelId(1), "c1/e0", "c1/e1", **facts)


@pytest.mark.parametrize("what", BOUNDS)
def test_a_channel_within_its_bounds_can_be_opened_by_a_core_and_one_beyond_is_refused(
    what: str,
) -> None:
    least, most = BOUNDS[what]
    for value in (least, most):
        channel(**{what: value})
        if what != "latency_us":
            facts: dict[str, Any] = {what: value}
            check_channel(ChannelSpec(1, **facts))
    for value in (least - 1, most + 1):
        with pytest.raises(LayoutError):
            channel(**{what: value})


def test_a_channel_is_sealed_unless_it_says_otherwise() -> None:
    assert channel().is_sealed
    assert not channel(security="none").is_sealed
    with pytest.raises(LayoutError, match="security 'link' is not known"):
        channel(security="link")
