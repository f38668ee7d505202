"""Who may what, for every role, every message type and every set of rules.

The cases come from the message types themselves: a new message or command has to be entered in the
tables below, with the role that may send it and the action that it needs, or the tests fail.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, get_args

import pytest

from gridstat.broker.settings import AccessSettings, BrokerSettings
from gridstat.model.access_rules import ACTIONS, AccessRule
from gridstat.model.errors import NotAuthorised
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.net.command import messages
from gridstat.net.command.endpoint_messages import (
    Attach,
    ChangePublication,
    ChangeSubscription,
    Detach,
    EndPointCommand,
    FindVariables,
    FoundOutcome,
    ListenToFloods,
    Publish,
    RefusedOutcome,
    ReportLedger,
    ResolveName,
    Subscribe,
    Unpublish,
    Unsubscribe,
)
from gridstat.net.command.machine import Close, Connected, Received
from gridstat.net.command.messages import Hello
from gridstat.net.command.operator_messages import RevokeAccess, SetFlooding
from tests.protocol.message_routes import OF_OPERATORS, OF_ROUTERS, OF_SESSIONS, bare
from tests.unit.broker.conversation import Conversation
from tests.unit.broker.stand_ins import (
    CENTRE,
    CLOUD,
    PMU,
    VOLTAGE,
    publish,
    ring,
    subscribe,
    variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gridstat.net.command.endpoint_messages import Outcome

# Roles: which messages a leaf broker takes from whom; the rest is in `test_message_routes.py`.

SENDERS: Final[dict[str, set[Any]]] = {
    "router/c1/e0": OF_ROUTERS,
    "operator/c1/alice": OF_OPERATORS,
    "endpoint/c1/desk": set(),
    "broker/c2": set(),
}
"""Peers of a leaf broker without a parent."""


def wrong_pairs() -> Iterator[tuple[str, type]]:
    for peer, allowed in SENDERS.items():
        for kind in sorted(set(get_args(messages.Message)) - OF_SESSIONS, key=repr):
            if kind not in allowed:
                yield peer, kind


@pytest.mark.parametrize(
    ("peer", "kind"), list(wrong_pairs()), ids=lambda each: getattr(each, "__name__", each)
)
def test_a_message_of_another_role_ends_the_session(peer: str, kind: type) -> None:
    cloud = Conversation().start()
    role, _, name = peer.partition("/")
    if role != "router":
        cloud.tell(Connected(peer, Hello(role=role, name=name, instance="1")))
    before, length = len(cloud.closed), len(cloud.journal)
    cloud.tell(Received(peer, bare(kind)))
    (close,) = cloud.closed[before:]
    assert isinstance(close, Close)
    assert (close.peer, close.code) == (peer, NotAuthorised.code)
    assert len(cloud.journal) == length


# Actions: which rule a command of an end-point needs.

OPEN: Final = ""
"""For commands that give nothing: to come, to go, to end what is one's own, to report, and the
addresses of routers, which an end-point needs before it can attach."""
NEEDS: Final[dict[type, str]] = {
    Attach: OPEN,
    Detach: OPEN,
    Publish: "publish",
    Unpublish: OPEN,
    ChangePublication: "publish",
    Subscribe: "subscribe",
    Unsubscribe: OPEN,
    ChangeSubscription: "subscribe",
    FindVariables: "find",
    ResolveName: OPEN,
    ReportLedger: OPEN,
    ListenToFloods: "flood",
}
OTHER: Final = "c1/south/pmu"
HELD: Final = "held"


def test_every_command_of_an_end_point_has_an_entry() -> None:
    assert set(get_args(EndPointCommand)) == NEEDS.keys()


def command_of(kind: type, cloud: Conversation) -> tuple[str, str, Any]:
    """Return end-point, edge and a command of a type that would be done if rules allowed it."""
    faster = ModalQos({0: QosRequest(every=2)})
    taken = next(iter(cloud.broker.registry.subscriptions), 0)
    commands: dict[type, tuple[str, str, Any]] = {
        Publish: (PMU, "c1/e0", publish(variable(f"{PMU}/current"))),
        ChangePublication: (
            PMU,
            "c1/e0",
            ChangePublication(name=VOLTAGE, period=Period(1, 30)),
        ),
        Subscribe: (CENTRE, "c1/e2", subscribe(VOLTAGE)),
        ChangeSubscription: (
            CENTRE,
            "c1/e2",
            ChangeSubscription(subscription_id=taken, qos=faster),
        ),
        FindVariables: (CENTRE, "c1/e2", FindVariables(pattern=VOLTAGE)),
        ListenToFloods: (CENTRE, "c1/e2", ListenToFloods(data_port=9, urgent_port=10)),
        Unpublish: (PMU, "c1/e0", Unpublish(names=(VOLTAGE,))),
        Unsubscribe: (CENTRE, "c1/e2", Unsubscribe()),
        ResolveName: (CENTRE, "c1/e2", ResolveName(name="c1/e0")),
        ReportLedger: (CENTRE, "c1/e2", ReportLedger(entries=())),
        Detach: (CENTRE, "c1/e2", Detach()),
    }
    return commands[kind]


def cloud_with(*rules: AccessRule) -> Conversation:
    """A cloud with a publication and a contract, and from then on with these rules alone."""
    held = AccessRule(HELD, "**", ACTIONS, "**", priority_best=1)
    cloud = Conversation(ring())
    access = AccessSettings((held, *rules), is_enforced=True)
    cloud.settings = BrokerSettings(CLOUD, access=access)
    cloud.broker = cloud.new_broker()
    cloud.start()
    cloud.attach(PMU, "c1/e0", data_port=0)
    cloud.attach(CENTRE, "c1/e2")
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    return cloud


def is_refused(outcomes: Sequence[Outcome]) -> bool:
    """Return whether a rule refuses a command; another error would be a mistake of the test."""
    assert outcomes
    refused = [each for each in outcomes if isinstance(each, RefusedOutcome)]
    for each in refused:
        assert each.code == NotAuthorised.code, each
        assert each.reason.startswith("rule access: "), each
        assert "gridstat access grant" in each.hint, each
    return bool(refused)


def asked(kind: type, *rules: AccessRule) -> bool:
    """Return whether a command is refused in a cloud in which only these rules are left.

    The wide rule is taken away inside the broker alone, so that what rests on it stays and a change
    of it can be asked for.
    """
    cloud = cloud_with(*rules)
    cloud.broker.permissions.rules.discard(HELD)
    return is_refused(cloud.ask(*command_of(kind, cloud)))


def subsets() -> list[tuple[str, ...]]:
    return [some for size in range(5) for some in combinations(ACTIONS, size)]


ASKED: Final = [kind for kind in NEEDS if kind is not Attach]


@pytest.mark.parametrize("may", subsets(), ids=lambda some: "+".join(some) or "nothing")
@pytest.mark.parametrize("kind", ASKED, ids=lambda kind: kind.__name__)
def test_a_command_is_done_if_and_only_if_its_action_is_allowed(
    kind: type, may: tuple[str, ...]
) -> None:
    rules = (AccessRule("some", "c1/**", may, "**"),) if may else ()
    needed = NEEDS[kind]
    assert asked(kind, *rules) == (needed != OPEN and needed not in may)


@pytest.mark.parametrize("kind", [kind for kind in ASKED if NEEDS[kind]], ids=lambda k: k.__name__)
@pytest.mark.parametrize(
    ("who", "what", "is_allowed"),
    [
        ("c1/*/*", "**", True),
        ("**", "**", True),
        (OTHER, "**", False),
        ("c2/**", "**", False),
        ("c1/*", "**", False),
        ("c1/**", "c1/south/**", False),
        ("c1/**", "c2/**", False),
    ],
)
def test_a_rule_for_others_or_for_other_names_allows_nothing(
    kind: type, who: str, what: str, *, is_allowed: bool
) -> None:
    assert asked(kind, AccessRule("some", who, ACTIONS, what)) == (not is_allowed)


@pytest.mark.parametrize("kind", [kind for kind in ASKED if NEEDS[kind]], ids=lambda k: k.__name__)
def test_a_rule_that_is_revoked_allows_nothing_more(kind: type) -> None:
    cloud = cloud_with(AccessRule("some", "c1/**", ACTIONS, "**"))
    for identifier in (HELD, "some"):
        command = RevokeAccess(request_id=1, identifier=identifier)
        cloud.tell(Received("operator/c1/alice", command))
        cloud.settle()
    assert cloud.broker.registry.publications == {}
    assert cloud.broker.registry.subscriptions == {}
    if kind not in {ChangePublication, ChangeSubscription}:  # There is nothing left to change.
        assert is_refused(cloud.ask(*command_of(kind, cloud)))


def test_to_attach_needs_a_certificate_and_no_rule_and_gives_nothing() -> None:
    cloud = Conversation(ring())
    cloud.settings = BrokerSettings(CLOUD, access=AccessSettings(is_enforced=True))
    cloud.broker = cloud.new_broker()
    cloud.start()
    assert cloud.attach(CENTRE, "c1/e2")
    for kind in (Publish, Subscribe, FindVariables, ListenToFloods):
        who, edge, command = command_of(kind, cloud)
        cloud.attach(PMU, "c1/e0", data_port=0)
        assert is_refused(cloud.ask(who, edge, command)), kind


def test_who_does_not_listen_to_floods_is_told_no_flooded_name() -> None:
    cloud = cloud_with(AccessRule("floods", "c1/desk/**", ("flood",), "**"))
    cloud.tell(Received("operator/c1/alice", SetFlooding(request_id=1, name=VOLTAGE)))
    cloud.settle()
    cloud.broker.permissions.rules.discard(HELD)
    (found,) = cloud.ask(CENTRE, "c1/e2", ListenToFloods(data_port=0, urgent_port=0))
    assert isinstance(found, FoundOutcome)
    assert found.variables == ()
