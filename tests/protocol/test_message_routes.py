"""Who may send which message to whom, for every receiver, every sender and every message.

The cases come from the message types: a new message needs a route in `message_routes.py`, and a
receiver that takes a message has to have that route. Whatever has none changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args

import pytest

from gridstat.broker.context import Outside
from gridstat.broker.records.journal import Journal
from gridstat.broker.requests.queries import NameService
from gridstat.broker.settings import BrokerSettings
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.console.daemons import broker_daemon, router_daemon, tree_daemon
from gridstat.console.daemons.broker_service import (
    STANDING_BY,
    ServiceCallbacks,
    serve_until_stopped,
)
from gridstat.console.operator_session import OperatorMachine
from gridstat.model.errors import LayoutError, NotAuthorised, WrongCloud
from gridstat.net.command import messages
from gridstat.net.command.frames import decode_outcomes, encode_body
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.machine import (
    Close,
    Connected,
    Note,
    Persist,
    Persisted,
    Received,
    Send,
    SetTimer,
)
from gridstat.net.command.peer_authorization import ClientAuthorization, ServerAuthorization
from gridstat.net.command.tree_messages import JoinTree, TreeJoined
from tests.protocol.message_routes import (
    BROKER,
    CHILD,
    COMMANDS,
    EDGE,
    END_POINT,
    EVERYTHING,
    INNER,
    LEAF,
    NAMES,
    OF_OPERATORS,
    OF_SESSIONS,
    OPERATOR,
    PARENT,
    QOS,
    ROUTER,
    ROUTES,
    STRANGER,
    Route,
    bare,
    plain,
    wrong_messages,
)
from tests.protocol.router_conversation import RouterConversation
from tests.unit.broker.conversation import Conversation
from tests.unit.broker.stand_ins import CLOUD, PlainVerifier
from tests.unit.broker.tree.tree_world import hello
from tests.unit.console.daemons.test_stand_by import SharedRows, SharedStore
from tests.unit.endpoint.scripted_cloud import ScriptedCloud

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gridstat.net.command.machine import Event

REFUSED: Final = "refused"
IGNORED: Final = "ignored"


class Receiver:
    """A receiver with its sessions open; `outcome` says what became of a message."""

    peers: ClassVar[dict[str, str]]
    """Peers by what they are to this receiver."""

    def outcome(self, peer: str, message: Any) -> str:
        raise NotImplementedError


class Leaf(Receiver):
    """A leaf broker below a parent, with routers in step."""

    peers: ClassVar[dict[str, str]] = {
        ROUTER: "router/c1/e0",
        PARENT: "broker/root",
        OPERATOR: "operator/c1/alice",
        END_POINT: "endpoint/c1/desk",
        STRANGER: "broker/c2",
    }

    def __init__(self) -> None:
        self.cloud = Conversation(settings=BrokerSettings(CLOUD, parent="root")).start()
        for sender, peer in self.peers.items():
            if sender != ROUTER:
                self.cloud.tell(Connected(peer, hello(peer)))
        place = TreeJoined(term=1, depth=1, above=("root",))
        self.cloud.tell(Received(self.peers[PARENT], place))
        self.cloud.settle()

    def outcome(self, peer: str, message: Any) -> str:
        before, length = len(self.cloud.closed), len(self.cloud.journal)
        notes = len(self.cloud.notes)
        self.cloud.tell(Received(peer, message))
        assert len(self.cloud.journal) == length
        return outcome_of(self.cloud.closed[before:], self.cloud.notes[notes:], peer)


class Qos(Receiver):
    """A broker between a root and a cloud, whose writes are done at once."""

    peers: ClassVar[dict[str, str]] = {
        PARENT: "broker/root",
        CHILD: "broker/c1",
        OPERATOR: "operator/west/alice",
        ROUTER: "router/c1/e0",
        END_POINT: "endpoint/c1/desk",
        STRANGER: "broker/c9",
    }

    def __init__(self) -> None:
        settings = TreeSettings("west", parent="root")
        self.broker = QosBroker(settings, Outside(PlainVerifier(), lambda: 0), ["c1"], [])
        self.written = 0
        self._carried(self.broker.start(0))
        for peer in self.peers.values():
            self.tell(Connected(peer, hello(peer)))
        self.tell(Received(self.peers[PARENT], TreeJoined(term=1, depth=1, above=("root",))))
        join = JoinTree(term=1, clouds=("c1",), height=0)
        self.tell(Received(self.peers[CHILD], join))

    def tell(self, event: Event) -> list[Any]:
        return self._carried(self.broker.handle(event, 0))

    def _carried(self, instructions: list[Any]) -> list[Any]:
        done = list(instructions)
        for each in instructions:
            if isinstance(each, Persist):
                self.written += 1
                done += self.tell(Persisted(each.token))
        return done

    def outcome(self, peer: str, message: Any) -> str:
        before = self.written
        said = self.tell(Received(peer, message))
        assert self.written == before
        closed = [each for each in said if isinstance(each, Close)]
        return outcome_of(closed, [each for each in said if isinstance(each, Note)], peer)


class Router(Receiver):
    """A router that a broker has accepted."""

    peers: ClassVar[dict[str, str]] = {
        BROKER: "broker/c1",
        END_POINT: "endpoint/c1/desk",
        OPERATOR: "operator/c1/alice",
        ROUTER: "router/c1/e9",
        STRANGER: "broker/c2",
    }

    def __init__(self, *, is_edge: bool) -> None:
        self.router = RouterConversation(is_edge=is_edge)
        self.router.accept()
        for sender, peer in self.peers.items():
            if sender != BROKER:
                self.router.connect(peer)

    def outcome(self, peer: str, message: Any) -> str:
        agent = self.router.agent
        before = (agent.table.digest, agent.term, agent.is_accepted)
        said = self.router.hear(peer, message)
        assert (agent.table.digest, agent.term, agent.is_accepted) == before
        closed = [each for each in said if isinstance(each, Close)]
        rest = [each for each in said if not isinstance(each, Close)]
        return outcome_of(closed, rest, peer)


class EndPoint(Receiver):
    """An end-point with one edge router."""

    peers: ClassVar[dict[str, str]] = {
        EDGE: "router/c1/e0",
        ROUTER: "router/c1/e9",
        BROKER: "broker/c1",
        OPERATOR: "operator/c1/alice",
        END_POINT: "endpoint/c1/desk",
    }

    def __init__(self) -> None:
        self.cloud = ScriptedCloud()
        for peer in self.peers.values():
            self.cloud.handle(Connected(peer, hello(peer)))

    def outcome(self, peer: str, message: Any) -> str:
        before = self.cloud.session.attached_edges
        said = self.cloud.handle(Received(peer, message))
        assert self.cloud.session.attached_edges == before
        assert all(isinstance(each, Note | SetTimer) for each in said), said
        return IGNORED


class Operator(Receiver):
    """An operator's session with a question that waits."""

    peers: ClassVar[dict[str, str]] = {BROKER: "broker/c1"}

    def __init__(self) -> None:
        self.machine = OperatorMachine(Identity(Role.BROKER, "c1"))
        self.machine.handle(Connected("broker/c1", hello("broker/c1")), 0)
        self.loop = asyncio.new_event_loop()
        self.machine.waiting[1] = self.loop.create_future()

    def outcome(self, peer: str, message: Any) -> str:
        try:
            assert self.machine.handle(Received(peer, message), 0) == []
            assert not self.machine.waiting[1].done()
        finally:
            self.loop.close()
        return IGNORED


class Names(Receiver):
    """The name service of a cloud."""

    peers: ClassVar[dict[str, str]] = {
        ROUTER: "router/c1/e0",
        END_POINT: "endpoint/c1/desk",
        OPERATOR: "operator/c1/alice",
    }

    def __init__(self) -> None:
        self.service = NameService(Conversation().start().broker.registry)

    def outcome(self, peer: str, message: Any) -> str:
        assert self.service.handle(Received(peer, message), 0) == []
        return IGNORED


RECEIVERS: Final[dict[str, Callable[[], Receiver]]] = {
    LEAF: Leaf,
    QOS: Qos,
    INNER: lambda: Router(is_edge=False),
    EDGE: lambda: Router(is_edge=True),
    END_POINT: EndPoint,
    OPERATOR: Operator,
    NAMES: Names,
}
DENIALS: Final = {LEAF: {REFUSED}, QOS: {REFUSED, IGNORED}}
"""What a receiver does with what nobody may send; the others ignore it or close the session."""


def outcome_of(closed: list[Close], rest: list[Any], peer: str) -> str:
    """Return what became of a message that nobody may send; anything else is a mistake."""
    assert all(isinstance(each, Note) for each in rest), rest
    if not closed:
        return IGNORED
    (close,) = closed
    assert (close.peer, close.code) == (peer, NotAuthorised.code), close
    return REFUSED


def peers_of(receiver: str) -> dict[str, str]:
    made = RECEIVERS[receiver]
    if isinstance(made, type) and issubclass(made, Receiver):
        return made.peers
    return Router.peers


def all_routes() -> Iterator[Route]:
    for receiver in RECEIVERS:
        for sender in peers_of(receiver):
            yield Route(sender, receiver)


def denied() -> Iterator[tuple[Route, type]]:
    for route in all_routes():
        for kind in wrong_messages(route):
            yield route, kind


# The table itself.


def test_every_message_has_a_route() -> None:
    assert set().union(OF_SESSIONS, *ROUTES.values()) == EVERYTHING


def test_every_route_is_between_parties_that_are_tested() -> None:
    assert ROUTES.keys() <= set(all_routes())


def test_every_message_says_from_which_schema_on_it_is_known() -> None:
    assert all(1 <= kind.since <= messages.SCHEMA_VERSION for kind in EVERYTHING)


# Whatever has no route changes nothing.


@pytest.mark.parametrize(
    ("route", "kind"), list(denied()), ids=lambda each: getattr(each, "__name__", str(each))
)
def test_a_message_without_a_route_changes_nothing(route: Route, kind: type) -> None:
    receiver = RECEIVERS[route.receiver]()
    outcome = receiver.outcome(peers_of(route.receiver)[route.sender], bare(kind))
    assert outcome in DENIALS.get(route.receiver, {REFUSED, IGNORED})


# Whatever has one is handled.


def test_brokers_handle_exactly_the_messages_that_have_a_route() -> None:
    leaf = Conversation().broker._capabilities
    qos = Qos().broker.parts.capabilities
    begins = {JoinTree, TreeJoined}
    assert leaf.router_messages.keys() == ROUTES[Route(ROUTER, LEAF)]
    assert leaf.parent_messages.keys() == ROUTES[Route(PARENT, LEAF)] - begins
    assert qos.parent_messages.keys() == ROUTES[Route(PARENT, QOS)] - begins
    assert qos.child_messages.keys() == ROUTES[Route(CHILD, QOS)] - begins


def handled() -> Iterator[tuple[Route, type]]:
    for route in (
        Route(BROKER, INNER),
        Route(BROKER, EDGE),
        Route(END_POINT, EDGE),
        Route(EDGE, END_POINT),
    ):
        for kind in sorted(ROUTES[route], key=lambda each: each.__name__):
            yield route, kind


@pytest.mark.parametrize(
    ("route", "kind"), list(handled()), ids=lambda each: getattr(each, "__name__", str(each))
)
def test_a_message_with_a_route_is_handled(route: Route, kind: type) -> None:
    receiver, peer = RECEIVERS[route.receiver](), peers_of(route.receiver)[route.sender]
    if isinstance(receiver, EndPoint):
        assert receiver.cloud.handle(Received(peer, plain(kind)))
        return
    assert isinstance(receiver, Router)
    said = receiver.router.hear(peer, plain(kind))
    assert not [each for each in said if isinstance(each, Close)]
    notes = {each.word for each in said if isinstance(each, Note)}
    assert not notes & {"unexpected_message", "order_for_an_edge", "order_before_acceptance"}


def test_an_operator_and_the_name_service_handle_theirs() -> None:
    async def asked() -> dict[str, Any]:
        machine = OperatorMachine(Identity(Role.BROKER, "c1"))
        machine.waiting[1] = asyncio.get_running_loop().create_future()
        machine.handle(
            Received("broker/c1", messages.OperatorAnswer(request_id=1, facts={"a": 1})), 0
        )
        return await machine.waiting[1]

    assert asyncio.run(asked()) == {"a": 1}
    service = Names().service
    submit = messages.Submit(
        request_id=1, body=encode_body(messages.ResolveName(name="c1/e0")), signature=b""
    )
    (answer,) = service.handle(Received("operator/c1/alice", submit), 0)
    assert isinstance(answer, Send)
    assert isinstance(answer.message, messages.Answer)
    (outcome,) = decode_outcomes(answer.message.body).outcomes
    assert isinstance(outcome, messages.ResolvedOutcome)


@pytest.mark.parametrize(
    "kind",
    sorted(
        set(get_args(messages.EndPointCommand)) - {messages.ResolveName},
        key=attrgetter("__name__"),
    ),
    ids=attrgetter("__name__"),
)
def test_the_name_service_answers_names_only(kind: type) -> None:
    submit = messages.Submit(request_id=1, body=encode_body(plain(kind)), signature=b"")
    (answer,) = Names().service.handle(Received("operator/c1/alice", submit), 0)
    assert isinstance(answer, Send)
    assert isinstance(answer.message, messages.Answer)
    (outcome,) = decode_outcomes(answer.message.body).outcomes
    assert isinstance(outcome, messages.RefusedOutcome)
    assert outcome.code == NotAuthorised.code


# Commands of operators.


def test_every_command_is_supported_by_a_broker() -> None:
    assert set().union(*COMMANDS.values()) == OF_OPERATORS
    assert Conversation().broker._capabilities.operator_commands.keys() == COMMANDS[LEAF]
    assert Qos().broker.parts.capabilities.operator_commands.keys() == COMMANDS[QOS]


def unsupported() -> Iterator[tuple[str, type]]:
    for broker, known in COMMANDS.items():
        for kind in sorted(OF_OPERATORS - known, key=lambda each: each.__name__):
            yield broker, kind


@pytest.mark.parametrize(
    ("broker", "kind"), list(unsupported()), ids=lambda each: getattr(each, "__name__", each)
)
def test_a_command_to_the_wrong_kind_of_broker_is_refused_in_words(broker: str, kind: type) -> None:
    command = bare(kind)
    if broker == LEAF:
        leaf = Leaf()
        leaf.cloud.tell(Received(Leaf.peers[OPERATOR], command))
        answer = leaf.cloud.operator_answers[-1]
    else:
        (said,) = Qos().tell(Received(Qos.peers[OPERATOR], command))
        answer = said.message
    assert answer.refused is not None
    assert answer.refused.code == LayoutError.code
    assert "send the command to" in answer.refused.hint


# A process that stands by takes no message at all: it listens from the moment when it is in charge.


def test_a_stand_by_does_not_begin_to_listen() -> None:
    held = SharedRows(is_held_for=1_000_000)
    made: list[StandBy] = []

    def make() -> StandBy:
        made.append(StandBy(Journal(SharedStore(held, {}))))
        return made[-1]

    lines: list[dict[str, Any]] = []

    def told(line: dict[str, Any]) -> None:
        lines.append(line)
        os.kill(os.getpid(), signal.SIGTERM)

    callbacks = ServiceCallbacks("c1", "managing cloud c1", told, pytest.fail)
    asyncio.run(serve_until_stopped(make, callbacks))
    assert lines == [{"state": STANDING_BY, "broker": "c1"}]
    assert [one.has_started for one in made] == [False]


class StandBy:
    """A broker whose lease another holds; `has_started` is whether it would listen."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.broker = Conversation().broker
        self.has_started = False

    async def start(self) -> dict[str, Any]:
        self.has_started = True
        return {}

    def reload(self) -> str:
        return ""

    async def close(self) -> None:
        self.journal.close()


# Sessions: who may open one, before any message.

LISTENERS: Final[dict[str, tuple[ServerAuthorization, set[Role]]]] = {
    LEAF: (
        ServerAuthorization(Identity(Role.BROKER, "c1"), frozenset(broker_daemon.SERVED)),
        {Role.ROUTER, Role.OPERATOR},
    ),
    NAMES: (
        ServerAuthorization(Identity(Role.BROKER, "c1"), frozenset(broker_daemon.NAMES_SERVED)),
        {Role.ROUTER, Role.ENDPOINT, Role.OPERATOR},
    ),
    QOS: (
        ServerAuthorization(Identity(Role.BROKER, "c1"), frozenset(tree_daemon.SERVED), ("c9",)),
        {Role.OPERATOR},
    ),
    EDGE: (
        ServerAuthorization(Identity(Role.ROUTER, "c1/e0"), frozenset(router_daemon.SERVED)),
        {Role.ENDPOINT},
    ),
}
"""Listeners with the roles that may open a session; a broker above clouds lets its children in."""


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("role", Role)
def test_a_listener_lets_in_the_roles_that_are_stated_and_of_its_own_cloud(
    listener: str, role: Role
) -> None:
    authorization, allowed = LISTENERS[listener]
    own = Identity(role, "c1/party")
    if role in allowed:
        authorization.check(own)
    else:
        with pytest.raises(NotAuthorised):
            authorization.check(own)
    with pytest.raises((NotAuthorised, WrongCloud)):
        authorization.check(Identity(role, "c2/party"))


def test_who_dials_talks_to_nobody_but_whom_it_dialled() -> None:
    broker = Identity(Role.BROKER, "c1")
    ClientAuthorization(broker).check(broker)
    for role in Role:
        with pytest.raises(NotAuthorised):
            ClientAuthorization(broker).check(Identity(role, "c1/other"))
