"""Requests that name an undefined mode: they are refused, and nothing is charged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.settings import BrokerSettings
from gridstat.model.errors import ModeNotDefined
from gridstat.model.flooding import FloodTerm
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    GrantedOutcome,
    Subscribe,
    SubscriptionRequest,
)
from gridstat.net.command.operator_messages import Explain, ListFlooding, Survey
from gridstat.net.command.segment_messages import NotReserved, Reserved
from gridstat.net.command.tree_messages import (
    CommitFlooding,
    FloodingRefused,
    FloodingReserved,
    ReserveFlooding,
)
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.floods.flooded_cloud import (
    Parent,
    charges,
    cloud_of,
    flood,
    no,
    operate,
    stop,
)
from tests.unit.broker.segments.family import EXITS, family, quality
from tests.unit.broker.stand_ins import CENTRE, CLOUD, EVERY_MODE, VOLTAGE

if TYPE_CHECKING:
    from gridstat.broker.floods.leaf_flooding import FloodingOrder
    from gridstat.net.command.endpoint_messages import Outcome, RefusedOutcome

NONE: frozenset[int] = frozenset()
DEFINED = BrokerSettings(CLOUD, modes_defined=frozenset({1, 2}))
IN_THREE = ModalQos({0: QosRequest(), 3: QosRequest(every=2)})
HINT = "defined: none yet besides the baseline; leave `modes` out"


@pytest.fixture
def cloud() -> Conversation:
    """Cloud as a daemon sets it up, without a defined mode."""
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    return found


def ask(cloud: Conversation, qos: ModalQos, name: str = VOLTAGE) -> tuple[Outcome, ...]:
    request = SubscriptionRequest(name=name, qos=qos)
    return cloud.ask(CENTRE, "c1/e2", Subscribe(subscriptions=(request,)))


def check(refused: RefusedOutcome) -> None:
    assert (refused.code, refused.reason) == (ModeNotDefined.code, "mode 3 is not defined")
    assert refused.hint == HINT


@pytest.mark.parametrize("name", [VOLTAGE, "c1/*/pmu/voltage"], ids=["by name", "by pattern"])
def test_a_subscription_in_an_undefined_mode_is_refused_and_charges_nothing(
    cloud: Conversation, name: str
) -> None:
    before = charges(cloud)
    check(refusal(ask(cloud, IN_THREE, name)))
    check(refusal(ask(cloud, ModalQos({3: QosRequest()}), name)))
    registry = cloud.broker.registry
    assert (registry.subscriptions, registry.patterns) == ({}, {})
    assert charges(cloud) == before


def test_all_undefined_modes_are_named(cloud: Conversation) -> None:
    qos = ModalQos(dict.fromkeys((0, 7, 3), QosRequest()))
    assert refusal(ask(cloud, qos)).reason == "modes 3, 7 are not defined"


def test_of_several_subscriptions_only_that_in_an_undefined_mode_is_refused(
    cloud: Conversation,
) -> None:
    wanted = tuple(SubscriptionRequest(name=VOLTAGE, qos=qos) for qos in (ModalQos(), IN_THREE))
    first, second = cloud.ask(CENTRE, "c1/e2", Subscribe(subscriptions=wanted))
    assert isinstance(first, GrantedOutcome)
    check(refusal((second,)))


def test_a_change_to_an_undefined_mode_leaves_the_subscription_as_it_was(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    before = charges(cloud)
    command = ChangeSubscription(subscription_id=granted.subscription_id, qos=IN_THREE)
    check(refusal(cloud.ask(CENTRE, "c1/e2", command)))
    assert charges(cloud) == before
    record = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert set(record.granted) == {0}


def test_a_defined_mode_is_granted_and_the_refusal_names_those_that_are() -> None:
    cloud = pair(settings=DEFINED)
    cloud.publish(VOLTAGE, "c1/e0")
    (granted,) = ask(cloud, ModalQos({0: QosRequest(every=4), 2: QosRequest()}))
    assert isinstance(granted, GrantedOutcome)
    assert set(granted.granted) == {0, 2}
    refused = refusal(ask(cloud, IN_THREE))
    assert refused.code == ModeNotDefined.code
    assert refused.hint == "defined: 1, 2; name those, or leave `modes` out"


# Floods.


def test_an_operator_cannot_flood_in_an_undefined_mode() -> None:
    cloud = cloud_of(modes_defined=NONE)
    before = charges(cloud)
    check(no(flood(cloud, 3)))
    assert cloud.broker.floods.variables == {}
    assert charges(cloud) == before
    assert flood(cloud).refused is None


@pytest.mark.parametrize("is_committed", [False, True], ids=["reserve", "commit"])
def test_a_parent_is_refused_a_flood_in_an_undefined_mode(*, is_committed: bool) -> None:
    cloud = cloud_of(parent="root", modes_defined=NONE)
    parent = Parent(cloud)
    before = charges(cloud)
    wanted = parent.wants(1, {0: FloodTerm(0), 3: FloodTerm(0)})
    word: FloodingOrder = ReserveFlooding(term=1, flooded=wanted)
    if is_committed:
        word = CommitFlooding(term=1, flooded=(wanted,))
    parent.says(word)
    (told,) = parent.told()
    assert isinstance(told, FloodingRefused)
    check(told.refused)
    assert charges(cloud) == before
    parent.says(ReserveFlooding(term=1, flooded=parent.wants(2, {0: FloodTerm(0)})))
    assert parent.told() == [FloodingReserved(term=1, name=VOLTAGE, generation=2)]


# Segments of contracts between clouds.


def test_a_parent_is_refused_a_segment_in_an_undefined_mode() -> None:
    cloud = family()
    variable = cloud.publish(VOLTAGE, "c1/e0")
    before = charges(cloud)
    granted = quality() | {3: quality()[0]}
    cloud.reserve("c2#1", variable=variable, exits=EXITS[:1], granted=granted)
    check(cloud.last(NotReserved).refused)
    assert charges(cloud) == before


def test_a_contract_of_an_older_release_is_planned_anew_in_its_modes() -> None:
    cloud = family()
    variable = cloud.publish(VOLTAGE, "c1/e0")
    granted = quality() | {3: quality()[0]}
    cloud.reserve(
        "c2#1", variable=variable, generation=1, exits=EXITS[:1], granted=granted, replaces=0
    )
    assert cloud.last(Reserved).contract == "c2#1"
    more = granted | {4: quality()[0]}
    cloud.reserve(
        "c2#1", variable=variable, generation=2, exits=EXITS[:1], granted=more, replaces=1
    )
    assert cloud.last(NotReserved).refused.reason == "mode 4 is not defined"


# Journals of a release that granted any mode.


def restarted(cloud: Conversation) -> Conversation:
    """The same journal under a broker that defines no mode, as after an upgrade."""
    cloud.settings = replace(cloud.settings, modes_defined=NONE)
    cloud.kill_broker()
    cloud.start()
    return cloud


def test_old_contracts_in_undefined_modes_stay_and_are_reported() -> None:
    cloud = pair(settings=replace(DEFINED, modes_defined=EVERY_MODE))
    cloud.publish(VOLTAGE, "c1/e0")
    (granted,) = ask(cloud, IN_THREE)
    assert isinstance(granted, GrantedOutcome)
    (pattern,) = ask(cloud, IN_THREE, "c1/none/*")
    assert isinstance(pattern, GrantedOutcome)
    before = charges(cloud)
    restarted(cloud)
    record = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert set(record.granted) == {0, 3}
    assert charges(cloud) == before
    (note,) = [note for note in cloud.notes if note.word == "modes_not_defined"]
    assert note.is_warning
    assert dict(note.facts) == {"modes": "3", "subscriptions": 1, "patterns": 1, "floods": 0}
    assert operate(cloud, Survey(request_id=1)).facts["totals"]["in_undefined_modes"] == 2
    (explained,) = operate(cloud, Explain(request_id=2, name=VOLTAGE)).facts["subscriptions"]
    assert explained["degraded"] == ["mode 3 is not defined: what was granted for it never counts"]


def test_an_old_pattern_in_an_undefined_mode_catches_nothing_new() -> None:
    cloud = pair(settings=replace(DEFINED, modes_defined=EVERY_MODE))
    (pattern,) = ask(cloud, IN_THREE, "c1/*/pmu/voltage")
    assert isinstance(pattern, GrantedOutcome)
    restarted(cloud)
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.settle()
    assert cloud.broker.registry.subscriptions == {}
    (note,) = [note for note in cloud.notes if note.word == "pattern_refused"]
    assert "mode 3 is not defined (1107)" in str(note.facts)


def test_an_old_flood_in_an_undefined_mode_is_listed_as_such_and_can_be_stopped() -> None:
    cloud = cloud_of()
    assert flood(cloud, 3).refused is None
    restarted(cloud)
    (listed,) = operate(cloud, ListFlooding(request_id=3)).facts["floods"]
    assert [(term["mode"], term["is_defined"]) for term in listed["modes"]] == [(3, False)]
    assert flood(cloud).refused is None
    assert stop(cloud, 3).refused is None
    (listed,) = operate(cloud, ListFlooding(request_id=4)).facts["floods"]
    assert [(term["mode"], term["is_defined"]) for term in listed["modes"]] == [(0, True)]


def test_a_cloud_without_undefined_modes_warns_of_nothing() -> None:
    cloud = pair(settings=DEFINED)
    cloud.publish(VOLTAGE, "c1/e0")
    (granted,) = ask(cloud, ModalQos({0: QosRequest(every=4), 2: QosRequest()}))
    assert isinstance(granted, GrantedOutcome)
    cloud.kill_broker()
    cloud.start()
    assert not [note for note in cloud.notes if note.is_warning]
    assert operate(cloud, Survey(request_id=1)).facts["totals"]["in_undefined_modes"] == 0
