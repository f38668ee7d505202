"""A small cloud with rules of its own, and what an operator asks of its broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from gridstat.broker.settings import AccessSettings, BrokerSettings
from gridstat.model.access_rules import AccessRule
from gridstat.net.command.endpoint_messages import RefusedOutcome, Unpublished
from gridstat.net.command.machine import Received
from gridstat.net.command.operator_messages import GrantAccess, RevokeAccess
from tests.unit.broker.conversation import Conversation, refusal
from tests.unit.broker.stand_ins import CENTRE, CLOUD, PMU, ring

if TYPE_CHECKING:
    from gridstat.net.command.messages import OperatorAnswer, OperatorCommand

PUBLISHING = AccessRule("pmus", "c1/*/pmu", ("publish",), "c1/*/pmu/*")
READING = AccessRule("desks", CENTRE, ("subscribe", "find"), "c1/north/**")
LISTENING = AccessRule("listeners", CENTRE, ("flood",), "**")


def ruled(
    *rules: AccessRule,
    is_enforced: bool | None = True,
    end_at_once: int = 64,
    revoke_at_once: int = 64,
) -> Conversation:
    """A publisher at e0 and e1 and a reader at e2 and e3, under these rules alone."""
    access = AccessSettings(rules=rules, is_enforced=is_enforced)
    cloud = Conversation(ring())
    # Also one without any rule.
    cloud.settings = BrokerSettings(
        CLOUD, access=access, end_at_once=end_at_once, revoke_at_once=revoke_at_once
    )
    cloud.broker = cloud.new_broker()
    cloud.start()
    cloud.attach(PMU, "c1/e0", "c1/e1", data_port=0)
    cloud.attach(CENTRE, "c1/e2", "c1/e3")
    return cloud


def operate(cloud: Conversation, command: OperatorCommand) -> OperatorAnswer:
    cloud.tell(Received("operator/c1/alice", structs.replace(command, request_id=7)))
    cloud.settle()
    return cloud.operator_answers[-1]


def facts(cloud: Conversation, command: OperatorCommand) -> dict[str, Any]:
    answer = operate(cloud, command)
    assert answer.refused is None, answer.refused
    return answer.facts


def grant(cloud: Conversation, rule: AccessRule) -> dict[str, Any]:
    return facts(cloud, GrantAccess(request_id=0, rule=rule))


def revoke(cloud: Conversation, identifier: str) -> dict[str, Any]:
    return facts(cloud, RevokeAccess(request_id=0, identifier=identifier))


def not_allowed(outcomes: Any) -> RefusedOutcome:
    found = refusal(outcomes)
    assert found.code == 1015, found
    assert found.reason.startswith("rule access: "), found
    return found


def ended(cloud: Conversation, endpoint: str) -> list[Unpublished]:
    return [each for each in cloud.notices.get(endpoint, []) if isinstance(each, Unpublished)]
