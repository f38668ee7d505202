"""End-points and their edge routers crash, and links are lost for a moment, with real processes."""

from __future__ import annotations

import signal
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lab.relay import Direction
from tests.cluster.eventually import eventually
from tests.cluster.recovery.square import PMU, VIEW, becomes

if TYPE_CHECKING:
    from tests.cluster.recovery.square import Square

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
WAS_RESTARTED = 3
EDGE_WAS_RESTARTED = 4
SLOW_S = 3
SLOW_NS = SLOW_S * 1_000_000_000


@pytest.mark.feature("S0-119", "S3-45")
def test_a_killed_publisher_returns_to_its_identifier_and_its_subscribers(square: Square) -> None:
    name = square.stream("voltage")
    before = square.view.subscribed(name)
    variable_id = square.pmu.tell("facts")["published"][name]["variable_id"]
    square.pmu.kill()
    becomes(lambda: is_up(square, PMU), expected=False)

    pmu = square.start_end(PMU)
    assert pmu.codes == [WAS_RESTARTED]
    assert pmu.tell("publish", name="voltage")["variable_id"] == variable_id
    square.await_event(name)
    after = square.view.subscribed(name)
    assert after["subscription_id"] == before["subscription_id"]
    assert (after["is_over"], after["error_code"]) == (False, 0)


@pytest.mark.feature("S0-119", "S3-45")
def test_a_killed_subscriber_finds_its_old_registrations_purged(square: Square) -> None:
    name = square.stream("current")
    before = contracts_of(square, VIEW)
    assert name in before
    square.view.kill()
    becomes(lambda: is_up(square, VIEW), expected=False)
    assert contracts_of(square, VIEW) == before, "they are kept for the grace time"

    view = square.start_end(VIEW)
    assert view.codes == [WAS_RESTARTED]
    assert contracts_of(square, VIEW) == {}
    view.tell("subscribe", name=name)
    square.await_event(name)
    assert contracts_of(square, VIEW)[name] not in before.values()


@pytest.mark.feature("S3-45")
def test_an_end_point_that_falls_silent_with_its_connection_open_is_noticed(square: Square) -> None:
    """Stop an end-point, which closes nothing: only unanswered pings reveal it."""
    name = square.stream("silent-ends")
    ends = {PMU: square.pmu, VIEW: square.view}
    for number, expected in ((signal.SIGSTOP, False), (signal.SIGCONT, True)):
        for process in ends.values():
            process.signal(number)
        for end in ends:
            becomes(partial(is_up, square, end), expected)
    square.await_event(name)


@pytest.mark.feature("S0-118", "S0-120")
def test_a_killed_edge_router_takes_its_end_point_back_with_all_its_contracts(
    square: Square,
) -> None:
    name = square.stream("frequency")
    before, told = contracts_of(square, VIEW), len(square.view.codes)
    digest = square.router("e1")["digest"]
    square.grid.daemons["e1"].kill()
    becomes(lambda: square.view.tell("facts")["is_connected"], expected=False)
    becomes(lambda: square.router("e1")["is_up"], expected=False)

    square.grid.restart("e1")
    square.await_whole()
    becomes(lambda: square.view.codes[told:], [EDGE_WAS_RESTARTED])
    square.await_event(name)
    assert contracts_of(square, VIEW) == before
    eventually(lambda: complaint_of_digest(square, digest))


@pytest.mark.feature("S0-118")
def test_a_link_that_is_lost_for_long_costs_no_registration(square: Square) -> None:
    name = square.stream("power")
    before, told = contracts_of(square, VIEW), len(square.view.codes)
    square.grid.network.cut("centre/view-e1")
    becomes(lambda: square.view.tell("facts")["is_connected"], expected=False)
    becomes(lambda: is_up(square, VIEW), expected=False)
    square.grid.network.heal("centre/view-e1")
    becomes(lambda: square.view.codes[told:], [1])
    square.await_event(name)
    assert contracts_of(square, VIEW) == before


@pytest.mark.feature("S0-121")
def test_a_short_link_loss_that_costs_no_event_alarms_nobody(square: Square) -> None:
    name: str = square.pmu.tell("publish", name="slow", period_s=SLOW_S)["name"]
    square.view.tell("subscribe", name=name, latency_ms=60_000.0)
    second_ns = time.time_ns() // SLOW_NS * SLOW_NS
    assert square.pmu.tell("send", name=name, created_ns=second_ns - SLOW_NS)["is_sent"]
    eventually(lambda: square.view.complaint_until_new(name, since_ns=0))
    told = len(square.view.codes)
    wire = "centre/view-e1"
    before = square.grid.network.counters(wire)[Direction.FORWARD].cut

    square.grid.network.cut(wire)
    # A request that meets the gap: it shows that the wire was cut, and survives it.
    square.view.order("find", pattern="c1/**")
    eventually(
        lambda: (
            None
            if square.grid.network.counters(wire)[Direction.FORWARD].cut > before
            else "nothing has met the gap yet"
        )
    )
    square.grid.network.heal(wire)

    assert name in square.view.answer()["found"]
    assert square.pmu.tell("send", name=name, created_ns=second_ns)["is_sent"]
    eventually(lambda: square.view.complaint_until_new(name, since_ns=second_ns - SLOW_NS))
    facts = square.view.subscribed(name)
    assert (facts["violations"], facts["lost"], facts["error_code"]) == (0, 0, 0)
    assert square.view.tell("facts")["is_connected"]
    assert len(square.view.codes) == told, "the session was never lost"


def is_up(square: Square, name: str) -> bool:
    """Return whether the broker knows of a session with an end-point."""
    full_name = square.grid.plan.full_name(name)
    ends = square.grid.survey()["end_points"]
    return any(each["is_up"] for each in ends if each["name"] == full_name)


def contracts_of(square: Square, name: str) -> dict[str, int]:
    """Identifiers of an end-point's contracts, by the variable."""
    full_name = square.grid.plan.full_name(name)
    return {
        each["name"]: each["subscription_id"]
        for each in square.grid.survey()["subscriptions"]
        if each["subscriber"] == full_name
    }


def complaint_of_digest(square: Square, expected: str) -> str | None:
    """Return None if the edge router has confirmed the table that it had."""
    found = square.router("e1")["confirmed_digest"]
    return None if found == expected else f"its table digests to {found}, not {expected}"
