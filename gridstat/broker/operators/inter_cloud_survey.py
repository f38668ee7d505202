"""Facts of contracts across clouds: those of our end-points, and segments of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gridstat.broker.records.parent_state import contract_name
from gridstat.broker.segments.segment_paths import current_pieces, whole_outcome
from gridstat.net.command.segment_messages import joined_names

if TYPE_CHECKING:
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.records.parent_state import AskedContract
    from gridstat.broker.records.registry import Publication, Registry
    from gridstat.broker.tables.detection import Detection

Facts = dict[str, Any]


def place_facts(registry: Registry, parent: str) -> Facts:
    """Return the position of the cloud in the tree; a cloud without parent has no depth."""
    tree = registry.tree
    return {"parent": parent, "depth": tree.depth, "above": list(tree.above)}


def asked_facts(registry: Registry, found: AskedContract, detection: Detection) -> Facts:
    """Return the facts of a contract of our end-point with a variable of another cloud."""
    record, granted = found.record, found.granted
    facts: Facts = {
        "subscription_id": record.number,
        "name": record.name,
        "subscriber": record.subscriber,
        "contract": contract_name(registry.cloud, record.number),
        "owner": "" if granted is None else granted.owner,
        "generation": found.generation,
        "granted": {} if granted is None else msgspec.to_builtins(granted.granted),
        "paths": [],
        "degraded": [],
        "state": asked_state(found),
    }
    if granted is not None:
        segment = own_segment(registry, found)
        outcome = whole_outcome(record, granted, segment, detection=detection)
        facts["detection_ms"] = outcome.detection_ms
        facts["paths"] = [list(path.routers) for path in outcome.paths]
        facts["degraded"] = list(outcome.degraded)
    return facts


def asked_explained(registry: Registry, found: AskedContract, detection: Detection) -> Facts:
    """Return the same facts with the pieces of every path, and the cloud of each piece."""
    facts = asked_facts(registry, found, detection)
    granted = found.granted
    if granted is None:
        return facts
    segment = own_segment(registry, found)
    facts["is_node_disjoint"] = granted.is_node_disjoint
    pieces = [current_pieces(path, segment, detection) for path in granted.paths]
    facts["paths"] = [
        {
            "routers": routers,
            "channel_names": list(joined_names(of_path)),
            "latency_us": path.latency_us,
            "pieces": [msgspec.to_builtins(piece) for piece in of_path],
        }
        for routers, path, of_path in zip(facts["paths"], granted.paths, pieces, strict=True)
    ]
    return facts


def asked_state(found: AskedContract) -> str:
    if found.is_ending:
        return "ending"
    if found.granted is None:
        return "requested from the parent"
    return "granted" if found.change is None else "change requested from the parent"


def own_segment(registry: Registry, found: AskedContract) -> Subscribed | None:
    """Return the segment of this cloud in the granted generation of a contract, if there is one."""
    if found.granted is None:
        return None
    contract = contract_name(registry.cloud, found.record.number)
    number = registry.tree.segment(contract, found.granted.generation)
    held = registry.subscriptions.get(number)
    return None if held is None else held.record


def segment_facts(record: Subscribed) -> Facts:
    """Return the facts of a segment of a contract across clouds."""
    return {
        "contract": record.contract,
        "generation": record.segment_generation,
        "stage": "reserved" if record.is_reserved else "committed",
        "entries": [list(gate) for gate in record.entries],
        "exits": [list(gate) for gate in record.exits],
    }


def foreign_publication(registry: Registry, name: str) -> Publication | None:
    """Return the variable of another cloud that a segment carries here, if there is one."""
    found = registry.foreign.values()
    return next((one for one in found if one.variable.name == name), None)
