"""A cloud with a variable that may flood it, and a parent that may want that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridstat.broker.floods.leaf_flooding import FloodingMessage
from gridstat.broker.settings import BrokerSettings
from gridstat.net.command.machine import Connected, Received
from gridstat.net.command.messages import Hello, OperatorCommand
from gridstat.net.command.operator_messages import (
    OperatorAnswer,
    RemoveFlooding,
    SetFlooding,
)
from gridstat.net.command.tree_messages import (
    AskNumbers,
    CommitFlooding,
    FloodedVariable,
    NumbersLeased,
    ReleaseFlooding,
    ReserveFlooding,
    TreeJoined,
)
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import EVERY_MODE, VOLTAGE

if TYPE_CHECKING:
    from gridstat.model.flooding import FloodTerm
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.router_messages import FloodOrder

ENOUGH = 100_000


def cloud_of(
    bandwidth_bytes_per_s: int = ENOUGH,
    parent: str = "",
    modes_defined: frozenset[int] = EVERY_MODE,
) -> Conversation:
    settings = BrokerSettings("c1", parent=parent, modes_defined=modes_defined)
    found = pair(bandwidth_bytes_per_s=bandwidth_bytes_per_s, settings=settings)
    if parent:
        join(found)
    found.publish(VOLTAGE, "c1/e0")
    return found


def join(cloud: Conversation) -> None:
    """The parent takes the cloud in, and leases it identifiers."""
    cloud.tell(Connected("broker/root", Hello(role="broker", name="root", instance="1")))
    cloud.tell(Received("broker/root", TreeJoined(term=1, depth=1, above=("root",))))
    cloud.settle()
    for word in cloud.told_parent:
        if isinstance(word, AskNumbers):
            leased = NumbersLeased(term=1, request=word.request, first=1, count=word.count)
            cloud.tell(Received("broker/root", leased))


def operate(cloud: Conversation, command: OperatorCommand) -> OperatorAnswer:
    cloud.tell(Received("operator/c1/alice", command))
    cloud.settle()
    return cloud.operator_answers[-1]


def flood(cloud: Conversation, *modes: int, every: int = 1, name: str = VOLTAGE) -> OperatorAnswer:
    return operate(cloud, SetFlooding(request_id=1, name=name, modes=modes, every=every))


def stop(cloud: Conversation, *modes: int, name: str = VOLTAGE) -> OperatorAnswer:
    return operate(cloud, RemoveFlooding(request_id=2, name=name, modes=modes))


def no(answer: OperatorAnswer) -> RefusedOutcome:
    assert answer.refused is not None
    return answer.refused


def variable_of(cloud: Conversation) -> StatusVariable:
    return cloud.broker.registry.publications[VOLTAGE].variable


def floods_at(cloud: Conversation) -> dict[str, tuple[FloodOrder, ...] | None]:
    """What each router has of it; None: it does not carry the variable."""
    number = variable_of(cloud).variable_id
    return {
        name: order.floods if (order := router.table.variables.get(number)) else None
        for name, router in cloud.routers.items()
    }


def everywhere(cloud: Conversation, *floods: FloodOrder) -> dict[str, Any]:
    return dict.fromkeys(cloud.routers, floods)


def charges(cloud: Conversation) -> dict[object, object]:
    """All numbers that admission looks at."""
    resources = cloud.broker.reservations.resources
    found: dict[object, object] = {
        name: (account.events.value, account.latency_us)
        for name, account in resources.routers.items()
    }
    for number, carriage in resources.channels.items():
        found[number] = (
            carriage.bytes.value,
            carriage.burst.events,
            carriage.latency_us,
            {each: stream.taken for each, stream in carriage.streams.items()},
        )
    return found


class Parent:
    """A broker above the cloud, as far as flooding goes."""

    def __init__(self, cloud: Conversation, depth: int = 1) -> None:
        self._cloud = cloud
        above = ("root",) * depth
        cloud.tell(Received("broker/root", TreeJoined(term=1, depth=depth, above=above)))
        cloud.settle()

    def wants(self, generation: int, terms: dict[int, FloodTerm]) -> FloodedVariable:
        return FloodedVariable(
            variable=variable_of(self._cloud), generation=generation, terms=terms
        )

    def says(self, word: ReserveFlooding | CommitFlooding | ReleaseFlooding) -> None:
        self._cloud.tell(Received("broker/root", word))
        self._cloud.settle()

    def told(self) -> list[FloodingMessage]:
        """What it has been told of flooding since it was last asked."""
        told = [word for word in self._cloud.told_parent if isinstance(word, FloodingMessage)]
        self._cloud.told_parent.clear()
        return told
