"""Agreement at rest: every leaf broker holds exactly what its applications have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.simulation.properties.agreement import check_nothing_is_left
from lab.simulation.world import PropertyBroken
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from gridstat.broker.leaf_broker import LeafBroker
    from lab.simulation.endpoint_node import EndPointNode
    from lab.simulation.tree.grid import TreeGrid

RULE: Final = "the broker holds what the applications have"


def check_belief(grid: TreeGrid) -> None:
    for cloud, leaf in grid.leaves().items():
        present = {
            name: node
            for name, node in grid.endpoints.items()
            if cloud_of(name) == cloud and not node.is_gone
        }
        if leaf.registry.endpoints.keys() != present.keys():
            raise PropertyBroken(RULE, f"end-points {sorted(leaf.registry.endpoints)} of {cloud}")
        for node in present.values():
            _check_publications(grid, cloud, node, leaf)
            _check_contracts(grid, cloud, node, leaf)


def _check_publications(grid: TreeGrid, cloud: str, node: EndPointNode, leaf: LeafBroker) -> None:
    registry, believed = leaf.registry, dict(node.application.publications)
    held = {
        name: registry.publications[name].variable
        for name in registry.endpoints[node.name].publications
    }
    if grid.brokers[cloud].lives > 1:
        # A broker that dies does not tell whose publications it has withdrawn, as below.
        withdrawn = grid.brokers[cloud].journal.facts.withdrawn
        believed = {
            name: variable
            for name, variable in believed.items()
            if name in held or variable.variable_id not in withdrawn
        }
    if held != believed:
        raise PropertyBroken(RULE, f"{node.name} publishes {sorted(held)}, not {sorted(believed)}")


def _check_contracts(grid: TreeGrid, cloud: str, node: EndPointNode, leaf: LeafBroker) -> None:
    registry, application = leaf.registry, node.application
    endpoint = registry.endpoints[node.name]
    held = registry.contracts_of(endpoint)
    known = {one.number for one in application.contracts.values() if one.number}
    known |= application.caught.keys()
    extra, missing = held - known, known - held
    if grid.brokers[cloud].lives > 1:
        # A broker that dies does not send its pending notices, nor does the next one.
        extra = {one for one in extra if not _pattern_of(leaf, one)}
        missing -= grid.brokers[cloud].journal.facts.ended
    if extra or missing:
        raise PropertyBroken(
            RULE, f"{node.name}: contracts nobody knows {extra}, believed in but gone {missing}"
        )
    patterns = {one.number for one in application.patterns.values() if one.number}
    if grid.brokers[cloud].lives > 1:
        patterns -= grid.brokers[cloud].journal.facts.ended
    if endpoint.patterns != patterns:
        raise PropertyBroken(RULE, f"{node.name}: patterns {endpoint.patterns}, not {patterns}")
    for contract in application.contracts.values():
        found = registry.subscriptions.get(contract.number)
        asked = registry.tree.asked.get(contract.number)
        record = found.record if found is not None else asked.record if asked is not None else None
        if record is not None and contract.is_qos_certain and record.qos != contract.qos:
            raise PropertyBroken(RULE, f"{node.name}: {contract.number} has {record.qos}")


def _pattern_of(leaf: LeafBroker, number: int) -> int:
    asked = leaf.registry.tree.asked.get(number)
    if asked is not None:
        return asked.record.pattern_id
    return leaf.registry.subscriptions[number].record.pattern_id


def check_all_is_empty(grid: TreeGrid) -> None:
    """Check that no broker has anything of the end-points once all have left."""
    for cloud, leaf in grid.leaves().items():
        check_nothing_is_left(leaf)
        tree = leaf.registry.tree
        left = {
            "asked": len(tree.asked) + len(tree.asked_by),
            "answers": len(tree.begun),
            "segments": len(tree.segments),
            "variables of others": len(leaf.registry.foreign),
            "floods": sum(not found.is_over for found in leaf.floods.variables.values()),
        }
        if any(left.values()):
            raise PropertyBroken("nothing is left behind", f"{cloud}: {left}")
    for name, broker in grid.qos_brokers().items():
        held = [holding.key for holding, _ in broker.state.holdings.all()]
        if held:
            raise PropertyBroken("nothing is left behind", f"{name} holds {held[:5]}")
