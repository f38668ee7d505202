"""Edges that stay away, and end-points that edges still name although they have ended."""

from __future__ import annotations

import pytest

from gridstat.model.errors import LayoutError
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import Attach, Detach
from gridstat.net.command.router_messages import AttachmentChanged
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    found.subscribe(CENTRE, "c1/e2", VOLTAGE)
    return found


def test_end_points_of_edges_that_never_return_end_after_the_grace_times(
    cloud: Conversation,
) -> None:
    for edge in ("c1/e2", "c1/e3"):
        cloud.disconnect(edge)
    cloud.advance(3 * cloud.settings.grace_ns)
    assert sorted(cloud.broker.registry.endpoints) == [PMU]
    assert cloud.broker.registry.subscriptions == {}


def test_end_points_of_edges_that_a_restarted_broker_never_hears_of_end(
    cloud: Conversation,
) -> None:
    cloud.kill_broker()
    cloud.carry_out(cloud.broker.start(cloud.now_ns))
    for name in ("c1/e0", "c1/e1", "c1/i0", "c1/i1"):
        cloud.connect(name)
    cloud.advance(3 * cloud.settings.grace_ns)
    assert sorted(cloud.broker.registry.endpoints) == [PMU]


def test_an_edge_that_returns_in_time_keeps_its_end_points(cloud: Conversation) -> None:
    for edge in ("c1/e2", "c1/e3"):
        cloud.disconnect(edge)
    cloud.advance(cloud.settings.grace_ns // 2)
    for edge in ("c1/e2", "c1/e3"):
        cloud.connect(edge)
    cloud.advance(3 * cloud.settings.grace_ns)
    assert sorted(cloud.broker.registry.endpoints) == [CENTRE, PMU]
    assert cloud.detached == []


def test_an_end_point_that_has_ended_is_sent_away_by_the_edge_that_still_names_it(
    cloud: Conversation,
) -> None:
    for edge in ("c1/e2", "c1/e3"):
        cloud.disconnect(edge)
    cloud.advance(3 * cloud.settings.grace_ns)
    cloud.connect("c1/e2")
    assert cloud.detached == [("c1/e2", CENTRE)]


def test_a_newcomer_that_an_edge_names_before_it_attaches_is_not_sent_away(
    cloud: Conversation,
) -> None:
    cloud.disconnect("c1/e2")
    cloud.routers["c1/e2"].attached.add("c1/newcomer")
    cloud.connect("c1/e2")
    assert cloud.detached == []


def test_a_subscriber_that_attaches_anew_without_a_port_is_refused(cloud: Conversation) -> None:
    before = {name: cloud.broker.tables[name].wanted.digest for name in cloud.routers}
    command = Attach(
        edge="c1/e2",
        certificate=f"endpoint/{CENTRE}".encode(),
        incarnation="a",
        first_time=False,
        host="",
        data_port=0,
        urgent_port=0,
        datagram_versions=(1, 2, 3),
        security="hop",
    )
    found = refusal(cloud.ask(CENTRE, "c1/e2", command))
    assert found.code == LayoutError.code

    cloud.journal[:] = cloud.broker.snapshot()
    cloud.kill_broker()
    assert {name: cloud.broker.tables[name].wanted.digest for name in cloud.routers} == before


def test_one_lost_edge_of_two_starts_no_grace_time(cloud: Conversation) -> None:
    cloud.lose(PMU, "c1/e0")
    cloud.advance(3 * cloud.settings.grace_ns)
    assert PMU in cloud.broker.registry.endpoints


def test_an_edge_that_returns_without_an_end_point_starts_its_grace_time(
    cloud: Conversation,
) -> None:
    cloud.disconnect("c1/e0")
    cloud.disconnect("c1/e1")
    for name in ("c1/e0", "c1/e1"):
        cloud.routers[name].attached.clear()
        cloud.connect(name)
    cloud.settle()
    cloud.advance(cloud.settings.grace_ns)
    assert PMU not in cloud.broker.registry.endpoints


def test_a_broker_cut_off_for_an_hour_ends_nothing(cloud: Conversation) -> None:
    held = set(cloud.broker.registry.subscriptions)
    for name in cloud.routers:
        cloud.disconnect(name)
    cloud.advance(3_600 * NS_PER_S)
    for name in cloud.routers:
        cloud.connect(name)
    cloud.settle()
    cloud.advance(3_600 * NS_PER_S)

    assert set(cloud.broker.registry.subscriptions) == held
    assert cloud.differing() == []


def test_an_attachment_that_is_repeated_by_a_later_session_says_that_the_end_point_is_there(
    cloud: Conversation,
) -> None:
    (again,) = cloud.attach(CENTRE, "c1/e2")
    number = cloud.request_id
    cloud.lose(CENTRE, "c1/e2", "c1/e3")

    # The answer was lost with the session, so the same request comes again by the next one.
    repeated = cloud.ask(CENTRE, "c1/e2", attach_command("c1/e2"), request_id=number)

    assert repeated == (again,)
    cloud.advance(3 * cloud.settings.grace_ns)
    assert CENTRE in cloud.broker.registry.endpoints


def test_an_attachment_that_is_repeated_while_it_is_being_written_says_that_too(
    cloud: Conversation,
) -> None:
    """The broker was held up, and receives both with the loss of the session in between."""
    cloud.is_journal_held = True
    number = cloud.send(CENTRE, "c1/e2", attach_command("c1/e2"))
    cloud.lose(CENTRE, "c1/e2", "c1/e3")
    cloud.hear("c1/e2", AttachmentChanged(endpoint=CENTRE, is_up=True))
    assert cloud.send(CENTRE, "c1/e2", attach_command("c1/e2"), request_id=number) == number
    cloud.write()
    cloud.is_journal_held = False
    cloud.settle()

    assert cloud.broker.registry.endpoints[CENTRE].edges_up() == ["c1/e2"]
    cloud.advance(3 * cloud.settings.grace_ns)
    assert CENTRE in cloud.broker.registry.endpoints


def test_an_end_point_that_goes_while_its_farewell_cannot_be_written_is_gone(
    cloud: Conversation,
) -> None:
    cloud.is_journal_held = True
    cloud.send(CENTRE, "c1/e2", Detach())
    cloud.lose(CENTRE, "c1/e2", "c1/e3")
    cloud.fail_first_write()
    cloud.write()
    cloud.is_journal_held = False

    endpoint = cloud.broker.registry.endpoints[CENTRE]
    assert endpoint.edges_up() == []
    cloud.attach(CENTRE, "c1/e2", incarnation="b")  # Not refused for the sake of the first one.
    assert cloud.broker.registry.endpoints[CENTRE].incarnation == "b"


def attach_command(edge: str) -> Attach:
    return Attach(
        edge=edge,
        certificate=f"endpoint/{CENTRE}".encode(),
        incarnation="a",
        first_time=True,
        host="10.1.0.1",
        data_port=5_000,
        urgent_port=5_001,
        datagram_versions=(1, 2, 3),
        security="hop",
    )
