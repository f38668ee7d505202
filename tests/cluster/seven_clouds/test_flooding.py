"""The source's scenarios of limited flooding, with real brokers and routers (S0 A12 b, §5.4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gridstat.model.status import BuiltinType
from gridstat.net.command.operator_messages import RemoveFlooding, SetFlooding
from lab.declared_delay import DELAY_MS
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.streams import Stream
from tests.cluster.seven_clouds.clouds import ALWAYS_GROWS, GOLDEN, PARENTS, WITHIN_S, SevenClouds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.endpoint.publisher import Publication

pytestmark = [pytest.mark.cluster, pytest.mark.apart, pytest.mark.slow, pytest.mark.timeout(900)]
EVENTS = 10
Reports = dict[str, dict[str, int]]


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SevenClouds]:
    with SevenClouds(tmp_path_factory.mktemp("clouds")) as running:
        running.start()
        yield running


def flooded(
    clouds: SevenClouds, broker: str, stream: Publication
) -> tuple[dict[str, int], int, int]:
    """Return the floods of each router, the dropped copies, and the number of events sent."""
    clouds.ask(broker, SetFlooding(request_id=0, name=stream.name))
    start = clouds.reports()
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(EVENTS), within_s=WITHIN_S)
    sent = len(sending.sent)
    seen = [start]

    def unsettled() -> str | None:
        """Return None once two reports of every router are equal and cover all sent events."""
        before, now = seen[-1], clouds.reports()
        old = [name for name in now if not more(before, now, ALWAYS_GROWS).get(name)]
        if old:
            return f"{', '.join(old)} have not reported anew"
        seen.append(now)
        told = more(start, now, "flooded")
        is_same = not more(before, now, "flooded") and not more(before, now, "duplicate")
        return None if is_same and set(told.values()) == {sent} else f"{told} of {sent}"

    eventually(unsettled, within_s=WITHIN_S)
    clouds.ask(broker, RemoveFlooding(request_id=0, name=stream.name))
    drops = sum(more(start, seen[-1], "duplicate").values())
    return more(start, seen[-1], "flooded"), drops, sent


def more(before: Reports, now: Reports, counter: str) -> dict[str, int]:
    """Return the growth of a counter between two reports, of routers where it has grown."""
    grown = {
        name: counters.get(counter, 0) - before[name].get(counter, 0)
        for name, counters in now.items()
    }
    return {name: count for name, count in grown.items() if count}


@pytest.mark.feature("S0-80")
@pytest.mark.parametrize("case", GOLDEN["case"], ids=lambda case: str(case["name"]))
def test_the_scenarios_of_the_source_hold_in_real_clouds(
    clouds: SevenClouds, case: dict[str, Any]
) -> None:
    start = case["publisher_at"]
    is_everywhere = case["scope_level"] == 0
    broker = "root" if is_everywhere else PARENTS[start[0]]
    name = f"{start[0]}/pmu-{case['scope_level']}"
    with clouds.connect(name, f"{start[0]}/{start[1]}") as publisher:
        stream = publisher.publish("value", BuiltinType.FLOAT64, rate=10, delay_ms=DELAY_MS)
        found, drops, sent = flooded(clouds, broker, stream)
    # The seventh cloud lies behind d, at the root's own level.
    beyond = {"g0", "g1"} if is_everywhere else set()
    assert found.keys() == {start, *case["reached"], *beyond}
    assert drops == case["drops"] * sent


def test_a_cloud_right_below_the_root_is_a_scope_of_its_own(clouds: SevenClouds) -> None:
    """Flood in a cloud whose level is that of p and q, which must not receive the flood."""
    with clouds.connect("g/pmu", "g/0") as publisher:
        stream = publisher.publish("value", BuiltinType.FLOAT64, rate=10, delay_ms=DELAY_MS)
        found, drops, _ = flooded(clouds, "g", stream)
    assert found.keys() == {"g0", "g1"}
    assert drops == 0
