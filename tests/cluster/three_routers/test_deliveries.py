"""Three real routers in a row: every due slot of every subscription arrives, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.command import Command
from tests.cluster.eventually import eventually

TOPOLOGY = Path(__file__).with_name("topology.toml")
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What one run of a few seconds said."""
    folder = tmp_path_factory.mktemp("run")
    with Command.gridstat(folder, "up", TOPOLOGY, "--json", "--seconds", "3") as command:
        eventually(lambda: command.complaint_without("started"))
        eventually(lambda: command.complaint_without("ended"))
        assert command.exit_code() == 0, command.errors
        return command.lines()


def test_it_says_what_it_started_then_how_it_goes_then_the_account(
    lines: list[dict[str, Any]],
) -> None:
    states = [line["state"] for line in lines]
    assert states == ["started", *["running"] * (len(lines) - 2), "ended"]
    processes = lines[0]["processes"]
    routers = {"router west", "router middle", "router east"}
    assert set(processes) == {*routers, "subscribers", "PMUs"}
    assert len(set(processes.values())) == 5


@pytest.mark.parametrize("router", ["west", "middle", "east"])
def test_each_hop_forwards_and_drops_nothing(lines: list[dict[str, Any]], router: str) -> None:
    [figures] = [each for each in lines[-2]["routers"] if each["name"] == router]
    assert figures["in_per_s"] > 0
    assert figures["out_per_s"] > 0
    assert figures["drops"] == {}
    assert figures["latency"]["us_p50"] > 0


@pytest.mark.feature("S0-131")
@pytest.mark.parametrize("router", ["west", "middle", "east"])
def test_the_counters_of_each_router_reconcile(lines: list[dict[str, Any]], router: str) -> None:
    [account] = [each for each in lines[-1]["routers"] if each["name"] == router]
    assert account["events_in"] == account["not_due"] + account["dispatched"]
    assert account["due"] == account["sent"]
    assert (account["dropped"], account["channel_dropped"], account["queued"]) == (0, 0, 0)


@pytest.mark.feature("S3-3")
@pytest.mark.parametrize("subscriber", ["near", "between", "far"])
def test_each_subscriber_gets_exactly_the_slots_of_its_divisor(
    lines: list[dict[str, Any]], subscriber: str
) -> None:
    [account] = [each for each in lines[-1]["subscribers"] if each["name"] == subscriber]
    assert account["due"] > 0
    assert account["delivered"] == account["due"]
    assert (account["missing"], account["misplaced"], account["duplicates"]) == (0, 0, 0)


def test_values_move_and_are_shown(lines: list[dict[str, Any]]) -> None:
    frequencies = {line["pmus"][0]["values"]["frequency"] for line in lines[1:-1]}
    assert len(frequencies) == len(lines) - 2
    assert all(59.0 < value < 61.0 for value in frequencies)
