"""Time of the broker's allocator for one subscription in a large cloud, in this process.

The networks are random, of several families; every request asks for two disjoint paths from a pair
of edges to another. Pairs rarely repeat, so that paths are searched and not read from a cache.
"""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING

from gridstat.broker.capacity.allocation import Allocation, AllocationRequest
from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.resources import Resources
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.identifiers import ChannelId, VariableId
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from lab.topologies import FAMILIES, random_topology

if TYPE_CHECKING:
    from lab.topologies import Topology

BANDWIDTH_BYTES_PER_S = 125_000_000
LATENCY_US = 50_000
VARIABLES_PER_CLOUD = 200


def allocation_times_ms(routers: int, requests: int, redundancy: int) -> tuple[list[float], int]:
    """Return the times of all allocations, ascending, and the number of grants."""
    took_ms: list[float] = []
    granted = 0
    for family in FAMILIES:
        topology = random_topology(family, routers, seed=1)
        allocator = Allocator(_resources(topology), clock=time.perf_counter)
        asked = _requests(topology, -(-requests // len(FAMILIES)), redundancy)
        for request in asked:
            began_s = time.perf_counter()
            answer = allocator.allocate(request)
            took_ms.append(1e3 * (time.perf_counter() - began_s))
            granted += isinstance(answer, Allocation)
    return sorted(took_ms), granted


def _resources(topology: Topology) -> Resources:
    resources = Resources()
    for name in topology.routers:
        resources.add_router(Router(name))
    for arc in topology.arcs:
        resources.add_channel(
            EventChannel(
                ChannelId(arc.channel_id),
                arc.from_router,
                arc.to_router,
                bandwidth_bytes_per_s=BANDWIDTH_BYTES_PER_S,
                latency_us=arc.latency_us,
                queue_events_max=VARIABLES_PER_CLOUD,
            )
        )
    return resources


def _requests(topology: Topology, count: int, redundancy: int) -> list[AllocationRequest]:
    """Return requests, each between its publisher's and its subscriber's pair of edges."""
    random = Random(topology.name)
    edges = max(1, min(2, redundancy))
    variables = [
        StatusVariable(
            VariableId(1 + number), f"c1/p/v{number}", BuiltinType.FLOAT64, Period(1, 30)
        )
        for number in range(min(count, VARIABLES_PER_CLOUD))
    ]
    sources = [tuple(random.sample(topology.routers, edges)) for _ in variables]
    qos = ModalQos({0: QosRequest(latency_us=LATENCY_US, redundancy=redundancy)})
    found = []
    for number in range(count):
        at = number % len(variables)
        elsewhere = [name for name in topology.routers if name not in sources[at]]
        found.append(
            AllocationRequest(
                subscription_id=1 + number,
                variable=variables[at],
                sources=sources[at],
                targets=tuple(random.sample(elsewhere, edges)),
                qos=qos,
                subscriber=f"c1/s{number}",
            )
        )
    return found
