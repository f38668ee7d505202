"""End-points that hear everything that floods at their edges, while they are registered for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.records.operations import FloodListenerSet
from gridstat.broker.routers.receiver_addresses import check_ports
from gridstat.model.errors import LayoutError, QuotaReached
from gridstat.net.command.endpoint_messages import FoundOutcome

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.requests.request_intake import Request, RequestIntake
    from gridstat.net.command.endpoint_messages import ListenToFloods

HEARING_MAX: Final = 64
"""End-points of one cloud that hear all that floods."""
EDGE_HEARING_MAX: Final = 4
"""And of one edge: it copies every flooded event to each of them, and is charged for none."""


class FloodListeners:
    """Asked again, it is answered with what floods by then; nothing else changes."""

    def __init__(self, context: BrokerContext, requests: RequestIntake) -> None:
        self._context = context
        self._requests = requests

    def hear(self, request: Request, command: ListenToFloods) -> None:
        registry = self._context.registry
        endpoint = registry.endpoints[request.endpoint]
        before = registry.flood_listeners.get(endpoint.name)
        ports = command.data_port, command.urgent_port
        check_ports(ports, of=endpoint.name)
        edges = [edge for edge, found in endpoint.attachments.items() if found.host]
        if any(ports) and not (all(ports) and edges):
            raise LayoutError(
                f"{endpoint.name} names no place at which it could hear anything",
                hint="attach with a host, and name both ports of a receiver",
            )
        if any(ports) and before is None and len(registry.flood_listeners) >= HEARING_MAX:
            raise QuotaReached(f"{HEARING_MAX} end-points hear all that floods already")
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
            channels={edge: known.get(edge) or registry.next_channel_id() for edge in wanted},
        )
        if after == before or (before is None and not wanted):
            self._answer(request)
        else:
            self._requests.commit(request, [after], lambda _: self._answer(request))

    def _check_edge(self, edge: str) -> None:
        hearing = self._context.registry.flood_listeners
        names = sorted(name for name, found in hearing.items() if edge in found.channels)
        if len(names) >= EDGE_HEARING_MAX:
            raise QuotaReached(
                f"{len(names)} end-points hear all that floods at {edge} already, which is the "
                f"most for one edge: {', '.join(names[:EDGE_HEARING_MAX])}",
                hint="attach to another edge, or subscribe to what is needed",
            )

    def _answer(self, request: Request) -> None:
        floods = self._context.registry.floods
        found = [floods[name] for name in sorted(floods)]
        variables = tuple(each.variable for each in found if each.own or each.above)
        self._requests.answer(request, (FoundOutcome(variables=variables),))
