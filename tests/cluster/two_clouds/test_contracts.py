"""Contracts between clouds with events under them: granted, explained, refused, and ended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.errors import ModeNotDefined, NoSuchVariable, Refused, StillInUse
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType
from gridstat.net.command.operator_messages import AddChild, RemoveChannel, RemoveChild
from lab.declared_delay import DELAY_MS
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.streams import Stream, slots_of
from tests.cluster.two_clouds.clouds import BAND_BYTES_PER_S, CLOUDS, EAST, WEST

if TYPE_CHECKING:
    from gridstat.endpoint.subscriber import Subscription
    from tests.cluster.two_clouds.clouds import TwoClouds

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
FLOAT64 = BuiltinType.FLOAT64
KEEP = 65_536
TWICE = qos(redundancy=2)


@pytest.mark.feature("S0-9")
def test_a_contract_between_clouds_brings_every_event_once_and_leaves_nothing(
    clouds: TwoClouds,
) -> None:
    publisher = clouds.connect("c1/plain/pmu", WEST)
    stream = publisher.publish("value", FLOAT64, rate=50, delay_ms=DELAY_MS)
    subscriber = clouds.connect("c2/plain/desk", EAST)
    subscription = subscriber.subscribe(stream.name, qos=TWICE, keep_events=KEEP)
    ways = {path.routers for path in subscription.contract.paths}
    assert ways == {
        ("c1/e0", "c1/b0", "c2/b0", "c2/e0"),
        ("c1/e1", "c1/b1", "c2/b1", "c2/e1"),
    }
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(50))
    taken: list[int] = []
    eventually(lambda: missing(subscription, taken, sending.sent))
    assert taken == sending.sent
    facts = clouds.survey("root")
    assert facts["contracts"] == 1
    loaded = {one["channel"] for one in facts["channels"] if one["promised_bytes_per_s"]}
    assert loaded == {"c1/b0→c2/b0", "c1/b1→c2/b1"}
    subscription.unsubscribe()
    eventually(lambda: residue(clouds))


def test_explain_and_tree_show_every_segment_and_whose_it_is(clouds: TwoClouds) -> None:
    stream = clouds.connect("c1/told/pmu", WEST).publish("value", FLOAT64, rate=10)
    desk = clouds.connect("c2/told/desk", EAST)
    subscription = desk.subscribe(stream.name, qos=TWICE)
    told = clouds.gridstat("explain", stream.name)
    assert told.returncode == 0, told.stderr
    assert "taken by c2/told/desk (granted, contract c2#" in told.stdout
    for words in (
        "segment of c1: c1/e0 → c1/b0,",
        "channel of root: c1/b0 → c2/b0,",
        "segment of c2: c2/b0 → c2/e0,",
    ):
        assert words in told.stdout
    drawn = clouds.gridstat("tree")
    assert drawn.returncode == 0, drawn.stderr
    lines = drawn.stdout.splitlines()
    assert lines[0].startswith("root: root, depth 0, term ")
    assert lines[0].endswith("; 1 contract owned")
    assert lines[1].startswith("│  c1/b0→c2/b0: level 0, up, ")
    assert [line[:6] for line in lines[-2:]] == ["├─ c1:", "└─ c2:"]
    assert all("depth 1" in line and "joined" in line for line in lines[-2:])
    facts = json.loads(clouds.gridstat("tree", "--json").stdout)
    assert {one["name"]: one["parent"] for one in facts["brokers"]} == {
        "root": "",
        "c1": "root",
        "c2": "root",
    }
    subscription.unsubscribe()
    eventually(lambda: residue(clouds))


def test_a_pattern_catches_what_another_cloud_publishes_later(clouds: TwoClouds) -> None:
    desk = clouds.connect("c2/later/desk", EAST)
    caught: list[Subscription] = []
    desk.subscribe_pattern("c1/later/*/value", caught.append, qos=TWICE, keep_events=KEEP)
    publisher = clouds.connect("c1/later/pmu", WEST)
    stream = publisher.publish("value", FLOAT64, rate=50, delay_ms=DELAY_MS)
    eventually(lambda: None if caught else "nothing is caught yet")
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(20))
    taken: list[int] = []
    eventually(lambda: missing(caught[0], taken, sending.sent))


def test_find_asks_the_cloud_that_the_pattern_names(clouds: TwoClouds) -> None:
    stream = clouds.connect("c2/found/pmu", EAST).publish("value", FLOAT64, rate=10)
    found = clouds.gridstat("find", "c2/found/**")
    assert found.stdout.split()[0] == stream.name, found.stderr


@pytest.mark.feature("S0-5", "S0-56")
def test_the_root_refuses_what_its_channels_cannot_carry_and_names_the_channel(
    clouds: TwoClouds,
) -> None:
    publisher = clouds.connect("c1/much/pmu", WEST)
    streams = publisher.publish_many([f"v{number}" for number in range(8)], FLOAT64, rate=60)
    desk = clouds.connect("c2/much/desk", EAST)
    with pytest.raises(Refused) as found:
        desk.subscribe_many([stream.name for stream in streams], qos=TWICE)
    assert "c1/b0→c2/b0" in str(found.value) or "c1/b1→c2/b1" in str(found.value)
    eventually(lambda: residue(clouds))
    with pytest.raises(NoSuchVariable):
        desk.subscribe("c1/much/pmu/nothing", qos=TWICE)
    with pytest.raises(NoSuchVariable):
        desk.subscribe("c9/much/pmu/v0", qos=TWICE)


@pytest.mark.feature("S0-128")
def test_a_channel_between_clouds_goes_only_when_no_contract_needs_it(clouds: TwoClouds) -> None:
    stream = clouds.connect("c1/held/pmu", WEST).publish("value", FLOAT64, rate=10)
    subscription = clouds.connect("c2/held/desk", EAST).subscribe(stream.name, qos=TWICE)
    ends = ("c1/b1", "c2/b1")
    kept = clouds.gridstat("cloud", "remove-channel", *ends)
    assert kept.returncode == 1
    assert "carries 1 contracts" in kept.stderr
    subscription.unsubscribe()
    eventually(lambda: residue(clouds))
    clouds.ask("root", RemoveChannel(0, *ends))
    assert labels(clouds) == {"c1/b0→c2/b0", "c2/b0→c1/b0", "c2/b1→c1/b1"}
    added = clouds.gridstat("cloud", "add-channel", *ends, "--bandwidth", str(BAND_BYTES_PER_S))
    assert added.returncode == 0, added.stderr
    eventually(clouds.complaint)
    assert "c1/b1→c2/b1" in labels(clouds)


@pytest.mark.feature("S0-128")
def test_a_child_comes_and_goes_while_the_root_runs_unless_channels_lead_to_it(
    clouds: TwoClouds,
) -> None:
    clouds.ask("root", AddChild(0, "c3"))
    assert [one["name"] for one in clouds.survey("root")["children"]] == ["c1", "c2", "c3"]
    clouds.ask("root", RemoveChild(0, "c3"))
    with pytest.raises(StillInUse, match="channels lead from or to c2"):
        clouds.ask("root", RemoveChild(0, "c2"))


def labels(clouds: TwoClouds) -> set[str]:
    return {one["channel"] for one in clouds.survey("root")["channels"]}


def missing(subscription: Subscription, taken: list[int], sent: list[int]) -> str | None:
    """Return a complaint about missing events; add those that have come to `taken`."""
    taken.extend(slots_of(subscription))
    count = len(set(sent) - set(taken))
    return f"{count} of {len(sent)} have not come" if count else None


def residue(clouds: TwoClouds) -> str | None:
    """Return what a broker still holds of contracts between clouds, or None."""
    root = clouds.survey("root")
    if root["contracts"]:
        return f"the root has {root['contracts']} contracts"
    loaded = [one["channel"] for one in root["channels"] if one["promised_bytes_per_s"]]
    if loaded:
        return f"the root has promised something of {loaded}"
    for cloud in CLOUDS:
        facts = clouds.survey(cloud)
        held = {name: facts["totals"][name] for name in ("segments", "subscriptions")}
        if any(held.values()):
            return f"{cloud} holds {held}"
    return None


def test_an_operating_mode_is_refused_with_a_reason_by_name_by_pattern_in_a_group_and_in_a_change(
    clouds: TwoClouds,
) -> None:
    stream = clouds.connect("c1/modes/pmu", WEST).publish("value", FLOAT64, rate=10)
    desk = clouds.connect("c2/modes/desk", EAST)
    plain = qos(interval=Period(1, 10), latency_ms=1_000)
    modes = {0: plain, 3: plain}
    with pytest.raises(ModeNotDefined, match="mode 3 is not defined") as refused:
        desk.subscribe(stream.name, modes=modes)
    assert refused.value.hint == "defined: none yet besides the baseline; leave `modes` out"
    with pytest.raises(ModeNotDefined):
        desk.subscribe_pattern("c1/modes/*/value", modes=modes)
    near = clouds.connect("c2/modes/pmu", EAST).publish("value", FLOAT64, rate=10)
    with pytest.raises(ModeNotDefined):
        desk.group("modal", modes=modes).add(near.name)
    found = desk.subscribe(stream.name, qos=plain)
    with pytest.raises(ModeNotDefined):
        found.change(modes=modes)
    assert set(found.contract.granted) == {0}
