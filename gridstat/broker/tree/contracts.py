"""Contracts that this broker owns: asked from below, planned, decided, granted, ended.

What a broker in the middle does not own it passes up, and the answers down, by the cloud in the
contract's name. It keeps what is on its way until it is answered, so that a session that is lost
loses no question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.broker.requests.outcomes import refused
from gridstat.broker.tree.damage import narrow
from gridstat.broker.tree.decisions import granted_word, holding_of, is_of, qualities_of
from gridstat.broker.tree.endings import Endings, EndingsAbove
from gridstat.broker.tree.records import Holding, HoldingTaken, Stage, body_of
from gridstat.broker.tree.transactions import Transaction
from gridstat.model.errors import (
    GridStatError,
    NoSuchSubscription,
    NoSuchVariable,
    QuotaReached,
    StorageFailed,
)
from gridstat.model.qos import check_modes_defined
from gridstat.net.command.stretch_messages import (
    AskContract,
    ContractEnded,
    ContractGranted,
    ContractRefused,
    EndContract,
    LookedUp,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.tree.commits import Commits
    from gridstat.broker.tree.coordinator import Coordinator
    from gridstat.broker.tree.crossings import BorderGraph
    from gridstat.broker.tree.damage import Damage, Impaired
    from gridstat.broker.tree.desk import TreeDesk
    from gridstat.broker.tree.lookups import Lookups
    from gridstat.broker.tree.nearness import Subscribers
    from gridstat.broker.tree.parting import Parting
    from gridstat.net.command.endpoint_messages import RefusedOutcome


class Contracts:
    """A contract is decided when its holding is durable, and granted when that is up.

    `asked` are the questions that are being worked on, or are on their way up.
    """

    def __init__(
        self,
        desk: TreeDesk,
        graph: BorderGraph,
        lookups: Lookups,
        coordinator: Coordinator,
        commits: Commits,
        parting: Parting,
    ) -> None:
        self._desk = desk
        self._graph = graph
        self._lookups = lookups
        self._coordinator = coordinator
        self._commits = commits
        self._parting = parting
        self._endings = Endings(desk, commits, parting)
        self._subscribers: Subscribers = parting.subscribers
        self._asked: dict[str, AskContract] = {}
        self._later: dict[str, AskContract] = {}
        self.endings_above = EndingsAbove(desk)
        self.replanned: dict[str, int] = {}
        self.settled: Callable[[str], None] = _nothing
        self.decided: Callable[[Holding], None] = _nothing
        self.not_replanned: Callable[[str], None] = _nothing
        self.state_of: Callable[[Holding], Impaired] = _whole
        """What does not work of a contract at the moment."""

    def __len__(self) -> int:
        return len(self._asked)

    # Questions from below.

    def ask(self, child: str, message: AskContract) -> None:
        self._subscribers.learn(message.subscriber, message.ends)
        if not self._is_own(message):
            self._pass_up(child, message)
            return
        contract, holdings = message.contract, self._desk.state.holdings
        open_now = self._asked.get(contract)
        if open_now is not None or contract in self.replanned:
            is_open = open_now is not None and open_now.name == message.name
            if open_now is None or not is_open or message.generation > open_now.generation:
                self._later[contract] = message
            return
        held = holdings.current(contract)
        is_other = held is not None and not is_of(held, message)
        if held is not None and not is_other:
            known = body_of(held)
            if message.generation < known.asked:
                return
            if message.generation == known.asked and message.qos == known.qos:
                self._grant(held)
                return
        if self._is_busy(message):
            return
        self._asked[contract] = message
        if is_other:
            # The cloud has lost its journal, and counts its contracts anew.
            self.settled(contract)
            self._endings.end(contract, lambda: self._look_up(message))
        else:
            self._look_up(message)

    def _look_up(self, message: AskContract) -> None:
        self._lookups.ask(message.name, lambda found: self._looked_up(message, found))

    def end(self, child: str, message: EndContract) -> None:
        """Durably over before anybody hears of it; said again, it is confirmed again."""
        contract = message.contract
        self._later.pop(contract, None)
        asked = self._asked.pop(contract, None)
        self._give_up(contract)
        holdings = self._desk.state.holdings
        owned = [found for found in holdings.of(contract) if found.is_owned]
        if not owned and self._desk.has_parent and not self._is_own(asked):
            self.endings_above.say(child, message)
            return
        self.end_now(contract, None)

    def end_now(self, contract: str, why: RefusedOutcome | None) -> None:
        """Give everything of a contract back; the subscriber's cloud hears of it once durable."""
        self.settled(contract)
        told = ContractEnded(term=self._desk.term, contract=contract, refused=why)
        self._endings.end(contract, lambda: self._send_down(contract, told))

    # Passing on.

    def _pass_up(self, child: str, message: AskContract) -> None:
        if not self._desk.has_parent:
            cloud = message.name.partition("/")[0]
            unknown = NoSuchVariable(
                f"no cloud {cloud} is known from here to the root",
                hint="is its broker running, and is it a child of one below the root?",
            )
            self._refuse(message, refused(unknown))
            return
        if message.contract not in self._asked and self._is_busy(message):
            return
        self._asked[message.contract] = message
        self._desk.send_parent(self._raised(child, message))

    def _raised(self, child: str, message: AskContract) -> AskContract:
        ends = self._graph.ends_above(child, message.ends)
        return structs.replace(message, term=self._desk.term, ends=ends)

    def parent_joined(self) -> None:
        """Say again what the parent has not answered."""
        families = self._desk.state.families
        for contract, message in self._asked.items():
            child = families.child_of(contract.partition("#")[0])
            if child is not None and not self._is_own(message):
                self._desk.send_parent(self._raised(child, message))
        self.endings_above.parent_joined()

    def pass_down(self, message: ContractGranted | ContractRefused | ContractEnded) -> None:
        """The answer of an owner above."""
        asked = self._asked.get(message.contract)
        if isinstance(message, ContractEnded):
            self.endings_above.confirmed(message.contract)
            self._asked.pop(message.contract, None)
        elif asked is not None and message.answered >= asked.generation:
            del self._asked[message.contract]
        self._send_down(message.contract, structs.replace(message, term=self._desk.term))

    def _is_own(self, asked: AskContract | None) -> bool:
        """Whether it is this broker's to decide; also while the publisher's cloud has left."""
        if asked is None:
            return False
        families = self._desk.state.families
        publisher = families.child_at(asked.name)
        if publisher is None:
            held = self._desk.state.holdings.current(asked.contract)
            return held is not None and is_of(held, asked)
        return publisher != families.child_of(asked.contract.partition("#")[0])

    def _send_down(
        self, contract: str, message: ContractGranted | ContractRefused | ContractEnded
    ) -> None:
        child = self._desk.state.families.child_of(contract.partition("#")[0])
        if child is not None:
            self._desk.send_child(child, message)

    # From a question to a decision.

    def _looked_up(self, asked: AskContract, found: LookedUp) -> None:
        if self._asked.get(asked.contract) is not asked:
            return
        if found.variable is None:
            why = found.refused or refused(NoSuchVariable(f"{asked.name} is not published"))
            self._close(asked, why)
            if why.code == NoSuchVariable.code and self._is_held(asked.contract):
                self.end_now(asked.contract, why)  # A change of what has lost its variable.
            return
        try:
            # A cloud of an older release lets any mode pass.
            check_modes_defined(asked.qos.modes, self._desk.settings.modes_defined)
            transaction = self._transaction(asked, found)
        except GridStatError as error:
            self._close(asked, refused(error))
            return
        self._coordinator.begin(transaction)

    def _transaction(self, asked: AskContract, found: LookedUp) -> Transaction:
        variable = found.variable
        assert variable is not None
        held = self._desk.state.holdings.current(asked.contract)
        generation = asked.generation
        for found_here in self._desk.state.holdings.of(asked.contract):
            # Also one that is leaving: its children may not have heard of that yet.
            generation = max(generation, found_here.generation + 1)
        transaction = Transaction(
            (asked.contract, generation),
            variable,
            qualities_of(asked, variable),
            lambda done, why: self._finished(asked, done, why),
        )
        families = self._desk.state.families
        transaction.starts = self._subscribers.starts(variable.name, found.starts)
        child = families.child_of(asked.contract.partition("#")[0]) or ""
        transaction.ends = self._subscribers.ends(asked.subscriber, child)
        transaction.subscriber = asked.subscriber
        transaction.ends_us = self._desk.state.channels.ends_us
        transaction.replaces = -1 if held is None else held.generation
        return transaction

    def _finished(self, asked: AskContract, done: Transaction, why: RefusedOutcome | None) -> None:
        if why is not None:
            self._close(asked, why)
            return
        holding = holding_of(asked, done)
        self._coordinator.hand_over(done)

        def failed(reason: str) -> None:
            self._parting.give_back(holding.key, holding.children)
            self._close(asked, refused(StorageFailed(f"nothing was granted: {reason}")))

        self._desk.decide(
            [HoldingTaken(holding=holding, stage=Stage.COMMITTED)],
            lambda: self._decided(asked.contract, holding),
            failed,
        )

    def _decided(self, contract: str, holding: Holding) -> None:
        if self._desk.state.holdings.current(contract) == holding:
            self._grant(holding)
        self._asked.pop(contract, None)
        self.replanned.pop(contract, None)
        self.settled(contract)
        self.decided(holding)
        self._go_on(contract)

    def _grant(self, holding: Holding) -> None:
        """Commit it everywhere; when that is done, say so, and let go of what it supersedes."""
        if self._commits.is_waiting(holding.key):
            self._commits.say_if_late(holding.key)
            return

        def granted(troubles: tuple[str, ...]) -> None:
            holdings = self._desk.state.holdings
            if holdings.current(holding.contract) != holding:
                return
            words, down = self.state_of(holding)
            message = granted_word(self._desk, holding, (*troubles, *words), down)
            if holding.contract not in self._later:
                # A change that waits is answered by what comes of it, not by what it finds.
                self._send_down(holding.contract, message)

        def up(troubles: tuple[str, ...]) -> None:
            granted(troubles)
            for found in self._parting.leave_superseded(holding):
                self._commits.forget(found.key)

        self._commits.start(holding.key, holding.children, up, granted)

    def resume(self) -> None:
        """After a start: what was decided and perhaps not told of is brought to its end."""
        holdings = self._desk.state.holdings
        for contract in sorted({found.contract for found in holdings.superseded()}):
            held = holdings.current(contract)
            if held is not None:
                self._grant(held)

    # Anew, after a failure.

    def replan(self, contract: str, damage: Callable[[], Damage]) -> None:
        """Another generation beside the one that is broken, if there is a way round.

        What is broken of it is asked once the plan begins: a look-up may take long.
        """
        held = self._desk.state.holdings.current(contract)
        if held is None or contract in self._asked or contract in self.replanned:
            return
        body = body_of(held)
        if body.qos is None:
            return
        self.replanned[contract] = held.generation
        asked = AskContract(
            term=0,
            contract=contract,
            generation=body.asked,
            name=body.variable.name,
            subscriber=body.subscriber,
            qos=body.qos,
            type_encoded=body.type_encoded,
        )

        def looked_up(found: LookedUp) -> None:
            if contract not in self.replanned:
                return
            if found.variable is None:
                self._replan_failed(contract)
                if found.refused is not None and found.refused.code == NoSuchVariable.code:
                    self.end_now(contract, found.refused)  # Its cloud died before it told us.
                return
            try:
                transaction = self._transaction(asked, found)
            except GridStatError as error:  # It was published anew, as another.
                self._replan_failed(contract)
                self.end_now(contract, refused(error))
                return
            transaction.finished = lambda done, why: self._replanned_as(asked, done, why)
            if narrow(transaction, held, damage()):
                self._coordinator.begin(transaction)
            else:
                self._replan_failed(contract)

        self._lookups.ask(body.variable.name, looked_up)

    def _replanned_as(
        self, asked: AskContract, done: Transaction, why: RefusedOutcome | None
    ) -> None:
        if why is not None:
            self._desk.note("not_replanned", contract=asked.contract, reason=why.reason)
            self._replan_failed(asked.contract)
            if why.code == NoSuchSubscription.code:
                self.end_now(asked.contract, why)  # Its subscriber's cloud knows nothing of it.
        else:
            self._finished(asked, done, None)

    def _replan_failed(self, contract: str) -> None:
        self.replanned.pop(contract, None)
        self._go_on(contract)
        self.not_replanned(contract)

    def tell_state(self, contract: str) -> None:
        """Say to the subscriber's cloud which paths work no longer, or again."""
        held = self._desk.state.holdings.current(contract)
        if held is not None and held.is_owned:
            self._desk.when_durable(lambda: self._say_state(held))

    def _say_state(self, holding: Holding) -> None:
        if self._desk.state.holdings.current(holding.contract) != holding:
            return
        if holding.contract in self._later or self._commits.is_waiting(holding.key):
            return  # It is told with the answer.
        self._send_down(
            holding.contract, granted_word(self._desk, holding, *self.state_of(holding))
        )

    # Small things.

    def _is_busy(self, message: AskContract) -> bool:
        if len(self._asked) < self._desk.settings.transactions_max:
            return False
        busy = QuotaReached("this broker is busy with as many requests as it may be")
        self._refuse(message, refused(busy))
        return True

    def _is_held(self, contract: str) -> bool:
        held = self._desk.state.holdings.current(contract)
        return held is not None and held.is_owned

    def _give_up(self, contract: str) -> None:
        self.replanned.pop(contract, None)
        for key in self._coordinator.keys_of(contract):
            self._coordinator.give_up(key)

    def _close(self, asked: AskContract, why: RefusedOutcome) -> None:
        self._asked.pop(asked.contract, None)
        if self.replanned.pop(asked.contract, None) is None:
            self._refuse(asked, why)
        self._go_on(asked.contract)

    def _refuse(self, asked: AskContract, why: RefusedOutcome) -> None:
        self._send_down(
            asked.contract,
            ContractRefused(
                term=self._desk.term,
                contract=asked.contract,
                generation=asked.generation,
                refused=why,
            ),
        )

    def _go_on(self, contract: str) -> None:
        """A change that came while something else was decided."""
        later = self._later.pop(contract, None)
        child = self._desk.state.families.child_of(contract.partition("#")[0])
        if later is not None and child is not None:
            self.ask(child, later)


def _whole(_: Holding) -> Impaired:
    """Nothing is known to be wrong."""
    return (), ()


def _nothing(_: object) -> None:
    """Nobody listens yet."""
