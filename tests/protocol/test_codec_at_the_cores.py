"""The golden bytes at the event path: both cores read what the codec reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gridstat.core.rows import ChannelSpec, Route, Row, Term
from gridstat.net.codec.datagram import decode_datagram, encode_datagram
from tests.golden.load import load_golden, octets
from tests.protocol.grids import NOW_NS, SMALL

if TYPE_CHECKING:
    from tests.protocol.grids import MakeCore

GOLDEN = load_golden("event.toml")
OUT = 77


@pytest.mark.feature("S3-31")
@pytest.mark.parametrize("vector", GOLDEN["datagram"], ids=lambda row: row["name"])
def test_a_golden_datagram_passes_the_core_with_its_events_untouched(
    subject: MakeCore, vector: dict[str, Any]
) -> None:
    raw = octets(vector["bytes"])
    events = [view.raw for view in decode_datagram(raw).events]
    identifiers = {view.variable_id for view in decode_datagram(raw).events}
    core = subject(SMALL)
    core.open_source(vector["channel_id"])
    core.open_channel(ChannelSpec(OUT))
    core.commit([Row(found, None, routes=(Route(OUT, (Term(1),)),)) for found in identifiers])
    core.inject(raw, now_ns=NOW_NS)
    expected = [(0, encode_datagram(OUT, 1, events=events))] if events else []
    assert core.take_output(OUT) == expected


@pytest.mark.feature("S0-16")
@pytest.mark.parametrize("vector", GOLDEN["malformed"], ids=lambda row: row["name"])
def test_a_golden_lie_is_counted_once_under_the_reason_that_the_codec_gives(
    subject: MakeCore, vector: dict[str, Any]
) -> None:
    core = subject(SMALL)
    core.inject(octets(vector["bytes"]), now_ns=NOW_NS)
    counters = core.counters()
    assert counters[f"malformed_{vector['reason']}"] == 1
    assert counters["malformed"] == counters["in"] == 1
