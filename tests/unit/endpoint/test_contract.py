"""The terms of a contract: what is owed in the modes of the moment, and of replay nothing."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from gridstat.endpoint.contract import Contract, contract_of, latency_ns_in, terms_in
from gridstat.model.identifiers import VariableId
from gridstat.model.qos import Qos
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.command.endpoint_messages import GrantedOutcome

VOLTAGE = StatusVariable(VariableId(5), "c1/a/v", BuiltinType.FLOAT64, Period(1, 60))


def contract(variable: StatusVariable) -> Contract:
    return Contract(1, variable, {0: Qos(every=2, latency_us=12_000, redundancy=1, priority=2)})


def test_a_live_variable_owes_its_slots_within_a_latency() -> None:
    terms = terms_in(contract(VOLTAGE), 1)
    assert terms is not None
    assert (terms.every, terms.latency_ns) == (2, 12_000_000)
    assert latency_ns_in(contract(VOLTAGE), 1) == 12_000_000


def test_a_replayed_variable_owes_no_slots_and_is_never_late() -> None:
    replayed = contract(replace(VOLTAGE, replay_speed=10))
    assert terms_in(replayed, 1) is None
    assert latency_ns_in(replayed, 1) == 0


def test_a_contract_states_how_soon_a_dead_channel_is_noticed() -> None:
    told = msgspec.msgpack.encode(
        GrantedOutcome(subscription_id=1, variable=None, detection_ms=100)
    )
    found = contract_of(msgspec.msgpack.decode(told, type=GrantedOutcome))
    assert found.detection_ms == 100
    assert "detection_ms=100" in repr(found)


def test_the_detection_time_is_unknown_of_a_broker_that_does_not_tell_it() -> None:
    older = {"type": "GrantedOutcome", "subscription_id": 1, "variable": None}
    told = msgspec.msgpack.encode(older)
    assert contract_of(msgspec.msgpack.decode(told, type=GrantedOutcome)).detection_ms is None
