"""Promises of an answer in a tree: it is on the disk, on the routers, and survives the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.leaf_broker import LeafBroker
from gridstat.broker.records.parent_state import contract_name
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    DoneOutcome,
    GrantedOutcome,
    PublishedOutcome,
    RefusedOutcome,
    Subscribe,
    Unsubscribe,
)
from gridstat.net.command.frames import decode_outcomes
from lab.simulation.modes import check_answer
from lab.simulation.properties.answers import DURABLE, INSTALLED, check_apart
from lab.simulation.tree.properties.refusals import check_refused
from lab.simulation.world import PropertyBroken
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from gridstat.broker.capacity.negotiation import Quality
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import EndPointCommand, GrantedPath, Outcome
    from lab.simulation.application import Asked
    from lab.simulation.endpoint_node import EndPointNode
    from lab.simulation.journal import SimulatedJournal
    from lab.simulation.tree.broker_node import TreeBrokerNode
    from lab.simulation.tree.grid import TreeGrid
    from lab.simulation.tree.properties.closed_channels import ClosedChannels


class TreeAnswers:
    """Checks of answers; `acknowledged` are the granted contracts, by the subscriber's cloud."""

    def __init__(self, grid: TreeGrid, closed: ClosedChannels) -> None:
        self._grid = grid
        self._closed = closed
        self.acknowledged: dict[str, set[int]] = {cloud: set() for cloud in grid.clouds}
        self.granted: dict[str, Quality] = {}
        """Quality in the last answer about a contract, to its request or its change."""

    def answered(self, node: EndPointNode, asked: Asked, outcomes: tuple[Outcome, ...]) -> None:
        """Check that all of an answer that an application gets is on the disk of its own cloud."""
        check_answer(asked.command, outcomes)
        cloud = cloud_of(node.name)
        journal = self._grid.brokers[cloud].journal
        facts = journal.facts
        for outcome in outcomes:
            if isinstance(outcome, GrantedOutcome):
                check_apart(outcome)
                if not journal.has_ever_granted(outcome.subscription_id):
                    raise PropertyBroken(
                        DURABLE, f"{node.name} was granted {cloud}#{outcome.subscription_id}"
                    )
                if outcome.subscription_id not in facts.subscribed:
                    continue  # The answer is older than the loss of the journal.
                self.acknowledged[cloud].add(outcome.subscription_id)
                if outcome.granted:
                    self.granted[f"{cloud}#{outcome.subscription_id}"] = outcome.granted
            elif (
                isinstance(outcome, PublishedOutcome)
                and outcome.variable.variable_id not in facts.owner
            ):
                raise PropertyBroken(DURABLE, f"{node.name} publishes {outcome.variable.name}")
        command = asked.command
        self._check_refusals(node, command, outcomes)
        if isinstance(command, Unsubscribe):
            for number, outcome in zip(command.subscription_ids, outcomes, strict=False):
                has_ended = journal.has_ended(number, asked.asked_ns)
                if isinstance(outcome, DoneOutcome) and not has_ended:
                    raise PropertyBroken(DURABLE, f"the end of {cloud}#{number}")
        elif isinstance(command, ChangeSubscription):
            if isinstance(outcomes[0], GrantedOutcome):
                self._changed(journal, node, command)
            else:
                self._forget(node, asked)

    def _check_refusals(
        self, node: EndPointNode, command: EndPointCommand, outcomes: tuple[Outcome, ...]
    ) -> None:
        if isinstance(command, Subscribe):
            for wanted, outcome in zip(command.subscriptions, outcomes, strict=False):
                if isinstance(outcome, RefusedOutcome):
                    check_refused(self._grid, node.name, wanted, outcome, self._closed)

    def _forget(self, node: EndPointNode, asked: Asked) -> None:
        """Forget the granted quality after a failed change, since the request may be repeated."""
        if isinstance(asked.command, ChangeSubscription):
            self.granted.pop(f"{cloud_of(node.name)}#{asked.command.subscription_id}", None)

    def not_answered(self, node: EndPointNode, asked: Asked) -> None:
        """Check that a request is answered if the seed has no fault."""
        self._forget(node, asked)
        if self._grid.swarm.is_quiet:
            raise PropertyBroken("requests are answered", f"{node.name} waited for {asked.command}")

    @staticmethod
    def _changed(
        journal: SimulatedJournal, node: EndPointNode, command: ChangeSubscription
    ) -> None:
        if not journal.has_written(command.subscription_id, command.qos):
            raise PropertyBroken(DURABLE, f"the change of {command.subscription_id} by {node.name}")

    def journal_lost(self, name: str) -> None:
        """Forget what was acknowledged, and of a broker above clouds all that was granted.

        End-points learn that their cloud has forgotten them and ask again; an owner that has
        forgotten a contract is told of it, and decides it anew.
        """
        if name in self.acknowledged:
            self.acknowledged[name].clear()
        kept = name in self.acknowledged
        for contract in [one for one in self.granted if not kept or one.startswith(f"{name}#")]:
            del self.granted[contract]

    def restored(self, node: TreeBrokerNode) -> None:
        """Check that a restarted leaf broker knows all that it ever acknowledged."""
        broker = node.broker
        if not isinstance(broker, LeafBroker):
            return
        registry, facts = broker.registry, node.journal.facts
        acknowledged = self.acknowledged[node.name]
        for number in sorted(acknowledged):
            if number in facts.ended:
                acknowledged.discard(number)
            elif not any(
                number in held
                for held in (
                    registry.subscriptions,
                    registry.patterns,
                    registry.unplaced,
                    registry.tree.asked,
                )
            ):
                raise PropertyBroken(
                    "what was acknowledged survives", f"{node.name}#{number} is forgotten"
                )

    def returned(self, node: TreeBrokerNode, body: bytes) -> None:
        """Check that one path of each new contract in a leaf broker's answer is up, hop by hop."""
        broker = node.broker
        if b"GrantedOutcome" not in body or not isinstance(broker, LeafBroker):
            return
        for outcome in decode_outcomes(body).outcomes:
            if not isinstance(outcome, GrantedOutcome) or outcome.variable is None:
                continue
            number = int(outcome.variable.variable_id)
            is_whole = not outcome.degraded and self._is_published(outcome.variable)
            if not is_whole or any(self._is_up(path, number) for path in outcome.paths):
                continue
            if self._is_first(broker, outcome.subscription_id):
                raise PropertyBroken(
                    INSTALLED, f"no way of {node.name}#{outcome.subscription_id} is up"
                )

    def _is_published(self, variable: StatusVariable) -> bool:
        """Return whether the variable is still published.

        Its cloud may have withdrawn it meanwhile, and another variable may have its name.
        """
        leaf = self._grid.leaf(cloud_of(variable.name))
        found = None if leaf is None else leaf.registry.publications.get(variable.name)
        return found is not None and found.variable.variable_id == variable.variable_id

    def _is_first(self, broker: LeafBroker, number: int) -> bool:
        """Return whether the contract has neither ended nor moved since its grant.

        A cloud may move its segment while the answer is being written; the answer then names the
        new path, and the replaced one still carries the events. Or it ends its segment, since a
        rule that allowed it is revoked.
        """
        registry = broker.registry
        found = registry.subscriptions.get(number)
        if found is not None:
            return not found.record.generation
        asked = registry.tree.asked.get(number)
        if asked is None or asked.is_ending or asked.granted is None:
            return False
        if asked.granted.generation or asked.record.generation:
            return False
        contract = contract_name(registry.cloud, number)
        clouds = {piece.owner for path in asked.granted.paths for piece in path.pieces}
        for cloud, leaf in self._grid.leaves().items():
            held = leaf.registry.tree.segment(contract, 0)
            if held and leaf.registry.subscriptions[held].record.generation:
                return False
            if not held and cloud in clouds:
                return False
        return True

    def _is_up(self, path: GrantedPath, variable_id: int) -> bool:
        for name, channel_id in zip(path.routers, (*path.channel_ids, 0), strict=True):
            router = self._grid.routers[name]
            if not router.is_up or not router.is_whole:
                continue  # The router has crashed since its confirmation.
            rows = [row for row in router.table.paths.values() if row.variable_id == variable_id]
            if not any(not channel_id or row.channel_id == channel_id for row in rows):
                return False
        return True
