"""A router's own share of an event's way is never longer than the way (S3 §5.2.1)."""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest

from gridstat.core._core import Core
from gridstat.core._ends import Receiver, Sender
from gridstat.core.rows import ChannelSpec, Limits, Route, Row, Term

EVENTS = 100


def _lower_edge_ns(before: dict[int, int], after: dict[int, int]) -> int:
    """The lower edge of the one bucket that has grown by one; there are eight to an octave."""
    grown = [upper_ns for upper_ns, count in after.items() if count != before.get(upper_ns, 0)]
    assert len(grown) == 1
    assert after[grown[0]] == before.get(grown[0], 0) + 1
    return grown[0] * 8 // 9


@pytest.mark.feature("S3-76")
def test_the_local_latency_of_each_event_is_at_most_its_end_to_end_latency() -> None:
    with ExitStack() as stack:
        receiver = stack.enter_context(closing(Receiver()))
        receiver.expect(5, None)
        receiver.start()
        stack.callback(receiver.stop)
        core = stack.enter_context(closing(Core(Limits(variables_max=16))))
        ports = core.listen("127.0.0.1")
        core.open_channel(ChannelSpec(channel_id=2, address=("127.0.0.1", *receiver.ports)))
        core.open_source(1, is_publisher=True)
        core.commit([Row(variable_id=5, period=None, source=1, routes=(Route(2, (Term(1),)),))])
        core.start()
        stack.callback(core.stop)
        sender = stack.enter_context(closing(Sender(1, ("127.0.0.1", *ports))))
        before = dict(core.latency_histogram())
        for value in range(EVENTS):
            assert sender.send(5, value)
            (sample,) = receiver.read(timeout_s=5.0)
            while sum((after := dict(core.latency_histogram())).values()) <= value:
                pass
            end_to_end_ns = int(sample["received_ns"]) - int(sample["created_ns"])
            assert _lower_edge_ns(before, after) <= end_to_end_ns
            before = after
