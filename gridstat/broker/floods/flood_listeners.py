"""Registration of end-points that receive every variable flooded at their edges."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from gridstat.broker.floods.leaf_flooding_operations import FloodListenerSet
from gridstat.broker.routers.receiver_addresses import check_ports
from gridstat.model.access_rules import Action
from gridstat.model.channel_security import HOP
from gridstat.model.errors import LayoutError, QuotaReached
from gridstat.net.command.endpoint_messages import FoundOutcome

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.floods.leaf_flooding_operations import FloodRecords
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import ListenToFloods

LISTENERS_MAX: Final = 64
"""Listeners of one cloud."""
EDGE_LISTENERS_MAX: Final = 4
"""Listeners at one edge, which copies every flooded event to each and is charged for none."""


class FloodListeners:
    """A repeated request changes nothing, and is answered with the variables that flood by then."""

    def __init__(
        self, context: BrokerContext, records: FloodRecords, requests: RequestIntake
    ) -> None:
        self._context = context
        self._records = records
        self._requests = requests

    def listen(self, request: Request, command: ListenToFloods) -> None:
        registry = self._context.registry
        endpoint = registry.endpoints[request.endpoint]
        listeners = self._records.listeners
        before = listeners.get(endpoint.name)
        ports = command.data_port, command.urgent_port
        check_ports(ports, of=endpoint.name)
        edges = [edge for edge, found in endpoint.attachments.items() if found.host]
        if any(ports) and not (all(ports) and edges):
            raise LayoutError(
                f"{endpoint.name} has no address at which it could receive flooded variables",
                hint="attach with a host, and name both ports of a receiver",
            )
        if any(ports):  # All that floods at an edge goes to each listener there.
            self._context.permissions.check_everything(endpoint.name, Action.FLOOD)
        if any(ports) and before is None and len(listeners) >= LISTENERS_MAX:
            raise QuotaReached(f"{LISTENERS_MAX} end-points listen to all floods already")
        known = {} if before is None else before.channels
        wanted = sorted(edges) if all(ports) else []
        for edge in wanted:
            if edge not in known:
                self._check_edge(edge)
        after = FloodListenerSet(
            endpoint=endpoint.name,
            incarnation=endpoint.incarnation,
            data_port=command.data_port,
            urgent_port=command.urgent_port,
            channels={edge: known.get(edge) or self._context.new_channel_id() for edge in wanted},
        )
        if after == before or (before is None and not wanted):
            self._answer(request)
        else:
            self._requests.commit(request, [after], partial(self._written, request))

    def listening(self) -> list[str]:
        """Return the end-points that listen."""
        return sorted(self._records.listeners)

    def ends_of(self, endpoint: str) -> list[Operation]:
        """Return the operations after which an end-point no longer listens."""
        before = self._records.listeners[endpoint]
        return [structs.replace(before, data_port=0, urgent_port=0, channels={})]

    def _written(self, request: Request, _: Applied) -> None:
        self._answer(request)

    def _check_edge(self, edge: str) -> None:
        listeners = self._records.listeners
        names = sorted(name for name, found in listeners.items() if edge in found.channels)
        if len(names) >= EDGE_LISTENERS_MAX:
            raise QuotaReached(
                f"{len(names)} end-points listen to all floods at {edge} already, which is the "
                f"most for one edge: {', '.join(names[:EDGE_LISTENERS_MAX])}",
                hint="attach to another edge, or subscribe to what is needed",
            )

    def _answer(self, request: Request) -> None:
        variables: tuple[StatusVariable, ...] = ()
        if request.endpoint in self._records.listeners:  # Names are for those who may listen.
            floods = self._records.variables
            found = [floods[name] for name in sorted(floods)]
            variables = tuple(each.variable for each in found if each.own or each.above)
        channels = self._sealed_channels(request.endpoint)
        outcome = FoundOutcome(variables=variables, sealed_channels=channels)
        self._requests.answer(request, (outcome,))

    def _sealed_channels(self, name: str) -> tuple[int, ...]:
        endpoint = self._context.registry.endpoints.get(name)
        listener = self._records.listeners.get(name)
        if endpoint is None or listener is None:
            return ()
        return tuple(
            number
            for edge, number in sorted(listener.channels.items())
            if edge in endpoint.attachments and endpoint.attachments[edge].security == HOP
        )
