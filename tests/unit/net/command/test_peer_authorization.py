"""Authorization of sessions between peers."""

from __future__ import annotations

import pytest

from gridstat.model.errors import NotAuthorised, WrongCloud
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.peer_authorization import ServerAuthorization

ROOT = ServerAuthorization(
    Identity(Role.BROKER, "root"), frozenset({Role.OPERATOR}), frozenset({"c1", "north"})
)
LEAF = ServerAuthorization(Identity(Role.BROKER, "c1"), frozenset({Role.ROUTER, Role.OPERATOR}))


@pytest.mark.parametrize(
    "identity",
    [
        Identity(Role.BROKER, "c1"),
        Identity(Role.BROKER, "north"),
        Identity(Role.OPERATOR, "root/alice"),
    ],
)
def test_a_broker_lets_in_its_children_and_its_own_operators(identity: Identity) -> None:
    ROOT.check(identity)


def test_a_broker_that_is_no_child_is_told_what_to_declare() -> None:
    with pytest.raises(NotAuthorised, match="not among its children") as found:
        ROOT.check(Identity(Role.BROKER, "c2"))
    assert "[[child]]" in found.value.hint


@pytest.mark.parametrize(
    "identity", [Identity(Role.ROUTER, "c1/e0"), Identity(Role.ENDPOINT, "c1/desk")]
)
def test_a_child_brings_nobody_else_with_it(identity: Identity) -> None:
    with pytest.raises(NotAuthorised):
        ROOT.check(identity)


def test_an_operator_of_a_child_is_not_one_of_its_parent() -> None:
    with pytest.raises(WrongCloud):
        ROOT.check(Identity(Role.OPERATOR, "c1/alice"))


def test_a_broker_without_children_lets_in_no_broker() -> None:
    for name in ("c1", "c2"):
        with pytest.raises(NotAuthorised):
            LEAF.check(Identity(Role.BROKER, name))
