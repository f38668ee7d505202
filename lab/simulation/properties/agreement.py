"""Agreement at rest: the broker holds exactly what the applications have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.model.status import StatusVariable
    from lab.simulation.cloud import Cloud

RULE: Final = "the broker holds what the applications have"
MATCHED: Final = "a pattern has every name that it matches"


def check_agreement(cloud: Cloud, broker: LeafBroker) -> None:
    registry = broker.registry
    present = {name for name, node in cloud.endpoints.items() if not node.is_gone}
    if registry.endpoints.keys() != present:
        raise PropertyBroken(RULE, f"end-points {sorted(registry.endpoints)}, not {present}")
    for name in sorted(present):
        node, held = cloud.endpoints[name], registry.endpoints[name]
        if held.attachments.keys() != node.attached:
            raise PropertyBroken(RULE, f"{name} is attached to {sorted(held.attachments)}")
        for edge, attachment in held.attachments.items():
            if attachment.up_channel_id != node.channels_up[edge]:
                raise PropertyBroken(RULE, f"{name} sends to {edge} on another channel")
        _check_publications(cloud, name, broker)
        _check_contracts(cloud, name, broker)


def _check_publications(cloud: Cloud, name: str, broker: LeafBroker) -> None:
    registry, application = broker.registry, cloud.endpoints[name].application
    held = {
        one: registry.publications[one].variable for one in registry.endpoints[name].publications
    }
    if held != application.publications:
        for one in sorted(held.keys() | application.publications.keys()):
            if _is_not_told(cloud, held.get(one), application.publications.get(one)):
                continue
            if held.get(one) != application.publications.get(one):
                raise PropertyBroken(
                    RULE,
                    f"{one} is {held.get(one)}, and its publisher has "
                    f"{application.publications.get(one)}",
                )


def _is_not_told(cloud: Cloud, held: StatusVariable | None, known: StatusVariable | None) -> bool:
    """Return whether a broker that died has withdrawn a variable, and told nobody."""
    if held is not None or known is None or cloud.broker_lives == 1:
        return False
    return known.variable_id in cloud.journal.facts.withdrawn


def _check_contracts(cloud: Cloud, name: str, broker: LeafBroker) -> None:
    registry, application = broker.registry, cloud.endpoints[name].application
    endpoint = registry.endpoints[name]
    known = {one.number for one in application.contracts.values() if one.number}
    known |= application.caught.keys()
    extra, missing = endpoint.subscriptions - known, known - endpoint.subscriptions
    if cloud.broker_lives > 1:
        # A broker that dies does not send its pending notices, nor does the next one: catches of
        # patterns, and withdrawals of variables.
        extra = {one for one in extra if not registry.subscriptions[one].record.pattern_id}
        missing -= cloud.journal.facts.ended
    if extra or missing:
        raise PropertyBroken(
            RULE, f"{name}: subscriptions nobody knows {extra}, believed in but gone {missing}"
        )
    patterns = {one.number for one in application.patterns.values() if one.number}
    if cloud.broker_lives > 1:
        patterns -= cloud.journal.facts.ended
    if endpoint.patterns != patterns:
        raise PropertyBroken(RULE, f"{name}: patterns {endpoint.patterns}, not {patterns}")
    for contract in application.contracts.values():
        found = registry.subscriptions.get(contract.number)
        if found is not None and contract.is_qos_certain and found.record.qos != contract.qos:
            raise PropertyBroken(RULE, f"{name}: {contract.number} has {found.record.qos}")


def check_patterns(cloud: Cloud, broker: LeafBroker) -> None:
    """Check that a pattern has every name that it matches, unless one of them did not fit."""
    if cloud.swarm.rule_changes or cloud.broker_node.are_refusals_left_out:
        return  # Rules say which of the names somebody may have; or nobody knows what did not fit.
    registry = broker.registry
    refused = cloud.broker_node.patterns_refused.union(
        *(node.application.lacking for node in cloud.endpoints.values())
    )
    for number, held in registry.patterns.items():
        if number in refused:
            continue
        for name, publication in registry.publications.items():
            contracts = [registry.subscriptions[one].record for one in publication.subscriptions]
            is_had = any(record.pattern_id == number for record in contracts)
            is_own = publication.publisher == held.subscriber
            if _is_matching(held.pattern, name) and not is_had and not is_own:
                raise PropertyBroken(MATCHED, f"{held.pattern} of {held.subscriber} lacks {name}")


def _is_matching(pattern: str, name: str) -> bool:
    """Return whether a name matches, part by part; these patterns have whole parts as stars."""
    parts, names = pattern.split("/"), name.split("/")
    if len(parts) != len(names):
        return False
    return all(part in ("*", own) for part, own in zip(parts, names, strict=True))


def check_nothing_is_left(broker: LeafBroker) -> None:
    registry = broker.registry
    left = {
        "end-points": len(registry.endpoints),
        "publications": len(registry.publications),
        "subscriptions": len(registry.subscriptions) + len(registry.unplaced),
        "patterns": len(registry.patterns),
        "changes": len(registry.changing),
        "attachments": len(registry.attached_to),
        "ways over channels": len(registry.over_channel),
        "ways through routers": len(registry.through_router),
    }
    if any(left.values()):
        raise PropertyBroken("nothing is left behind", f"{left}")
