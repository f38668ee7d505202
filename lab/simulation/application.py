"""A simulated application: its requests, and the state that it has from the broker's messages.

It trusts the broker, as `endpoint/subscription_registry.py` does: an identifier that has ended
stays ended, whatever arrives late by the second edge. At rest the broker must hold exactly what the
applications have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.endpoint.session_events import Requested
from gridstat.model.errors import StorageFailed
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    ChangeSubscription,
    Detach,
    GrantedOutcome,
    Matched,
    PublicationChanged,
    Publish,
    PublishedOutcome,
    RefusedOutcome,
    Subscribe,
    Unpublish,
    Unpublished,
    Unsubscribe,
)
from lab.simulation.world import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from gridstat.endpoint.session_events import PublicationRestored, SubscriptionRestored
    from gridstat.model.qos import ModalQos
    from gridstat.model.rate_law import Period
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import EndPointCommand, Notice, Outcome
    from lab.simulation.endpoint_node import EndPointNode

WITHIN_NS: Final = 10 * NS_PER_S
AGAIN_NS: Final = 500 * NS_PER_MS


@dataclass(slots=True)
class Contract:
    """A subscription or pattern of the application; `number` is 0 while the cloud has lost it."""

    label: str
    name: str
    qos: ModalQos
    number: int
    is_qos_certain: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that waits for its answer."""

    command: EndPointCommand
    asked_ns: int


class Application:
    """Application of one end-point; `publications`, `contracts` and `caught` are what it has."""

    def __init__(self, node: EndPointNode) -> None:
        self.node = node
        self.publications: dict[str, StatusVariable] = {}
        self.contracts: dict[str, Contract] = {}
        self.patterns: dict[str, Contract] = {}
        self.caught: dict[int, int] = {}
        self.orphans: dict[int, int] = {}
        """Catches of patterns unknown here: answered later, or of an earlier process."""
        self.over: set[int] = set()
        self.withdrawn: set[str] = set()
        """Publications that the cloud has ended, and that the session asks for again."""
        self.lacking: set[int] = set()
        """Patterns that were granted again without some of the names that they match."""
        self.gone_variables: set[int] = set()
        self.waiting: dict[int, Asked] = {}
        self.has_left = False
        self.unanswered = 0
        self._endings = 0
        self._token = 0
        self._labels = 0

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self._endings

    @property
    def has_lost_contracts(self) -> bool:
        """Return whether contracts wait to be granted again by a cloud that forgot them."""
        return any(not one.number for one in (*self.contracts.values(), *self.patterns.values()))

    @property
    def is_ending_all(self) -> bool:
        """Return whether a request to end everything waits; it might end a new contract too."""
        return any(asked.command == Unsubscribe() for asked in self.waiting.values())

    def next_label(self) -> str:
        self._labels += 1
        return f"s{self._labels}"

    def ask(self, command: EndPointCommand) -> None:
        """Send a request; what it ends counts as ended from now on."""
        node = self.node
        self._token += 1
        self.waiting[self._token] = Asked(command, node.world.now_ns)
        match command:
            case Unpublish(names=names):
                for name in names:
                    self.publications.pop(name, None)
            case Unsubscribe(subscription_ids=ids):
                for number in ids or self._all_numbers():
                    self._end(number)
            case Detach():
                self._leave()
            case ChangeSubscription(subscription_id=number):
                self._doubt(number)
        node.tell(Requested(self._token, command, WITHIN_NS))

    def _all_numbers(self) -> list[int]:
        return [one.number for one in (*self.contracts.values(), *self.patterns.values())]

    def _leave(self) -> None:
        self.has_left = True
        self.publications.clear()
        for number in self._all_numbers():
            self._end(number)
        self.caught.clear()

    def _doubt(self, number: int) -> None:
        for contract in self.contracts.values():
            if contract.number == number:
                contract.is_qos_certain = False

    def _end(self, number: int) -> None:
        self.over.add(number)
        self.caught.pop(number, None)
        self.orphans.pop(number, None)
        for held in (self.contracts, self.patterns):
            for label in [one.label for one in held.values() if one.number == number]:
                del held[label]
        for caught in [one for one, pattern in self.caught.items() if pattern == number]:
            self._end(caught)

    # Answers and notices.

    def answered(self, token: int, outcomes: tuple[Outcome, ...]) -> None:
        asked = self.waiting.pop(token)
        command = asked.command
        self.node.judge.answered(self.node, asked, outcomes)
        match command:
            case Publish():
                for outcome in outcomes:
                    if isinstance(outcome, PublishedOutcome) and not self.has_left:
                        self._published(outcome.variable)
            case Subscribe(subscriptions=subscriptions):
                for wanted, outcome in zip(subscriptions, outcomes, strict=False):
                    if isinstance(outcome, GrantedOutcome) and not self.has_left:
                        self._granted(Contract(wanted.label, wanted.name, wanted.qos, 0), outcome)
            case ChangePublication():
                self._period_changed(outcomes[0])
            case ChangeSubscription():
                self._quality_changed(command, outcomes[0])
            case Unpublish() | Unsubscribe() | Detach():
                self._ended(command, outcomes)
            case _:
                pass

    def _published(self, variable: StatusVariable) -> None:
        """Note a publication, unless the notice of its end has come before the answer."""
        if variable.variable_id in self.gone_variables:
            self.publications.pop(variable.name, None)
            self.withdrawn.add(variable.name)
        else:
            self.withdrawn.discard(variable.name)
            self.publications[variable.name] = variable

    def _granted(self, contract: Contract, outcome: GrantedOutcome) -> None:
        number = contract.number = outcome.subscription_id
        if number in self.over:
            return  # It was withdrawn while the answer was in transit.
        held = self.patterns if outcome.variable is None else self.contracts
        held[contract.label] = contract
        self._adopt(number)

    def _adopt(self, pattern_id: int) -> None:
        """Move catches to their pattern; they may arrive before the pattern's own answer."""
        for number in [one for one, found in self.orphans.items() if found == pattern_id]:
            self.caught[number] = self.orphans.pop(number)

    def _period_changed(self, outcome: Outcome) -> None:
        if isinstance(outcome, PublishedOutcome):
            variable = outcome.variable
            if variable.name in self.publications:
                self._published(variable)
                self.node.wanted[variable.name] = variable.period

    def _quality_changed(self, command: ChangeSubscription, outcome: Outcome) -> None:
        for contract in self.contracts.values():
            if contract.number == command.subscription_id:
                contract.is_qos_certain = True
                if isinstance(outcome, GrantedOutcome):
                    contract.qos = command.qos

    def _ended(self, command: EndPointCommand, outcomes: tuple[Outcome, ...]) -> None:
        """Repeat a request to end something that was refused because the disk was full."""
        refused = [one for one in outcomes if isinstance(one, RefusedOutcome)]
        if any(one.code == StorageFailed.code for one in refused):
            self._endings += 1
            self.node.world.after(AGAIN_NS, self._again, command, self.node.process)
        elif isinstance(command, Detach):
            self.node.leave()

    def _again(self, command: EndPointCommand, process: int) -> None:
        if self.node.process == process:
            self._endings -= 1
            self.ask(command)

    def not_answered(self, token: int) -> None:
        """Count a request without an answer; the session undoes what may still be granted."""
        asked = self.waiting.pop(token)
        self.unanswered += 1
        self.node.judge.not_answered(self.node, asked)

    def notified(self, notice: Notice) -> None:
        match notice:
            case Unpublished(subscription_id=0, name=name, variable_id=variable_id):
                self.gone_variables.add(variable_id)
                known = self.publications.get(name)
                if known is not None and known.variable_id == variable_id:
                    del self.publications[name]
                    self.withdrawn.add(name)
            case Unpublished(subscription_id=number, is_over=True):
                self._end(number)
            case Matched(pattern_id=pattern_id, granted=granted):
                number = granted.subscription_id
                if number not in self.over and pattern_id not in self.over:
                    is_known = any(one.number == pattern_id for one in self.patterns.values())
                    (self.caught if is_known else self.orphans)[number] = pattern_id
            case PublicationChanged():
                pass
            case _:
                pass

    # The cloud has forgotten everything.

    def lost_all(self) -> None:
        for contract in (*self.contracts.values(), *self.patterns.values()):
            self.over.add(contract.number)
            contract.number = 0
        self.over.update(self.caught)
        self.caught.clear()
        self.orphans.clear()
        self.withdrawn.update(self.publications)
        self.publications.clear()

    def publication_restored(self, instruction: PublicationRestored) -> None:
        if isinstance(instruction.outcome, PublishedOutcome):
            self._published(instruction.outcome.variable)

    def subscription_restored(self, instruction: SubscriptionRestored) -> None:
        contract = self.contracts.get(instruction.label) or self.patterns.get(instruction.label)
        if isinstance(instruction.outcome, GrantedOutcome) and contract is not None:
            contract.number = instruction.outcome.subscription_id
            if instruction.outcome.degraded:
                self.lacking.add(contract.number)
            if contract.number in self.over:
                self._end(contract.number)
            else:
                self._adopt(contract.number)

    def wanted_period(self, name: str) -> Period | None:
        return self.node.wanted[name]
