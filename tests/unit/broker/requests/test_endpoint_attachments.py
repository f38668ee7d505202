"""End-points come, break off, restart and leave; what they have outlives them for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from gridstat.broker.settings import BrokerSettings, Quotas
from gridstat.model.errors import (
    CertificateRefused,
    EndPointExists,
    LayoutError,
    NoCommonVersion,
    NotAttached,
    NotAuthorised,
    QuotaReached,
    SecurityNotSatisfiable,
    ShuttingDown,
    WrongCloud,
)
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.net.command.endpoint_messages import (
    Attach,
    AttachedOutcome,
    Detach,
    DoneOutcome,
    Unpublish,
    Unpublished,
)
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import (
    CENTRE,
    CERTIFICATE_END_S,
    CLOUD,
    PMU,
    VOLTAGE,
    WALL_NS,
    publish,
    subscribe,
    variable,
)

if TYPE_CHECKING:
    from gridstat.model.channel_security import Security

GRACE_NS = BrokerSettings(CLOUD).grace_ns


@pytest.fixture
def cloud() -> Conversation:
    return pair()


def attach(endpoint: str, edge: str, incarnation: str = "a") -> Attach:
    return Attach(
        edge=edge,
        certificate=f"endpoint/{endpoint}".encode(),
        incarnation=incarnation,
        first_time=True,
        host="10.1.0.1",
        data_port=5_000,
        urgent_port=5_001,
        datagram_versions=(1, 2, 3),
        security="hop",
    )


@pytest.mark.feature("S0-13", "S3-32", "S3-36")
def test_a_publisher_is_told_its_port_and_a_subscriber_announces_its_own() -> None:
    cloud = Conversation().start()
    (publisher,) = cloud.attach(PMU, "c1/e0", data_port=0)
    (subscriber,) = cloud.attach(CENTRE, "c1/e2", data_port=6_000)

    edge = cloud.routers["c1/e0"]
    assert (publisher.data_port, publisher.urgent_port) == (edge.port, edge.port + 1)
    source = edge.table.sources[publisher.up_channel_id]
    assert source.is_publisher
    assert publisher.down_channel_id not in edge.table.channels
    down = cloud.routers["c1/e2"].table.channels[subscriber.down_channel_id]
    assert (down.host, down.data_port, down.urgent_port) == ("10.1.0.1", 6_000, 6_001)
    assert publisher.datagram_version == 3


def test_two_edges_get_channels_of_their_own_and_a_third_is_refused(cloud: Conversation) -> None:
    channels = {
        channel_id
        for attachment in cloud.broker.registry.endpoints[CENTRE].attachments.values()
        for channel_id in (attachment.up_channel_id, attachment.down_channel_id)
    }
    assert len(channels) == 4

    refused = refusal(cloud.ask(CENTRE, "c1/e0", attach(CENTRE, "c1/e0")))
    assert refused.code == QuotaReached.code


@pytest.mark.feature("S0-144")
def test_an_end_point_of_another_cloud_is_refused(cloud: Conversation) -> None:
    refused = refusal(cloud.ask("c2/pmu", "c1/e0", attach("c2/pmu", "c1/e0")))
    assert refused.code == WrongCloud.code


@pytest.mark.feature("S1-2")
def test_applications_attach_only_to_edge_routers(cloud: Conversation) -> None:
    refused = refusal(cloud.ask("c1/new", "c1/i0", attach("c1/new", "c1/i0")))
    assert refused.code == NotAuthorised.code
    assert "rule edge" in refused.reason


def test_a_request_for_another_edge_than_the_forwarding_one_is_refused(
    cloud: Conversation,
) -> None:
    refused = refusal(cloud.ask("c1/new", "c1/e1", attach("c1/new", "c1/e0")))
    assert (refused.code, "rule attachment" in refused.reason) == (NotAuthorised.code, True)


def test_a_certificate_of_another_name_or_role_does_not_attach(cloud: Conversation) -> None:
    refused = refusal(cloud.ask("c1/new", "c1/e0", attach("c1/other", "c1/e0")))
    assert "rule identity" in refused.reason
    router = Attach(
        edge="c1/e0",
        certificate=b"router/c1/new",
        incarnation="a",
        first_time=True,
        datagram_versions=(1, 2, 3),
        security="hop",
    )
    assert "rule identity" in refusal(cloud.ask("c1/new", "c1/e0", router)).reason


def test_ends_without_a_common_version_are_refused(cloud: Conversation) -> None:
    command = Attach(
        edge="c1/e0",
        certificate=b"endpoint/c1/new",
        incarnation="a",
        first_time=True,
        datagram_versions=(9,),
        security="hop",
    )
    assert refusal(cloud.ask("c1/new", "c1/e0", command)).code == NoCommonVersion.code


@pytest.mark.parametrize("security", ["hop", "none"])
def test_an_edge_that_is_to_seal_and_cannot_has_no_end_points(security: Security) -> None:
    cloud = Conversation()
    cloud.routers["c1/e0"].versions = (1, 2)
    cloud.start()
    command = msgspec.structs.replace(attach(PMU, "c1/e0"), security=security)
    refused = refusal(cloud.ask(PMU, "c1/e0", command))
    assert refused.code == SecurityNotSatisfiable.code
    assert "c1/e0" in refused.reason
    assert "cannot seal" in refused.reason
    assert 'endpoint_security = "none"' in refused.hint


def test_a_port_that_is_none_is_refused(cloud: Conversation) -> None:
    command = Attach(
        edge="c1/e0",
        certificate=b"endpoint/c1/new",
        incarnation="a",
        first_time=True,
        data_port=70_000,
        datagram_versions=(1, 2, 3),
        security="hop",
    )
    assert refusal(cloud.ask("c1/new", "c1/e0", command)).code == LayoutError.code


@pytest.mark.parametrize(
    ("host", "data_port", "urgent_port"), [("", 5_000, 5_001), ("h", 5_000, 0), ("h", 0, 5_001)]
)
def test_half_an_address_is_refused(
    cloud: Conversation, host: str, data_port: int, urgent_port: int
) -> None:
    command = Attach(
        edge="c1/e0",
        certificate=b"endpoint/c1/new",
        incarnation="a",
        first_time=True,
        host=host,
        data_port=data_port,
        urgent_port=urgent_port,
        datagram_versions=(1, 2, 3),
        security="hop",
    )
    assert refusal(cloud.ask("c1/new", "c1/e0", command)).code == LayoutError.code


def test_the_number_of_end_points_is_bounded() -> None:
    settings = BrokerSettings(CLOUD, quotas=Quotas(endpoints_max=1))
    cloud = Conversation(settings=settings).start()
    cloud.attach(PMU, "c1/e0")
    assert refusal(cloud.ask(CENTRE, "c1/e2", attach(CENTRE, "c1/e2"))).code == QuotaReached.code


@pytest.mark.feature("S0-26")
def test_a_second_process_of_a_live_end_point_is_refused(cloud: Conversation) -> None:
    refused = refusal(cloud.ask(PMU, "c1/e0", attach(PMU, "c1/e0", "another")))
    assert refused.code == EndPointExists.code
    assert cloud.broker.registry.endpoints[PMU].incarnation == "a"


def test_a_second_process_is_let_in_once_the_first_is_silent(cloud: Conversation) -> None:
    cloud.lose(PMU, "c1/e0", "c1/e1")
    (again,) = cloud.attach(PMU, "c1/e1", incarnation="another")
    assert again.code == 3


@pytest.mark.feature("S0-118")
def test_a_reconnection_keeps_every_registration(cloud: Conversation) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    before = {name: router.table.digest for name, router in cloud.routers.items()}
    channels = cloud.broker.registry.endpoints[PMU].attachments["c1/e0"].up_channel_id

    cloud.lose(PMU, "c1/e0", "c1/e1")
    cloud.lose(CENTRE, "c1/e2", "c1/e3")
    cloud.advance(GRACE_NS // 2)
    cloud.attach(PMU, "c1/e1", first_time=False, data_port=0)
    (publisher,) = cloud.attach(PMU, "c1/e0", first_time=False, data_port=0)
    (subscriber, _) = cloud.attach(CENTRE, "c1/e2", "c1/e3", first_time=False)
    cloud.advance(GRACE_NS)

    assert (publisher.code, publisher.up_channel_id) == (1, channels)
    assert publisher.kept == (VOLTAGE,)
    assert subscriber.code == 1
    assert cloud.broker.registry.publications[VOLTAGE].variable == voltage
    assert granted.subscription_id in cloud.broker.registry.subscriptions
    assert {name: router.table.digest for name, router in cloud.routers.items()} == before


@pytest.mark.feature("S0-119")
def test_a_restarted_subscriber_is_told_so_and_has_lost_its_subscriptions(
    cloud: Conversation,
) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    old = cloud.broker.registry.endpoints[CENTRE].attachments["c1/e2"].down_channel_id

    cloud.lose(CENTRE, "c1/e2", "c1/e3")
    first, second = cloud.attach(CENTRE, "c1/e2", "c1/e3", incarnation="b", data_port=7_000)

    assert (first.code, second.code) == (3, 3)
    assert cloud.broker.registry.subscriptions == {}
    edge = cloud.routers["c1/e2"].table
    assert old not in edge.channels
    assert edge.channels[first.down_channel_id].data_port == 7_000
    assert not any(router.table.paths for router in cloud.routers.values())
    assert cloud.differing() == []


@pytest.mark.feature("S0-119")
def test_a_restarted_publisher_keeps_what_it_publishes_again_in_time(cloud: Conversation) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    current = f"{PMU}/current"
    cloud.publish(current, "c1/e0")
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    gone = cloud.subscribe(CENTRE, "c1/e2", current)
    paths = {name: dict(router.table.paths) for name, router in cloud.routers.items()}

    cloud.lose(PMU, "c1/e0", "c1/e1")
    (attached, _) = cloud.attach(PMU, "c1/e0", "c1/e1", incarnation="b", data_port=0)
    assert (attached.code, attached.kept) == (3, (current, VOLTAGE))
    assert {name: dict(router.table.paths) for name, router in cloud.routers.items()} == paths

    again = cloud.publish(VOLTAGE, "c1/e0")
    assert again == voltage
    order = cloud.routers["c1/e0"].table.variables[voltage.variable_id]
    assert order.source == attached.up_channel_id
    cloud.advance(GRACE_NS)
    cloud.settle()

    assert granted.subscription_id in cloud.broker.registry.subscriptions
    assert (
        cloud.notices[CENTRE]
        == [Unpublished(subscription_id=gone.subscription_id, name=current)] * 2
    )  # Once by each edge.
    assert current not in cloud.broker.registry.publications
    assert cloud.differing() == []


def test_a_dormant_variable_published_with_another_period_is_a_new_one(
    cloud: Conversation,
) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.lose(PMU, "c1/e0", "c1/e1")
    cloud.attach(PMU, "c1/e0", incarnation="b", data_port=0)

    again = cloud.publish(VOLTAGE, "c1/e0", period=Period(1, 30))

    assert again.variable_id > voltage.variable_id
    assert isinstance(cloud.notices[CENTRE][0], Unpublished)
    assert cloud.broker.registry.subscriptions == {}


@pytest.mark.feature("S0-120")
def test_after_an_edge_crash_the_end_point_is_told_code_4_and_the_new_ports(
    cloud: Conversation,
) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    edge = cloud.routers["c1/e0"]
    before = edge.table.digest

    cloud.disconnect("c1/e0")
    edge.crash()
    cloud.connect("c1/e0")
    cloud.settle()
    assert edge.table.digest == before
    (again,) = cloud.attach(PMU, "c1/e0", first_time=False, data_port=0)

    assert (again.code, again.data_port) == (4, edge.port)
    assert cloud.differing() == []


def test_the_grace_time_ends_everything_of_an_absent_end_point(cloud: Conversation) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)

    cloud.lose(PMU, "c1/e0", "c1/e1")
    cloud.advance(GRACE_NS - 1)
    assert VOLTAGE in cloud.broker.registry.publications
    cloud.advance(NS_PER_S)
    cloud.settle()

    assert PMU not in cloud.broker.registry.endpoints
    assert cloud.notices[CENTRE][0] == Unpublished(
        subscription_id=granted.subscription_id, name=VOLTAGE
    )
    assert not any(router.table.paths for router in cloud.routers.values())
    assert not any(router.table.variables for router in cloud.routers.values())
    refused = refusal(cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,))))
    assert refused.code == NotAttached.code
    (later,) = cloud.attach(PMU, "c1/e0", first_time=False, data_port=0)
    assert later.code == 3


@pytest.mark.feature("S0-34", "S3-35", "S3-39")
def test_detaching_ends_publications_subscriptions_and_channels(cloud: Conversation) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.ask(CENTRE, "c1/e2", subscribe("c1/**"))

    assert cloud.ask(CENTRE, "c1/e2", Detach()) == (DoneOutcome(),)
    assert cloud.broker.registry.subscriptions == {}
    assert cloud.broker.registry.patterns == {}
    assert cloud.ask(PMU, "c1/e0", Detach()) == (DoneOutcome(),)

    assert cloud.broker.registry.endpoints == {}
    assert cloud.broker.registry.publications == {}
    fresh = Conversation().start()
    for name, router in cloud.routers.items():
        assert router.table.digest == fresh.routers[name].table.digest
    assert cloud.detached == []  # An end-point that leaves closes its sessions itself.


def test_what_was_asked_before_leaving_is_refused_when_it_comes_too_late(
    cloud: Conversation,
) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    for name in ("c1/i0", "c1/i1"):
        cloud.routers[name].is_silent = True
    number = cloud.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    cloud.settle()
    cloud.send(CENTRE, "c1/e3", Detach())
    cloud.settle()
    cloud.send(CENTRE, "c1/e3", subscribe(VOLTAGE), request_id=number)  # Repeated meanwhile.
    for name in ("c1/i0", "c1/i1"):
        cloud.confirm(name)
    cloud.settle()

    assert refusal(cloud.answers[CENTRE, number]).code == ShuttingDown.code
    edges = [edge for edge, endpoint, found in cloud.answered_by if found == number]
    assert edges == ["c1/e2", "c1/e3"]


def test_detaching_twice_is_done_twice(cloud: Conversation) -> None:
    cloud.ask(PMU, "c1/e0", Detach())
    assert cloud.ask(PMU, "c1/e0", Detach()) == (DoneOutcome(),)


def test_a_certificate_that_expires_while_attached_stops_new_requests(
    cloud: Conversation,
) -> None:
    del cloud.timers["keys"]  # Fresh seeds of several years would take long.
    cloud.advance(CERTIFICATE_END_S * NS_PER_S - WALL_NS + 1)
    refused = refusal(cloud.ask(PMU, "c1/e0", publish(variable(VOLTAGE))))
    assert refused.code == CertificateRefused.code


def test_a_new_process_may_attach_by_both_edges_although_both_name_it_already(
    cloud: Conversation,
) -> None:
    """A restart while the broker is away: the edges' sessions are the new process's own."""
    for name in cloud.routers:
        cloud.disconnect(name)
        cloud.connect(name)
    outcome = cloud.only(AttachedOutcome, cloud.ask(PMU, "c1/e0", attach(PMU, "c1/e0", "b")))
    assert outcome.code == 3


def test_an_end_point_hears_since_which_request_the_cloud_knows_it(cloud: Conversation) -> None:
    (first,) = cloud.attach("c1/new", "c1/e0")
    assert first.known_since
    cloud.lose("c1/new", "c1/e0")
    (elsewhere,) = cloud.attach("c1/new", "c1/e1", first_time=False)
    assert elsewhere.known_since == first.known_since
    cloud.kill_broker()
    cloud.start()
    (again,) = cloud.attach("c1/new", "c1/e1", first_time=False)
    assert again.known_since == first.known_since

    cloud.lose("c1/new", "c1/e1")
    cloud.advance(GRACE_NS + NS_PER_S)
    cloud.settle()
    (anew,) = cloud.attach("c1/new", "c1/e1", first_time=False)
    assert anew.known_since > first.known_since


def test_who_attaches_and_goes_while_its_farewell_is_being_written_is_forgotten_in_time(
    cloud: Conversation,
) -> None:
    cloud.is_journal_held = True
    cloud.send(PMU, "c1/e0", Detach())
    cloud.send(PMU, "c1/e0", attach(PMU, "c1/e0"))
    cloud.lose(PMU, "c1/e0")
    cloud.is_journal_held = False
    cloud.write()
    assert PMU in cloud.broker.registry.endpoints

    cloud.advance(GRACE_NS + NS_PER_S)
    cloud.settle()
    assert PMU not in cloud.broker.registry.endpoints
