"""Explanations for operators: why a contract has its paths, what they use, and what is scarce.

The results are dictionaries of plain values, as `gridstat explain` and `gridstat top` show them
and as JSON carries them. The caller adds names of end-points, states and counters.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from gridstat.broker.capacity.admission import label_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from gridstat.broker.capacity.accounts import HopAccount
    from gridstat.broker.capacity.allocation import AllocatedPath, Allocation
    from gridstat.broker.capacity.allocator import Allocator
    from gridstat.broker.capacity.latency_promises import Element
    from gridstat.broker.capacity.resources import Resources
    from gridstat.model.cloud import EventChannel

Facts = dict[str, Any]


def contract_facts(allocator: Allocator, subscription_id: int) -> Facts:
    """Return the facts of a subscription: grant, paths with their latency budget, bottleneck."""
    contract = allocator.contract(subscription_id)
    return {
        "subscription_id": subscription_id,
        "subscriber": contract.request.subscriber,
        "granted": granted_facts(contract),
        "paths": [
            path_facts(
                allocator.resources,
                path,
                contract.latency_us_max(index),
                contract.request.delay_us,
            )
            for index, path in enumerate(contract.paths)
        ],
        "is_node_disjoint": contract.is_node_disjoint,
        "shares_edge": contract.shares_edge,
        "shared": shared_facts(allocator.resources, contract.paths),
        "degraded": list(contract.degraded),
        "bottleneck": bottleneck_facts(allocator.resources, contract),
    }


def shared_facts(resources: Resources, paths: Sequence[AllocatedPath]) -> list[Facts]:
    """Return what each two paths share at present: routers, links and named risks.

    Paths are disjoint when they are granted. A file that names risks later may show that they are
    not.
    """
    found = []
    for (one, first), (other, second) in combinations(enumerate(paths, start=1), 2):
        routers = [name for name in first.routers if name in second.routers]
        links, risks = (
            sorted(of(resources, first) & of(resources, second)) for of in (_links, _risks)
        )
        if routers or links or risks:
            found.append(
                {"paths": [one, other], "routers": routers, "links": links, "risks": risks}
            )
    return found


def _links(resources: Resources, path: AllocatedPath) -> set[str]:
    return {channel.link for channel in _channels(resources, path)}


def _risks(resources: Resources, path: AllocatedPath) -> set[str]:
    return {risk for channel in _channels(resources, path) for risk in channel.risks}


def _channels(resources: Resources, path: AllocatedPath) -> list[EventChannel]:
    hops = [resources.channel(number).channel for number in path.channel_ids]
    return [channel for channel in hops if channel is not None]


def granted_facts(contract: Allocation) -> dict[int, Facts]:
    """Return the granted quality of each mode."""
    return {
        mode: {
            "every": qos.every,
            "latency_us": qos.latency_us,
            "redundancy": qos.redundancy,
            "priority": qos.priority,
        }
        for mode, qos in sorted(contract.granted.items())
    }


def path_facts(
    resources: Resources, path: AllocatedPath, latency_us_max: int, delay_us: int = 0
) -> Facts:
    """Return a path and its latency budget: the present prediction of each part and both ends.

    `latency_us` is the present prediction, `latency_us_granted` the one at the time of the grant.
    """
    parts: list[Facts] = [{"what": "end-points", "latency_us": resources.ends_us}]
    if delay_us:
        parts.append({"what": "declared delay of the publisher", "latency_us": delay_us})
    for index, name in enumerate(path.routers):
        account = resources.router(name)
        parts.append(
            {
                "what": f"router {name}",
                "latency_us": account.latency_us,
                "events_per_s": rounded(account.events.value),
            }
        )
        if index < len(path.channel_ids):
            parts.append(_channel_part(resources, path.channel_ids[index]))
    latency_us = resources.path_us(path.routers, path.channel_ids) + delay_us
    return {
        "routers": list(path.routers),
        "channel_ids": list(path.channel_ids),
        "channel_names": [channel.name for channel in _channels(resources, path)],
        "latency_us": latency_us,
        "latency_us_granted": path.latency_us,
        "latency_us_max": latency_us_max,
        "spare_us": latency_us_max - latency_us,
        "parts": parts,
    }


def bottleneck_facts(resources: Resources, contract: Allocation) -> Facts:
    """Return the most utilised channel or router on the paths; of equals the first."""
    elements: list[Element] = []
    for path in contract.paths:
        elements += (*path.routers, *path.channel_ids)
    element = max(elements, key=lambda element: utilisation(resources, element))
    used, capacity, unit = _use(resources, element)
    return {
        "what": label_of(resources, element),
        "used": rounded(used),
        "capacity": capacity,
        "unit": unit,
        "utilisation": round(float(utilisation(resources, element)), 6),
    }


def variable_channel_facts(resources: Resources, variable_id: int) -> list[Facts]:
    """Return the channels that carry a variable, with its divisors and rate on each."""
    found = []
    for number in resources.carriers(variable_id):
        hop = resources.channel(number)
        stream = hop.streams[variable_id]
        facts = channel_facts(resources, number)
        facts["divisors"] = {
            mode: list(stream.counts.divisors(mode)) for mode in stream.counts.modes()
        }
        facts["variable_events_per_s"] = {
            mode: rounded(rate) for mode, rate in stream.events_per_s.items()
        }
        found.append(facts)
    return found


def channel_facts(resources: Resources, channel_id: int) -> Facts:
    """Return the facts of a channel for a survey: capacity, reserved load and state."""
    hop = resources.channel(channel_id)
    channel = hop.channel
    assert channel is not None
    return {
        "label": channel.label,
        "link": channel.link,
        "channel_id": channel_id,
        "security": channel.security,
        "risks": list(channel.risks),
        "is_up": hop.is_up,
        "is_back_pressured": hop.is_back_pressured,
        "bytes_per_s": rounded(hop.bytes.value),
        **probe_facts(hop),
        "bandwidth_bytes_per_s": channel.bandwidth_bytes_per_s,
        "free_bytes_per_s": _free_bytes_per_s(hop),
        "latency_us": hop.latency_us,
        "burst_events": hop.burst.events,
        "queue_events_max": channel.queue_events_max,
        "variables": len(hop.streams),
        "paths": len(resources.promises.over(channel_id)),
    }


def probe_facts(hop: HopAccount) -> Facts:
    """Return a channel's probe bandwidth, its probe interval and its silence limit."""
    assert hop.channel is not None
    bandwidth = hop.channel.bandwidth_bytes_per_s
    return {
        "probe_bytes_per_s": rounded(hop.probe_charge.value),
        "probe_interval_ms": hop.probes.interval_ms_of(bandwidth, is_ipv6=hop.is_ipv6),
        "silent_ms_max": hop.probes.silent_ms_max_of(bandwidth, is_ipv6=hop.is_ipv6),
    }


def router_facts(resources: Resources, name: str) -> Facts:
    """Return the facts of a router for a survey."""
    account = resources.router(name)
    return {
        "name": name,
        "role": account.router.role.value,
        "is_up": account.is_up,
        "events_per_s": rounded(account.events.value),
        "events_per_s_max": account.router.events_per_s_max,
        "replay_events_per_s": rounded(account.replays.value),
        "latency_us": account.latency_us,
        "variables": resources.variables_at(name),
        "paths": len(resources.promises.over(name)),
    }


def utilisation(resources: Resources, element: Element) -> Fraction:
    """Return the reserved part of an element's capacity; 0 where no capacity is declared."""
    used, capacity, _ = _use(resources, element)
    return used / capacity if capacity else used * 0


def rounded(number: Fraction) -> int | float:
    """Return an integer if the number is whole, otherwise a float with six decimal places."""
    return number.numerator if number.denominator == 1 else round(float(number), 6)


def _use(resources: Resources, element: Element) -> tuple[Fraction, int, str]:
    if isinstance(element, str):
        account = resources.router(element)
        return account.events.value, account.router.events_per_s_max, "events/s"
    hop = resources.channel(element)
    assert hop.channel is not None
    return hop.charged(), hop.channel.bandwidth_bytes_per_s, "bytes/s"


def _channel_part(resources: Resources, channel_id: int) -> Facts:
    hop = resources.channel(channel_id)
    assert hop.channel is not None
    return {
        "what": label_of(resources, channel_id),
        "latency_us": hop.latency_us,
        "security": hop.channel.security,
        "risks": list(hop.channel.risks),
        "declared_us": hop.channel.latency_us,
        "burst_events": hop.burst.events,
        "burst_us": hop.latency_us - hop.channel.latency_us,
        "is_back_pressured": hop.is_back_pressured,
    }


def _free_bytes_per_s(hop: HopAccount) -> int | float | None:
    """Return the free bandwidth of a channel; None where no bandwidth is declared."""
    if hop.channel is None or not hop.channel.bandwidth_bytes_per_s:
        return None
    return rounded(hop.channel.bandwidth_bytes_per_s - hop.charged())
