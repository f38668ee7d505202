"""Round trips of the codec: events, and datagrams of events, decode to what was encoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.identifiers import VariableId
from gridstat.model.status import EventFlag, StatusEvent, TimeQuality
from gridstat.net.codec.datagram import decode_datagram, encode_datagram
from gridstat.net.codec.event import decode_event, encode_event, status_event

u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
few_options = st.integers(0, 5)
any_options = st.one_of(few_options, st.integers(0, 255), st.just(255))
flags = st.builds(
    lambda chosen: EventFlag(sum(chosen)),
    st.sets(st.sampled_from([flag for flag in EventFlag if flag])),
)


def events(option_counts: st.SearchStrategy[int]) -> st.SearchStrategy[StatusEvent]:
    payloads = st.builds(
        lambda seed, count: (seed * (count * 6 + 2))[: 8 + 24 * count],
        st.binary(min_size=8, max_size=32),
        option_counts,
    )
    return st.builds(
        StatusEvent,
        created_ns=u64,
        variable_id=st.builds(VariableId, u32),
        payload=payloads,
        sequence=u16,
        time_quality=st.sampled_from(TimeQuality),
        flags=flags,
    )


@pytest.mark.feature("S0-14", "S0-15", "S3-18")
@given(events(any_options))
def test_an_event_is_read_back_as_it_was_written(event: StatusEvent) -> None:
    raw = encode_event(event)
    assert len(raw) == 24 + 24 * event.option_count
    assert decode_event(raw) == event


@pytest.mark.feature("S3-18")
@given(
    st.lists(events(few_options), min_size=1, max_size=12),
    u32,
    st.integers(1, 2**64 - 1),
    st.integers(0, 2_000),
)
def test_a_datagram_of_events_is_read_back_as_it_was_written(
    packed: list[StatusEvent], channel_id: int, counter: int, padded_bytes: int
) -> None:
    raw = encode_datagram(
        channel_id, counter, events=map(encode_event, packed), padded_bytes=padded_bytes
    )
    assert len(raw) >= padded_bytes
    datagram = decode_datagram(raw)
    assert (datagram.channel_id, datagram.counter) == (channel_id, counter)
    assert [status_event(view) for view in datagram.events] == packed
