"""The bytes that the docs quote are the bytes that the code makes."""

from __future__ import annotations

import re

from gridstat.core.reference import ReferenceCore
from gridstat.core.rows import ChannelSpec, Limits, Route, Row, Term
from gridstat.model.rate_law import Period
from tests.tidy.source import ROOT
from tools import error_reference

JOURNEY = ROOT / "docs" / "journeys" / "status-event.md"
QUOTED = re.compile(r"^```text channel (\d+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CREATED_NS = 1_700_000_000_000_000_000
SMALL = Limits(variables_max=16, rings_max=16, channels_max=16, pool_small=16, pool_large=1)


def quoted_datagrams() -> dict[int, bytes]:
    text = JOURNEY.read_text(encoding="utf-8")
    return {int(channel): bytes.fromhex(octets) for channel, octets in QUOTED.findall(text)}


def router(*, sources: list[int], channels: list[int], publisher: int = 0) -> ReferenceCore:
    """A router of the picture: variable 7, every tenth slot, on all its channels."""
    core = ReferenceCore(SMALL)
    for source in sources:
        core.open_source(source, is_publisher=source == publisher)
    for channel in channels:
        core.open_channel(ChannelSpec(channel))
    routes = tuple(Route(channel, (Term(10),)) for channel in channels)
    core.commit([Row(7, Period(1, 30), source=publisher, routes=routes)])
    return core


def forwarded(core: ReferenceCore, channel: int) -> bytes:
    ((_, octets),) = core.take_output(channel)
    return octets


def test_the_event_on_its_journey_has_the_quoted_bytes_at_every_hop() -> None:
    quoted = quoted_datagrams()
    first = router(sources=[3], channels=[11, 12], publisher=3)
    upper = router(sources=[11], channels=[21])
    lower = router(sources=[12], channels=[22])
    last = router(sources=[21, 22], channels=[31])

    first.inject(quoted[3], now_ns=CREATED_NS)
    upper.inject(forwarded(first, 11), now_ns=CREATED_NS)
    lower.inject(forwarded(first, 12), now_ns=CREATED_NS)
    copies = [forwarded(upper, 21), forwarded(lower, 22)]
    for copy in copies:
        last.inject(copy, now_ns=CREATED_NS)

    assert copies == [quoted[21], quoted[22]]
    assert forwarded(last, 31) == quoted[31]
    assert last.counters()["duplicate"] == 1


def test_the_first_router_sends_what_the_journey_quotes() -> None:
    quoted = quoted_datagrams()
    first = router(sources=[3], channels=[11, 12], publisher=3)
    first.inject(quoted[3], now_ns=CREATED_NS)
    assert [forwarded(first, channel) for channel in (11, 12)] == [quoted[11], quoted[12]]


def test_the_reference_of_errors_is_current() -> None:
    assert error_reference.PAGE.read_text(encoding="utf-8") == error_reference.page()
