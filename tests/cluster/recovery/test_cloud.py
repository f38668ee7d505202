"""Channels, routers and the broker fail, one after another, under streams that go on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from lab.grid_plan import BROKER, link_name
from lab.relay import Direction
from tests.cluster.eventually import eventually
from tests.cluster.recovery.square import becomes

if TYPE_CHECKING:
    from tests.cluster.recovery.square import Square

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def wire_of(square: Square, channel: str) -> tuple[str, Direction]:
    """The wire that carries a channel, and the channel's direction on it."""
    near, far = channel.split("→")
    forward = link_name(near, far)
    if forward in square.grid.network.wires:
        return forward, Direction.FORWARD
    return link_name(far, near), Direction.BACKWARD


@pytest.mark.feature("S0-113", "S0-114")
def test_a_channel_cut_both_ways_is_marked_and_its_stream_moves(square: Square) -> None:
    name = square.stream("cut-both-ways")
    contract = square.view.subscribed(name)
    channel = square.channels(name)[0]
    wire, _ = wire_of(square, channel)
    back = "→".join(reversed(channel.split("→")))
    square.grid.network.cut(wire)
    becomes(square.down, {channel, back})
    becomes(lambda: channel in square.channels(name), expected=False)
    square.await_event(name)
    becomes(lambda: square.view.subscribed(name)["paths"] != contract["paths"], expected=True)
    moved = square.channels(name)

    square.grid.network.heal(wire)
    square.await_whole()
    assert square.channels(name) == moved, "nothing moves back"
    log = square.broker_log
    noted = [log.index(f"channel_{state} channel=c1/{_full(channel)}") for state in ("down", "up")]
    assert noted == sorted(noted)
    square.await_event(name)
    now = square.view.subscribed(name)
    assert now["subscription_id"] == contract["subscription_id"]
    assert (now["is_over"], now["error_code"], now["degraded"]) == (False, 0, [])


@pytest.mark.feature("S0-113", "S0-114")
def test_a_channel_cut_one_way_is_the_only_one_to_be_marked(square: Square) -> None:
    name = square.stream("cut-one-way")
    channel = square.channels(name)[1]
    wire, direction = wire_of(square, channel)
    square.grid.network.cut(wire, direction=direction)
    becomes(square.down, {channel})
    becomes(lambda: channel in square.channels(name), expected=False)
    square.await_event(name)
    square.grid.network.heal(wire)
    square.await_whole()


@pytest.mark.feature("S0-114")
def test_without_another_way_the_subscriber_is_told_and_the_stream_resumes_by_itself(
    square: Square,
) -> None:
    name = square.stream("no-way")
    contract = square.view.subscribed(name)
    for wire in ("e0-i0", "e0-i1"):
        square.grid.network.cut(wire)
    becomes(square.down, {"e0→i0", "i0→e0", "e0→i1", "i1→e0"})
    eventually(lambda: None if square.view.subscribed(name)["degraded"] else "not told")
    for wire in ("e0-i0", "e0-i1"):
        square.grid.network.heal(wire)
    square.await_whole()
    square.await_event(name)
    becomes(lambda: square.view.subscribed(name)["degraded"], [])
    now = square.view.subscribed(name)
    assert now["subscription_id"] == contract["subscription_id"]


@pytest.mark.feature("S0-8", "S0-116", "S3-106")
def test_a_killed_router_costs_two_paths_nothing_and_gets_its_table_back(square: Square) -> None:
    name = square.stream("two-paths", redundancy=2)
    assert {path[1] for path in square.paths(name)} == {"i0", "i1"}
    before = square.router("i0")
    assert before["paths"] > 0
    lost = square.view.subscribed(name)["lost"]

    square.grid.daemons["i0"].kill()
    becomes(lambda: square.router("i0")["is_up"], expected=False)
    square.await_event(name)
    square.grid.restart("i0")
    square.await_whole()

    after = square.router("i0")
    kept = ("digest", "variables", "paths")
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    assert after["confirmed_digest"] == before["digest"]
    square.await_event(name)
    assert square.view.subscribed(name)["lost"] == lost


@pytest.mark.feature("S3-45")
def test_a_router_that_falls_silent_is_noticed_by_its_neighbours_and_by_the_broker(
    square: Square,
) -> None:
    """Stop a router, which closes nothing: only unanswered probes and pings reveal it."""
    square.grid.daemons["i1"].signal(signal.SIGSTOP)
    # What it should send is missed by its neighbours, who say so to the broker.
    becomes(lambda: {"i1→e0", "i1→e1"} <= square.down(), expected=True)
    becomes(lambda: square.router("i1")["is_up"], expected=False)
    square.grid.daemons["i1"].signal(signal.SIGCONT)
    square.await_whole()


@pytest.mark.feature("S0-114", "S3-45")
def test_a_killed_router_is_left_by_the_streams_that_have_another_way(square: Square) -> None:
    name = square.stream("another-way")
    contract = square.view.subscribed(name)
    victim = square.paths(name)[0][1]
    square.grid.daemons[victim].kill()
    becomes(lambda: square.router(victim)["is_up"], expected=False)
    becomes(lambda: victim in square.paths(name)[0], expected=False)
    square.await_event(name)
    square.grid.restart(victim)
    square.await_whole()
    assert square.view.subscribed(name)["subscription_id"] == contract["subscription_id"]


@pytest.mark.feature("S0-115", "S0-117")
def test_a_router_without_its_broker_goes_on_and_hears_later_what_it_missed(
    square: Square,
) -> None:
    ends = square.stream("missed-end", redundancy=2)
    goes_on = square.stream("goes-on", redundancy=2)
    before = square.router("i0")
    square.cut_broker_from("i0")
    becomes(lambda: square.router("i0")["is_connected"], expected=False)
    assert square.router("i0")["is_up"], "a lost session alone is no dead router"

    # What changes meanwhile: one contract ends and another begins.
    square.view.tell("unsubscribe", name=ends)
    begins = square.pmu.tell("publish", name="missed-beginning")["name"]
    square.view.tell("subscribe", name=begins, redundancy=2)
    # The other way is cut, so that whatever arrives was forwarded by the router without a broker.
    square.grid.network.cut("e0-i1")
    becomes(square.down, {"e0→i1", "i1→e0"})
    square.await_event(goes_on)

    square.heal_broker_to("i0")
    becomes(lambda: square.router("i0")["is_connected"], expected=True)
    becomes(lambda: square.router("i0")["in_step"], expected=True)
    square.await_event(begins)
    after = square.router("i0")
    assert after["confirmed_digest"] == after["digest"] != before["digest"]
    reports = [
        line.partition("is_new=")[2][0]
        for line in square.broker_log.splitlines()
        if "router_reported router=c1/i0" in line
    ]
    assert reports[-1] == "0", "it says that it has lost its session and nothing else"
    square.grid.network.heal("e0-i1")
    square.await_whole()


@pytest.mark.feature("S0-115")
def test_a_killed_broker_costs_no_event_and_comes_back_as_it_was(square: Square) -> None:
    single = square.stream("broker-single")
    double = square.stream("broker-double", redundancy=2)
    before = square.grid.survey()
    lost = [square.view.subscribed(name)["lost"] for name in (single, double)]

    square.grid.daemons[BROKER].kill()
    for name in (single, double):
        square.await_event(name)
    square.grid.restart(BROKER)
    square.await_whole()

    after = square.grid.survey()
    assert after["term"] == before["term"] + 1
    assert _digests(after, "digest") == _digests(before, "digest")
    assert _digests(after, "confirmed_digest") == _digests(after, "digest")
    assert _contracts(after) == _contracts(before)
    for name in (single, double):
        square.await_event(name)
    assert [square.view.subscribed(name)["lost"] for name in (single, double)] == lost
    square.stream("after-broker")


def _full(channel: str) -> str:
    """`e0→i0` as the broker writes it after the first `c1/`."""
    near, far = channel.split("→")
    return f"{near}→c1/{far}"


def _digests(survey: dict[str, object], key: str) -> dict[str, str]:
    routers = survey["routers"]
    assert isinstance(routers, list)
    return {router["name"]: router[key] for router in routers}


def _contracts(survey: dict[str, object]) -> list[tuple[int, str, object]]:
    contracts = survey["subscriptions"]
    assert isinstance(contracts, list)
    return [(each["subscription_id"], each["name"], each["paths"]) for each in contracts]
