"""The name service: a router's address by its name, for anybody, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from gridstat.broker.requests.queries import NameService
from gridstat.model.errors import LinkDown, MalformedFrame, NoSuchRouter, NotAuthorised
from gridstat.net.command.endpoint_messages import (
    Answer,
    Outcome,
    Outcomes,
    RefusedOutcome,
    ResolvedOutcome,
    ResolveName,
    Submit,
    Unsubscribe,
)
from gridstat.net.command.machine import Disconnected, Received, Send
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import PMU


@pytest.fixture
def cloud() -> Conversation:
    return pair()


def ask(service: NameService, body: bytes) -> Outcome:
    message = Submit(request_id=9, body=body, signature=b"")
    (said,) = service.handle(Received("endpoint/c1/new", message), 0)
    assert isinstance(said, Send)
    assert isinstance(said.message, Answer)
    assert (said.peer, said.message.request_id) == ("endpoint/c1/new", 9)
    (outcome,) = msgspec.msgpack.decode(said.message.body, type=Outcomes).outcomes
    return outcome


def resolve(service: NameService, name: str) -> Outcome:
    return ask(service, msgspec.msgpack.encode(ResolveName(name=name)))


@pytest.mark.feature("S3-49")
def test_a_router_is_found_by_its_hierarchical_name_also_after_it_moved(
    cloud: Conversation,
) -> None:
    service = NameService(cloud.broker.registry)
    router = cloud.routers["c1/e0"]
    assert resolve(service, "c1/e0") == ResolvedOutcome(host="10.0.0.1", port=router.port + 2)

    cloud.disconnect("c1/e0")
    router.crash()
    cloud.connect("c1/e0")
    assert resolve(service, "c1/e0") == ResolvedOutcome(host="10.0.0.1", port=router.port + 2)


@pytest.mark.feature("S3-49")
def test_names_survive_a_restart_of_the_broker(cloud: Conversation) -> None:
    before = resolve(NameService(cloud.broker.registry), "c1/e0")
    cloud.kill_broker()
    assert resolve(NameService(cloud.broker.registry), "c1/e0") == before


def test_end_points_ask_for_names_by_way_of_their_edge_too(cloud: Conversation) -> None:
    outcomes = cloud.ask(PMU, "c1/e0", ResolveName(name="c1/e1"))
    assert outcomes == (ResolvedOutcome(host="10.0.0.1", port=cloud.routers["c1/e1"].port + 2),)


def test_the_broker_itself_is_found_by_the_name_of_its_cloud(cloud: Conversation) -> None:
    service = NameService(cloud.broker.registry)
    service.listen_at("10.0.0.9", 4_000)
    assert resolve(service, "c1") == ResolvedOutcome(host="10.0.0.9", port=4_000)


def test_an_unknown_or_silent_name_is_refused_with_its_code() -> None:
    cloud = Conversation()
    service = NameService(cloud.broker.registry)
    for name, code in (("c1/x", NoSuchRouter.code), ("c1/e0", LinkDown.code)):
        refused = resolve(service, name)
        assert isinstance(refused, RefusedOutcome)
        assert refused.code == code


def test_anything_but_a_name_is_refused(cloud: Conversation) -> None:
    service = NameService(cloud.broker.registry)
    for body, code in (
        (msgspec.msgpack.encode(Unsubscribe()), NotAuthorised.code),
        (b"\xc1", MalformedFrame.code),
    ):
        refused = ask(service, body)
        assert isinstance(refused, RefusedOutcome)
        assert refused.code == code
    assert service.handle(Disconnected("endpoint/c1/new"), 0) == []


@pytest.mark.parametrize("name", [b"\xa2\xff\xfe", b"\x91" * 200_000 + b"\xc0"])
def test_hostile_bytes_are_refused_as_malformed(cloud: Conversation, name: bytes) -> None:
    head = b"\x82\xa4type\xabResolveName\xa4name"
    refused = ask(NameService(cloud.broker.registry), head + name)
    assert isinstance(refused, RefusedOutcome)
    assert refused.code == MalformedFrame.code
