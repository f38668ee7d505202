"""Single failures: a contract between clouds over two disjoint ways loses nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.change import ChangeKind
from gridstat.endpoint.options import qos
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.streams import Stream
from tests.cluster.two_clouds.clouds import EAST, WEST, is_up
from tests.cluster.two_clouds.test_contracts import missing, residue

if TYPE_CHECKING:
    from gridstat.endpoint.change import Change
    from gridstat.endpoint.change_stream import ChangeStream
    from gridstat.endpoint.subscriber import Subscription
    from tests.cluster.two_clouds.clouds import TwoClouds

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
KEEP = 65_536
TOLD_WITHIN_S = 60.0
SOME = 25
"""Events before, during and after each failure."""
KILLED = ("c1/e0", "c1/b0", "c2/b1", "c2/e0", "c1", "c2", "root")
CUT = "c1/b0→c2/b0"


@pytest.mark.feature("S0-129")
def test_nothing_is_lost_by_any_broker_edge_or_border_router_or_channel_that_fails(
    own_clouds: TwoClouds,
) -> None:
    """Check subscribers that insist on two paths and that accept one."""
    clouds = own_clouds
    publisher = clouds.connect("c1/firm/pmu", WEST)
    stream = publisher.publish("value", BuiltinType.FLOAT64, rate=50, delay_ms=DELAY_MS)
    # Whatever is held up still comes in time; what is missing at the end is lost.
    wish = qos(latency_ms=30_000, redundancy=2)
    subscriptions = [
        clouds.connect(name, EAST).subscribe(stream.name, qos=one, keep_events=KEEP)
        for name, one in {
            "c2/firm/desk": wish,
            "c2/firm/display": replace(wish, redundancy_worst=1),
        }.items()
    ]
    with Stream(stream) as sending:

        def some_more() -> None:
            wanted = len(sending.sent) + SOME
            eventually(lambda: sending.complaint_below(wanted))

        for name in KILLED:
            some_more()
            clouds.daemons[name].kill()
            some_more()
            clouds.restart(name)
            await_two_paths(subscriptions)
        some_more()
        clouds.wire.cut(channel_id(clouds, CUT))
        eventually(lambda: complaint_unless_down(clouds, CUT))
        some_more()
        clouds.wire.mend()
        eventually(clouds.complaint)
        some_more()
    for subscription in subscriptions:
        taken: list[int] = []
        eventually(partial(missing, subscription, taken, sending.sent))
        assert taken == sorted(set(taken)), "each slot once, in order"
    await_two_paths(subscriptions)
    assert clouds.survey("root")["contracts"] == 2
    for subscription in subscriptions:
        subscription.unsubscribe()
        ledger = subscription.ledger()
        assert (ledger.lost, ledger.delivered) == (0, len(sending.sent))
    eventually(lambda: residue(clouds))


def await_two_paths(subscriptions: list[Subscription]) -> None:
    def complaint() -> str | None:
        ways = [one.contract.paths for one in subscriptions]
        return None if all(len(paths) == 2 for paths in ways) else f"granted over {ways}"

    eventually(complaint)


def channel_id(clouds: TwoClouds, label: str) -> int:
    channels = clouds.survey("root")["channels"]
    (number,) = (one["channel_id"] for one in channels if one["channel"] == label)
    assert isinstance(number, int)
    return number


def complaint_unless_down(clouds: TwoClouds, label: str) -> str | None:
    channels = clouds.survey("root")["channels"]
    still_up = any(is_up(one) for one in channels if one["channel"] == label)
    return f"{label} is still up" if still_up else None


def test_the_subscriber_is_told_while_one_of_two_paths_between_clouds_is_broken(
    own_clouds: TwoClouds,
) -> None:
    clouds = own_clouds
    stream = clouds.connect("c1/told/pmu", WEST).publish("value", BuiltinType.FLOAT64, rate=10)
    found = clouds.connect("c2/told/desk", EAST).subscribe(stream.name, qos=qos(redundancy=2))
    changes = found.changes()
    clouds.wire.cut(channel_id(clouds, CUT))
    lowered = next_of(changes, ChangeKind.LOWERED)
    assert lowered.contract is not None
    (down,) = lowered.contract.paths_down or ()
    (path,) = [path for path in lowered.contract.paths if path.name == down]
    assert {"c1/b0", "c2/b0"} <= set(path.routers)
    clouds.wire.mend()
    restored = next_of(changes, ChangeKind.RESTORED)
    assert restored.contract is not None
    assert restored.contract.paths_down == ()
    found.unsubscribe()
    eventually(lambda: residue(clouds))


def next_of(stream: ChangeStream, kind: ChangeKind) -> Change:
    while (found := stream.next(timeout_s=TOLD_WITHIN_S)) is not None:
        if found.kind is kind:
            return found
    raise AssertionError(f"{kind} was not told within {TOLD_WITHIN_S} s")
