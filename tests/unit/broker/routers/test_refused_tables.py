"""Tables that a router refuses as a whole: tried again for a while, then all go elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gridstat.broker.tables.router_table import REFUSALS_MAX
from gridstat.model.errors import RedundancyNotSatisfiable, RouterFull
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import ContractChanged
from gridstat.net.command.machine import Received
from gridstat.net.command.messages import ChangeTable, Explain, TableRefused
from tests.unit.broker.conversation import Conversation, refusal
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, subscribe

if TYPE_CHECKING:
    from gridstat.net.command.messages import Message

REASON = "the table has more than 9 orders"


class Refusing(Conversation):
    """A cloud in which some routers refuse every table that is sent to them."""

    refusing: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._begun: set[str] = set()
        super().__init__()

    def _deliver(self, peer: str, message: Message) -> None:
        router = peer.removeprefix("router/")
        if router in self.refusing and isinstance(message, ChangeTable):
            if message.begins_anew:
                self._begun.add(router)
            if message.is_last and router in self._begun:
                self._begun.discard(router)
                self.hear(router, TableRefused(number=message.number, code=4003, reason=REASON))
            return
        super()._deliver(peer, message)

    def refuse(self, *routers: str) -> None:
        """Let routers refuse their tables from now on, beginning with the present one."""
        self.refusing = frozenset(routers)
        for router in routers:
            self.hear(router, TableRefused(number=1, code=4003, reason=REASON))


@pytest.fixture
def cloud() -> Refusing:
    found = Refusing()
    found.start()
    found.attach(PMU, "c1/e0", "c1/e1", data_port=0)
    found.attach(CENTRE, "c1/e2", "c1/e3")
    found.publish(VOLTAGE, "c1/e0")
    return found


def explained(cloud: Conversation) -> dict[str, Any]:
    cloud.tell(Received("operator/c1/alice", Explain(request_id=8, name=VOLTAGE)))
    (facts,) = cloud.operator_answers[-1].facts["subscriptions"]
    assert isinstance(facts, dict)
    return facts


def router_facts(cloud: Conversation, name: str) -> dict[str, Any]:
    (found,) = [each for each in cloud.broker.survey()["routers"] if each["name"] == name]
    assert isinstance(found, dict)
    return found


def test_a_router_that_refuses_its_table_once_is_not_in_step_and_explain_says_why(
    cloud: Refusing,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    router = granted.paths[0].routers[1]

    cloud.refuse(router)

    assert not cloud.broker.tables[router].is_in_step
    assert explained(cloud)["state"] == "waiting for routers"
    assert explained(cloud)["degraded"] == [f"router {router} refuses its table: {REASON}"]
    facts = router_facts(cloud, router)
    assert (facts["refusal"], facts["in_step"]) == (REASON, False)
    assert facts["refusals"] > 0


def test_contracts_leave_a_router_that_goes_on_refusing_its_table(cloud: Refusing) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    router = granted.paths[0].routers[1]
    cloud.refuse(router)

    cloud.advance(60 * NS_PER_S)

    record = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert router not in record.paths[0].routers
    assert explained(cloud)["state"] == "granted"
    assert "router_refuses" in [note.word for note in cloud.notes]


def test_where_no_other_way_is_left_waiting_has_an_end_and_the_subscriber_is_told(
    cloud: Refusing,
) -> None:
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.refuse("c1/i0", "c1/i1")

    cloud.advance(60 * NS_PER_S)

    assert explained(cloud)["state"] == "impaired"
    told = [each for each in cloud.notices[CENTRE] if isinstance(each, ContractChanged)]
    words = told[-1].granted.degraded[0]
    assert words.startswith("path 1 may not be up: router c1/i")
    assert words.endswith(f"refuses its table: {REASON}")
    assert router_facts(cloud, "c1/i0")["refusals"] >= REFUSALS_MAX

    cloud.refusing = frozenset()
    cloud.advance(60 * NS_PER_S)
    assert explained(cloud)["state"] == "granted"
    told = [each for each in cloud.notices[CENTRE] if isinstance(each, ContractChanged)]
    assert told[-1].granted.degraded == ()
    assert router_facts(cloud, "c1/i0")["refusal"] == ""
    assert cloud.differing() == []


def test_a_router_that_refuses_its_table_is_asked_ever_more_rarely(cloud: Refusing) -> None:
    cloud.refuse("c1/i0")
    cloud.advance(600 * NS_PER_S)
    assert REFUSALS_MAX <= router_facts(cloud, "c1/i0")["refusals"] <= 25


def test_a_new_contract_over_a_refused_table_is_refused_with_code_and_hint_and_gives_back(
    cloud: Refusing,
) -> None:
    cloud.refusing = frozenset(("c1/i0", "c1/i1"))
    resources = cloud.broker.reservations.resources
    before = {number: found.bytes.value for number, found in resources.channels.items()}
    number = cloud.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    for router in sorted(cloud.refusing):
        cloud.hear(router, TableRefused(number=1, code=4003, reason=REASON))
    cloud.advance(2 * cloud.settings.confirm_within_ns)

    refused = refusal(cloud.answers[CENTRE, number])

    assert refused.code == RouterFull.code
    assert refused.reason.endswith(f"refuses its table: {REASON}")
    assert "gridstat top" in refused.hint
    assert cloud.broker.registry.subscriptions == {}
    assert {number: found.bytes.value for number, found in resources.channels.items()} == before


def test_no_new_contract_is_led_over_a_router_that_refuses_its_table(cloud: Refusing) -> None:
    cloud.refuse("c1/i0")
    cloud.advance(60 * NS_PER_S)
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    assert "c1/i0" not in granted.paths[0].routers

    cloud.refuse("c1/i0", "c1/i1")
    cloud.advance(60 * NS_PER_S)
    refused = refusal(cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE)))
    assert refused.code == RedundancyNotSatisfiable.code
    assert f"router c1/i0 refuses its table: {REASON}" in refused.hint
