"""Flooding with real processes: by the command, across clouds, beside contracts, to all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.streams import Stream, slots_of
from tests.cluster.two_clouds.clouds import EAST, WEST

if TYPE_CHECKING:
    from gridstat.endpoint.flooded import FloodedEvent
    from tests.cluster.two_clouds.clouds import TwoClouds

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
FLOAT64 = BuiltinType.FLOAT64
RATE = 20
KEEP = 65_536


def flood(clouds: TwoClouds, *words: str) -> dict[str, object]:
    told = clouds.gridstat("flood", *words, "--json")
    assert told.returncode == 0, told.stderr
    found: dict[str, object] = json.loads(told.stdout)
    return found


def slots(heard: list[FloodedEvent]) -> list[int]:
    return [int(float(str(each.delivery.value))) for each in heard]


@pytest.mark.feature("S0-47", "S0-81")
def test_who_hears_all_that_floods_hears_it_while_it_floods_and_contracts_miss_nothing(
    clouds: TwoClouds,
) -> None:
    publisher = clouds.connect("c1/flood/pmu", WEST)
    stream = publisher.publish("value", FLOAT64, rate=RATE, delay_ms=DELAY_MS)
    desk = clouds.connect("c2/flood/desk", EAST)
    contract = desk.subscribe(stream.name, qos=qos(every=2, redundancy=2), keep_events=KEEP)
    heard: list[FloodedEvent] = []
    observer = clouds.connect("c2/flood/observer", EAST)
    with observer.subscribe_flooded(on_event=heard.append) as flooded, Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(RATE))
        assert heard == []
        facts = flood(clouds, stream.name, "--at", "root")
        assert facts["modes"]
        eventually(lambda: None if len(heard) > 2 * RATE else f"{len(heard)} heard")
        assert [variable.name for variable in flooded.variables] == [stream.name]
        assert [each["name"] for each in clouds_floods(clouds, "c2")] == [stream.name]
        flood(clouds, stream.name, "--at", "root", "--stop")
        eventually(lambda: None if not flooded.variables else "still told to flood")
        eventually(lambda: complaint_unless_silent(sending, heard))
    # While a flood spreads, its first slots may overtake each other.
    assert slots(heard)[RATE:] == sorted(slots(heard)[RATE:])
    found = sorted(slots(heard))
    assert found == sorted(set(found))  # Each once, of two edges.
    assert found == [slot for slot in sending.sent if found[0] <= slot <= found[-1]]
    wanted = [slot for slot in sending.sent if slot % 2 == 0]
    taken: list[int] = []

    def missing() -> str | None:
        taken.extend(slots_of(contract))
        return None if len(taken) >= len(wanted) else f"{len(taken)} of {len(wanted)}"

    eventually(missing)
    assert taken == wanted
    assert clouds_floods(clouds, "root") == []


def complaint_unless_silent(sending: Stream, heard: list[FloodedEvent]) -> str | None:
    """Return None once nothing more arrives though much is sent; the last may be in transit."""
    before, more = len(heard), len(sending.sent) + RATE
    eventually(lambda: sending.complaint_below(more))
    return None if len(heard) == before else f"{len(heard) - before} more were heard"


def clouds_floods(clouds: TwoClouds, broker: str) -> list[dict[str, object]]:
    found = flood(clouds, "--list", "--at", broker)["floods"]
    assert isinstance(found, list)
    return found


def test_a_flood_that_does_not_fit_between_clouds_is_refused_with_the_channel(
    clouds: TwoClouds,
) -> None:
    stream = clouds.connect("c1/wide/pmu", WEST).publish("value", FLOAT64, rate=400)
    told = clouds.gridstat("flood", stream.name, "--at", "root")
    assert told.returncode == 1
    assert "channel c1/b0→c2/b0 is full" in told.stderr
    assert "hint:" in told.stderr
    assert clouds_floods(clouds, "c1") == []
    told = clouds.gridstat("flood", stream.name, "--at", "root", "--every", "4")
    assert told.returncode == 0, told.stderr
    assert "one slot in 4" in told.stdout
    told = clouds.gridstat("flood", stream.name, "--at", "root", "--stop")
    assert "does not flood" in told.stdout


def test_the_command_says_what_was_asked_wrongly(clouds: TwoClouds) -> None:
    for words, complaint in (
        (("flood",), "no variable is named"),
        (("flood", "c1/a/b", "--at", "nobody"), "there is no broker nobody"),
        (("flood", "c1/a/b", "--modes", "two"), "are not numbers"),
        (("flood", "c1/a/b", "--modes", "3"), "mode 3 is not defined"),
        (("flood", "c1/a/b", "--modes", "3", "--at", "root"), "leave `modes` out"),
        (("flood", "c1/a/b", "--list"), "--list takes no variable"),
        (("flood", "c1/a/b"), "nobody publishes c1/a/b"),
        (("subscribe",), "name a variable"),
    ):
        told = clouds.gridstat(*words)
        assert told.returncode != 0
        assert complaint in told.stderr


@pytest.mark.feature("S0-85")
def test_the_flooded_subscriber_prints_what_floods(clouds: TwoClouds) -> None:
    stream = clouds.connect("c1/print/pmu", WEST).publish("value", FLOAT64, rate=RATE)
    flood(clouds, stream.name)
    with Stream(stream):
        told = clouds.gridstat("subscribe", "--flooded", "--count", "3", "--json")
    assert told.returncode == 0, told.stderr
    events = [json.loads(line) for line in told.stdout.splitlines()]
    assert [each["name"] for each in events] == [stream.name] * 3
    assert flood(clouds, stream.name, "--stop")["modes"] == []
