"""A broker killed anywhere: every prefix of its journal leads exactly to what it had acknowledged.

Seeded lives of a cloud are lived once; then a new broker is restored from each prefix that the
disk can hold, and compared with what the first one was when it had written that prefix.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import (
    AttachedOutcome,
    GrantedOutcome,
    Outcomes,
    PublishedOutcome,
)
from tests.protocol.broker_scripts import Script

if TYPE_CHECKING:
    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.broker.records.registry import EndPoint
    from tests.unit.broker.conversation import Conversation

STEPS = 80


def durable_of(broker: LeafBroker) -> dict[str, Any]:
    """The durable part of a live broker's own state, answers and floors included.

    It is read from the registry and not from a snapshot, so that a snapshot or an undoing that
    forgets something cannot hide it. Numbers that were skipped, and presence, are not durable.
    """
    registry = broker.registry
    return {
        "routers": dict(registry.routers),
        "channels": dict(registry.channels),
        "reports": dict(registry.reports),
        "retired": {  # Whoever has come back has a floor of its own.
            name: floor
            for name, floor in registry.retired.items()
            if name not in registry.endpoints
        },
        "endpoints": {name: _endpoint(one) for name, one in registry.endpoints.items()},
        "publications": {
            name: (one.variable, one.publisher, one.is_dormant, set(one.subscriptions), one.change)
            for name, one in copy.deepcopy(registry.publications).items()
        },
        "changing": set(registry.changing),
        "names": dict(registry.names),
        "subscriptions": {
            number: (one.record, one.variable) for number, one in registry.subscriptions.items()
        },
        "replaced": {
            number: [(found.replaced, found.is_held) for found in one.retiring]
            for number, one in registry.subscriptions.items()
        },
        "patterns": dict(registry.patterns),
        "unplaced": dict(registry.unplaced),
        "over_channel": {number: set(found) for number, found in registry.over_channel.items()},
        "through_router": {name: set(found) for name, found in registry.through_router.items()},
        "contracts": {
            number: (one.granted, one.paths)
            for number, one in broker.reservations.allocator.contracts.items()
        },
    }


def _endpoint(endpoint: EndPoint) -> dict[str, Any]:
    return {
        "process": (endpoint.incarnation, endpoint.public_key, endpoint.not_after_s),
        "is_restarted": endpoint.is_restarted,
        "known_since": endpoint.known_since,
        "attachments": {
            edge: replace(found, is_up=True, is_doubtful=False)
            for edge, found in endpoint.attachments.items()
        },
        "holds": (
            set(endpoint.publications),
            set(endpoint.subscriptions),
            set(endpoint.patterns),
        ),
        "answers": dict(endpoint.answer_cache.held),
        "floor": endpoint.answer_cache.floor,
    }


def promised_of(broker: LeafBroker) -> dict[Any, Any]:
    resources = broker.reservations.resources
    return {
        **{number: found.bytes.value for number, found in resources.channels.items()},
        **{name: found.events.value for name, found in resources.routers.items()},
    }


def restored(cloud: Conversation, length: int) -> LeafBroker:
    broker = cloud.new_broker()
    broker.restore(cloud.journal[:length])
    return broker


def unkept_answers(cloud: Conversation, broker: LeafBroker, length: int) -> list[str]:
    """Requests that were granted within this prefix and that the broker does not remember."""
    missing = []
    for (name, request_id), at in cloud.answered_at.items():
        endpoint = broker.registry.endpoints.get(name)
        outcomes = cloud.answers[name, request_id]
        is_durable = any(
            isinstance(one, GrantedOutcome | PublishedOutcome | AttachedOutcome) for one in outcomes
        )
        if endpoint is None or not is_durable or at > length:
            continue
        if endpoint.answer_cache.is_replay(request_id):
            continue  # Left, and came back since.
        body = endpoint.answer_cache.held.get(request_id)
        if body is None or msgspec.msgpack.decode(body, type=Outcomes).outcomes != outcomes:
            missing.append(f"{name} {request_id}: {outcomes}")
    return missing


@pytest.mark.parametrize("seed", range(3))
def test_every_prefix_of_a_journal_leads_to_what_was_acknowledged(seed: int) -> None:
    script = Script(seed)
    cloud = script.cloud
    script.begin()
    moments = {len(cloud.journal): durable_of(cloud.broker)}
    for _ in range(STEPS):
        script.step()
        moments[len(cloud.journal)] = durable_of(cloud.broker)

    for length in cloud.written_lengths:
        broker = restored(cloud, length)
        assert unkept_answers(cloud, broker, length) == []
        if length in moments:
            assert durable_of(broker) == moments[length]
    assert cloud.differing() == []


@pytest.mark.parametrize("seed", range(3))
def test_a_restarted_broker_has_promised_and_ordered_the_same(seed: int) -> None:
    script = Script(100 + seed)
    script.begin()
    for _ in range(STEPS):
        script.step()
    cloud = script.cloud
    cloud.advance(20 * NS_PER_S)  # What moves has moved.
    cloud.settle()
    before = promised_of(cloud.broker)
    ordered = {name: cloud.broker.tables[name].wanted.digest for name in cloud.routers}

    cloud.kill_broker()

    assert promised_of(cloud.broker) == before
    assert {name: cloud.broker.tables[name].wanted.digest for name in cloud.routers} == ordered
    assert cloud.differing() == []  # So no router receives a further change.


@pytest.mark.parametrize("seed", range(3))
def test_a_script_continues_after_a_kill_in_the_middle_of_any_step(seed: int) -> None:
    script = Script(200 + seed)
    script.begin()
    cloud = script.cloud
    for number in range(STEPS):
        if number % 10 == 5:
            cloud.is_journal_held = True  # The kill finds decisions that are not durable yet.
            script.step()
            cloud.is_journal_held = False
            cloud.kill_broker()
            cloud.start()
        script.step()
    cloud.advance(20 * NS_PER_S)
    cloud.settle()
    assert cloud.differing() == []


@pytest.mark.parametrize("seed", range(2))
def test_a_snapshot_leads_to_the_same_state_as_the_whole_journal(seed: int) -> None:
    script = Script(300 + seed)
    script.begin()
    for _ in range(STEPS):
        script.step()
    cloud = script.cloud
    cloud.advance(20 * NS_PER_S)
    cloud.settle()
    short = cloud.new_broker()
    short.restore(cloud.broker.snapshot())
    whole = restored(cloud, len(cloud.journal))
    assert durable_of(short) == durable_of(whole)
    assert promised_of(short) == promised_of(whole)
    for name in cloud.routers:
        assert short.tables[name].wanted.digest == whole.tables[name].wanted.digest


@pytest.mark.parametrize("seed", [*range(3), 7])
def test_a_full_disk_at_any_moment_changes_nothing(seed: int) -> None:
    script = Script(400 + seed)
    script.begin()
    cloud = script.cloud
    for number in range(STEPS):
        cloud.is_disk_full = number % 4 == 3
        before = durable_of(cloud.broker)
        script.step()
        if cloud.is_disk_full:
            after = durable_of(cloud.broker)
            # Where a router listens is a fact, full disk or not.
            assert after | {"reports": None} == before | {"reports": None}
    cloud.is_disk_full = False
    cloud.advance(20 * NS_PER_S)
    cloud.settle()
    assert cloud.differing() == []
    assert durable_of(restored(cloud, len(cloud.journal))) == durable_of(cloud.broker)
