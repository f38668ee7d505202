"""Plain facts for people: why a contract has these paths, what they take, and what is scarce.

The answers are dictionaries of plain values, as `gridstat explain` and `gridstat top` show them
and as JSON carries them. Whoever knows more (names of end-points, states, counters) adds to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridstat.broker.capacity.admission import label_of

if TYPE_CHECKING:
    from fractions import Fraction

    from gridstat.broker.capacity.accounts import Carriage
    from gridstat.broker.capacity.allocation import AllocatedPath, Allocation
    from gridstat.broker.capacity.allocator import Allocator
    from gridstat.broker.capacity.latency_promises import Element
    from gridstat.broker.capacity.resources import Resources

Facts = dict[str, Any]


def contract_facts(allocator: Allocator, subscription_id: int) -> Facts:
    """A subscription's part of an explanation: granted, paths with their budget, bottleneck."""
    contract = allocator.contract(subscription_id)
    return {
        "subscription_id": subscription_id,
        "subscriber": contract.request.subscriber,
        "granted": granted_facts(contract),
        "paths": [
            path_facts(allocator.resources, path, contract.latency_us_max(index))
            for index, path in enumerate(contract.paths)
        ],
        "is_node_disjoint": contract.is_node_disjoint,
        "shares_edge": contract.shares_edge,
        "degraded": list(contract.degraded),
        "bottleneck": bottleneck_facts(allocator.resources, contract),
    }


def granted_facts(contract: Allocation) -> dict[int, Facts]:
    """What was granted in each mode."""
    return {
        mode: {
            "every": qos.every,
            "latency_us": qos.latency_us,
            "redundancy": qos.redundancy,
            "priority": qos.priority,
        }
        for mode, qos in sorted(contract.granted.items())
    }


def path_facts(resources: Resources, path: AllocatedPath, latency_us_max: int) -> Facts:
    """A path and its budget: what every part of it is predicted to take now, ends included.

    `latency_us` is the present prediction, `latency_us_granted` the one of the day of the grant.
    """
    parts: list[Facts] = [{"what": "end-points", "latency_us": resources.ends_us}]
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
    latency_us = resources.path_us(path.routers, path.channel_ids)
    return {
        "routers": list(path.routers),
        "channel_ids": list(path.channel_ids),
        "latency_us": latency_us,
        "latency_us_granted": path.latency_us,
        "latency_us_max": latency_us_max,
        "spare_us": latency_us_max - latency_us,
        "parts": parts,
    }


def bottleneck_facts(resources: Resources, contract: Allocation) -> Facts:
    """The most utilised channel or router on the paths; of equals the first on the way."""
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
    """The channels that carry a variable, with the share of each that it takes."""
    found = []
    for number in resources.carriers(variable_id):
        carriage = resources.channel(number)
        stream = carriage.streams[variable_id]
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
    """A channel's part of a survey: what it has, what is promised, and how it is."""
    carriage = resources.channel(channel_id)
    channel = carriage.channel
    assert channel is not None
    return {
        "label": channel.label,
        "channel_id": channel_id,
        "is_up": carriage.is_up,
        "is_back_pressured": carriage.is_back_pressured,
        "bytes_per_s": rounded(carriage.bytes.value),
        **probe_facts(carriage),
        "bandwidth_bytes_per_s": channel.bandwidth_bytes_per_s,
        "free_bytes_per_s": _free_bytes_per_s(carriage),
        "latency_us": carriage.latency_us,
        "burst_events": carriage.burst.events,
        "queue_events_max": channel.queue_events_max,
        "variables": len(carriage.streams),
        "paths": len(resources.promises.over(channel_id)),
    }


def probe_facts(carriage: Carriage) -> Facts:
    """What a channel's probes take of its bandwidth, how often they come, and the silence limit."""
    assert carriage.channel is not None
    bandwidth = carriage.channel.bandwidth_bytes_per_s
    return {
        "probe_bytes_per_s": rounded(carriage.probe_charge.value),
        "probe_interval_ms": carriage.probes.interval_ms_of(bandwidth),
        "silent_ms_max": carriage.probes.silent_ms_max_of(bandwidth),
    }


def router_facts(resources: Resources, name: str) -> Facts:
    """A router's part of a survey."""
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


def survey_facts(resources: Resources) -> Facts:
    """All routers and channels, in the order of their names."""
    return {
        "routers": [router_facts(resources, name) for name in sorted(resources.routers)],
        "channels": sorted(
            (channel_facts(resources, number) for number in resources.channels),
            key=lambda facts: (facts["label"], facts["channel_id"]),
        ),
    }


def utilisation(resources: Resources, element: Element) -> Fraction:
    """Which part of an element's capacity is promised; 0 where none is declared."""
    used, capacity, _ = _use(resources, element)
    return used / capacity if capacity else used * 0


def rounded(number: Fraction) -> int | float:
    """For people and JSON: a whole number as such, another to six places."""
    return number.numerator if number.denominator == 1 else round(float(number), 6)


def _use(resources: Resources, element: Element) -> tuple[Fraction, int, str]:
    if isinstance(element, str):
        account = resources.router(element)
        return account.events.value, account.router.events_per_s_max, "events/s"
    carriage = resources.channel(element)
    assert carriage.channel is not None
    return carriage.charged(), carriage.channel.bandwidth_bytes_per_s, "bytes/s"


def _channel_part(resources: Resources, channel_id: int) -> Facts:
    carriage = resources.channel(channel_id)
    assert carriage.channel is not None
    return {
        "what": label_of(resources, channel_id),
        "latency_us": carriage.latency_us,
        "declared_us": carriage.channel.latency_us,
        "burst_events": carriage.burst.events,
        "burst_us": carriage.latency_us - carriage.channel.latency_us,
        "is_back_pressured": carriage.is_back_pressured,
    }


def _free_bytes_per_s(carriage: Carriage) -> int | float | None:
    """None where no bandwidth is declared: then there is no bound to be free of."""
    if carriage.channel is None or not carriage.channel.bandwidth_bytes_per_s:
        return None
    return rounded(carriage.channel.bandwidth_bytes_per_s - carriage.charged())
