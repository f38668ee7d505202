"""Promises of an answer: it is on the disk, it is on the routers, and it survives the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    ContractChanged,
    DoneOutcome,
    GrantedOutcome,
    Matched,
    PublicationChanged,
    PublishedOutcome,
    Unsubscribe,
)
from gridstat.net.command.frames import decode_notice, decode_outcomes
from lab.simulation.modes import check_answer
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.net.command.endpoint_messages import GrantedPath, Outcome
    from lab.simulation.application import Asked
    from lab.simulation.cloud import Cloud
    from lab.simulation.endpoint_node import EndPointNode

DURABLE: Final = "acknowledged is durable"
INSTALLED: Final = "granted is installed"
DISJOINT: Final = "an answer says how far paths are apart"


class Answers:
    """Checks of answers; `acknowledged` are the contracts that an application was granted."""

    def __init__(self) -> None:
        self._cloud: Cloud | None = None
        self.acknowledged: set[int] = set()

    def watch(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def answered(self, node: EndPointNode, asked: Asked, outcomes: tuple[Outcome, ...]) -> None:
        """Check that all of an answer that an application gets is on the disk."""
        assert self._cloud is not None
        check_answer(asked.command, outcomes)
        journal = self._cloud.journal
        for outcome in outcomes:
            if isinstance(outcome, GrantedOutcome):
                self._granted(node, outcome.subscription_id)
                check_apart(outcome)
                if outcome.variable is None and outcome.degraded:
                    # The answer to a pattern says which names did not fit.
                    self._cloud.broker_node.patterns_refused.add(outcome.subscription_id)
            elif (
                isinstance(outcome, PublishedOutcome)
                and outcome.variable.variable_id not in journal.facts.owner
            ):
                raise PropertyBroken(DURABLE, f"{node.name} publishes {outcome.variable.name}")
        command = asked.command
        if isinstance(command, Unsubscribe):
            for number, outcome in zip(command.subscription_ids, outcomes, strict=False):
                has_ended = journal.has_ended(number, asked.asked_ns)
                if isinstance(outcome, DoneOutcome) and not has_ended:
                    raise PropertyBroken(DURABLE, f"the end of subscription {number}")
        elif isinstance(command, ChangeSubscription) and isinstance(outcomes[0], GrantedOutcome):
            self._changed(node, command)

    def not_answered(self, node: EndPointNode, asked: Asked) -> None:
        """Check that a request is answered if the seed has no fault."""
        assert self._cloud is not None
        if self._cloud.swarm.is_quiet:
            raise PropertyBroken("requests are answered", f"{node.name} waited for {asked.command}")

    def _granted(self, node: EndPointNode, number: int) -> None:
        assert self._cloud is not None
        if not self._cloud.journal.has_ever_granted(number):
            raise PropertyBroken(DURABLE, f"{node.name} was granted subscription {number}")
        if number in self._cloud.journal.facts.subscribed:
            self.acknowledged.add(number)

    def journal_lost(self) -> None:
        """Forget what was acknowledged: end-points learn of the loss, and ask again."""
        self.acknowledged.clear()

    def _changed(self, node: EndPointNode, command: ChangeSubscription) -> None:
        """Check that the disk has this quality; an application sends one change after another."""
        assert self._cloud is not None
        number = command.subscription_id
        if not self._cloud.journal.has_written(number, command.qos):
            raise PropertyBroken(DURABLE, f"the change of subscription {number} by {node.name}")

    def restored(self, broker: LeafBroker) -> None:
        """Check that a restarted broker knows all that it ever acknowledged."""
        assert self._cloud is not None
        registry, facts = broker.registry, self._cloud.journal.facts
        for number in sorted(self.acknowledged):
            if number in facts.ended:
                self.acknowledged.discard(number)
            elif (
                number not in registry.subscriptions
                and number not in registry.patterns
                and number not in registry.unplaced
            ):
                raise PropertyBroken(
                    "what was acknowledged survives", f"subscription {number} is forgotten"
                )

    def returned(self, broker: LeafBroker, body: bytes) -> None:
        """Check that one path of each contract in the broker's answer is up, hop by hop."""
        if b"GrantedOutcome" not in body:
            return
        for outcome in decode_outcomes(body).outcomes:
            if not isinstance(outcome, GrantedOutcome) or outcome.variable is None:
                continue
            found = broker.registry.subscriptions.get(outcome.subscription_id)
            if found is None or found.record.generation:
                continue  # It has ended or moved on since; `continuity.py` looks after moves.
            head = outcome.subscription_id << 16
            if not any(
                self._is_up(path, head | index << 4) for index, path in enumerate(outcome.paths)
            ):
                raise PropertyBroken(
                    INSTALLED, f"no way of subscription {outcome.subscription_id} is up"
                )

    def pushed(self, body: bytes) -> None:
        """Check that the paths in a notice are on the disk, as they are after a crash."""
        assert self._cloud is not None
        notice = decode_notice(body)
        if isinstance(notice, ContractChanged | Matched | PublicationChanged):
            number = notice.granted.subscription_id
            channels = tuple(tuple(path.channel_ids) for path in notice.granted.paths)
            if channels not in self._cloud.journal.facts.paths.get(number, set()):
                raise PropertyBroken(DURABLE, f"paths of subscription {number} in a notice")

    def _is_up(self, path: GrantedPath, path_id: int) -> bool:
        assert self._cloud is not None
        for name in path.routers:
            router = self._cloud.routers.get(name)
            if router is None or not router.is_up or not router.is_whole:
                continue  # The router has crashed since its confirmation.
            if path_id not in router.table.paths:
                return False
        return True


def check_apart(granted: GrantedOutcome) -> None:
    """Check that paths which are called disjoint share no channel, and no router but their ends."""
    # Clouds number their channels each for itself: a channel is known by its sender, too.
    channels = [
        step for path in granted.paths for step in zip(path.routers, path.channel_ids, strict=False)
    ]
    inner = [name for path in granted.paths for name in path.routers[1:-1]]
    shared = len(set(channels)) < len(channels)
    if shared or (granted.is_node_disjoint and len(set(inner)) < len(inner)):
        raise PropertyBroken(DISJOINT, f"subscription {granted.subscription_id}: {granted.paths}")
