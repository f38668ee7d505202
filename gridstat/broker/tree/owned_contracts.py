"""OwnedContracts that this broker owns: asked from below, planned, decided, granted, ended.

What a broker in the middle does not own it passes up, and the answers down, by the cloud in the
contract's name. It keeps what is on its way until it is answered, so that a session that is lost
loses no question.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from msgspec import structs

from gridstat.broker.capacity.charges import check_rate
from gridstat.broker.capacity.negotiation import band_of, replay_band
from gridstat.broker.requests.outcomes import refused
from gridstat.broker.requests.request_checks import check_type
from gridstat.broker.tree.contract_damage import narrow
from gridstat.broker.tree.transaction import Purpose, Transaction, levels
from gridstat.broker.tree.tree_operations import (
    Holding,
    HoldingBody,
    HoldingTaken,
    Stage,
    body_of,
    holding_with,
)
from gridstat.model.errors import (
    GridStatError,
    LayoutError,
    LimitReached,
    NoSuchSubscription,
    NoSuchVariable,
    QuotaReached,
    StorageFailed,
)
from gridstat.model.qos import check_modes_defined
from gridstat.model.status import ValueType
from gridstat.net.command.segment_messages import (
    AskContract,
    ContractEnded,
    ContractGranted,
    ContractRefused,
    EndContract,
    LookedUp,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.capacity.negotiation import Quality
    from gridstat.broker.tree.border_graph import BorderGraph
    from gridstat.broker.tree.contract_damage import Damage, Impaired
    from gridstat.broker.tree.coordinator import Coordinator
    from gridstat.broker.tree.membership import Membership
    from gridstat.broker.tree.publication_lookups import PublicationLookups
    from gridstat.broker.tree.segment_commits import SegmentCommits
    from gridstat.broker.tree.segment_releases import HoldingRelease
    from gridstat.broker.tree.subscriber_distances import SubscriberDistances
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.model.qos import ModalQos
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.segment_messages import EndContract


class ContractListener(Protocol):
    """Notified of decisions about contracts; knows which paths of a contract do not work."""

    def contract_settled(self, contract: str) -> None: ...

    def contract_decided(self, holding: Holding) -> None: ...

    def replan_failed(self, contract: str) -> None: ...

    def impairment_of(self, holding: Holding) -> Impaired: ...

    def damage_of(self, contract: str) -> Damage: ...


class OwnedContracts:
    """A contract is decided when its holding is durable, and granted when that is up.

    `asked` are the questions that are being worked on, or are on their way up.
    """

    def __init__(
        self,
        context: TreeContext,
        graph: BorderGraph,
        lookups: PublicationLookups,
        coordinator: Coordinator,
        commits: SegmentCommits,
        holding_release: HoldingRelease,
        membership: Membership,
        listener: ContractListener,
    ) -> None:
        self._context = context
        self._graph = graph
        self._lookups = lookups
        self._coordinator = coordinator
        self._commits = commits
        self._holding_release = holding_release
        self._listener = listener
        self._endings = ContractEndings(context, commits, holding_release)
        self._subscribers: SubscriberDistances = holding_release.subscribers
        self._asked: dict[str, AskContract] = {}
        self._later: dict[str, AskContract] = {}
        self.endings_above = ContractEndingsAbove(context, membership)
        self.replanned: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._asked)

    # Questions from below.

    def ask(self, child: str, message: AskContract) -> None:
        self._subscribers.learn(message.subscriber, message.ends)
        if not self._is_own(message):
            self._pass_up(child, message)
            return
        contract, holdings = message.contract, self._context.state.holdings
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
            self._listener.contract_settled(contract)
            self._endings.end(contract, lambda: self._look_up(message))
        else:
            self._look_up(message)

    def _look_up(self, message: AskContract) -> None:
        self._lookups.look_up(message.name, lambda found: self._looked_up(message, found))

    def end(self, child: str, message: EndContract) -> None:
        """Durably over before anybody hears of it; said again, it is confirmed again."""
        contract = message.contract
        self._later.pop(contract, None)
        asked = self._asked.pop(contract, None)
        self._give_up(contract)
        holdings = self._context.state.holdings
        owned = [found for found in holdings.of(contract) if found.is_owned]
        if not owned and self._context.has_parent and not self._is_own(asked):
            self.endings_above.say(child, message)
            return
        self.end_now(contract, None)

    def end_now(self, contract: str, why: RefusedOutcome | None) -> None:
        """Give everything of a contract back; the subscriber's cloud hears of it once durable."""
        self._listener.contract_settled(contract)
        told = ContractEnded(term=self._context.term, contract=contract, refused=why)
        self._endings.end(contract, lambda: self._send_down(contract, told))

    # Passing on.

    def _pass_up(self, child: str, message: AskContract) -> None:
        if not self._context.has_parent:
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
        self._context.send_parent(self._raised(child, message))

    def _raised(self, child: str, message: AskContract) -> AskContract:
        ends = self._graph.ends_above(child, message.ends)
        return structs.replace(message, term=self._context.term, ends=ends)

    def parent_joined(self) -> None:
        """Say again what the parent has not answered."""
        families = self._context.state.families
        for contract, message in self._asked.items():
            child = families.child_of(contract.partition("#")[0])
            if child is not None and not self._is_own(message):
                self._context.send_parent(self._raised(child, message))
        self.endings_above.parent_joined()

    def pass_down(self, message: ContractGranted | ContractRefused | ContractEnded) -> None:
        """The answer of an owner above."""
        asked = self._asked.get(message.contract)
        if isinstance(message, ContractEnded):
            self.endings_above.confirmed(message.contract)
            self._asked.pop(message.contract, None)
        elif asked is not None and message.answered >= asked.generation:
            del self._asked[message.contract]
        self._send_down(message.contract, structs.replace(message, term=self._context.term))

    def _is_own(self, asked: AskContract | None) -> bool:
        """Whether it is this broker's to decide; also while the publisher's cloud has left."""
        if asked is None:
            return False
        families = self._context.state.families
        publisher = families.child_at(asked.name)
        if publisher is None:
            held = self._context.state.holdings.current(asked.contract)
            return held is not None and is_of(held, asked)
        return publisher != families.child_of(asked.contract.partition("#")[0])

    def _send_down(
        self, contract: str, message: ContractGranted | ContractRefused | ContractEnded
    ) -> None:
        child = self._context.state.families.child_of(contract.partition("#")[0])
        if child is not None:
            self._context.send_child(child, message)

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
            check_modes_defined(asked.qos.modes, self._context.settings.modes_defined)
            transaction = self._transaction(asked, found, Purpose.CONTRACT)
        except GridStatError as error:
            self._close(asked, refused(error))
            return
        self._coordinator.begin(transaction)

    def _transaction(self, asked: AskContract, found: LookedUp, purpose: Purpose) -> Transaction:
        variable = found.variable
        assert variable is not None
        held = self._context.state.holdings.current(asked.contract)
        generation = asked.generation
        for found_here in self._context.state.holdings.of(asked.contract):
            # Also one that is leaving: its children may not have heard of that yet.
            generation = max(generation, found_here.generation + 1)
        transaction = Transaction(
            (asked.contract, generation),
            variable,
            qualities_of(asked, variable),
            asked,
            self,
            purpose,
        )
        families = self._context.state.families
        transaction.starts = self._subscribers.starts(variable.name, found.starts)
        child = families.child_of(asked.contract.partition("#")[0]) or ""
        transaction.ends = self._subscribers.ends(asked.subscriber, child)
        transaction.subscriber = asked.subscriber
        transaction.ends_us = self._context.state.channels.ends_us
        transaction.replaces = -1 if held is None else held.generation
        return transaction

    def transaction_ended(self, transaction: Transaction, refusal: RefusedOutcome | None) -> None:
        asked = transaction.request
        assert isinstance(asked, AskContract)
        if refusal is None:
            self._decide(asked, transaction)
        elif transaction.purpose is Purpose.REPLACEMENT:
            self._not_replanned(asked, refusal)
        else:
            self._close(asked, refusal)

    def _decide(self, asked: AskContract, transaction: Transaction) -> None:
        """Make the holding durable: from then on the contract is decided."""
        holding = holding_of(asked, transaction)
        self._coordinator.hand_over(transaction)

        def failed(reason: str) -> None:
            self._holding_release.release_reserved(holding.key, holding.children)
            self._close(asked, refused(StorageFailed(f"nothing was granted: {reason}")))

        self._context.decide(
            [HoldingTaken(holding=holding, stage=Stage.COMMITTED)],
            lambda: self._decided(asked.contract, holding),
            failed,
        )

    def _decided(self, contract: str, holding: Holding) -> None:
        if self._context.state.holdings.current(contract) == holding:
            self._grant(holding)
        self._asked.pop(contract, None)
        self.replanned.pop(contract, None)
        self._listener.contract_settled(contract)
        self._listener.contract_decided(holding)
        self._go_on(contract)

    def _grant(self, holding: Holding) -> None:
        """Commit it everywhere; when that is done, say so, and let go of what it supersedes."""
        if self._commits.is_waiting(holding.key):
            self._commits.report_if_late(holding.key)
            return

        def granted(troubles: tuple[str, ...]) -> None:
            holdings = self._context.state.holdings
            if holdings.current(holding.contract) != holding:
                return
            words, down = self._listener.impairment_of(holding)
            message = granted_message(self._context, holding, (*troubles, *words), down)
            if holding.contract not in self._later:
                # A change that waits is answered by what comes of it, not by what it finds.
                self._send_down(holding.contract, message)

        def up(troubles: tuple[str, ...]) -> None:
            granted(troubles)
            for found in self._holding_release.release_superseded(holding):
                self._commits.forget(found.key)

        self._commits.start(holding.key, holding.children, up, granted)

    def resume(self) -> None:
        """After a start: what was decided and perhaps not told of is brought to its end."""
        holdings = self._context.state.holdings
        for contract in sorted({found.contract for found in holdings.superseded()}):
            held = holdings.current(contract)
            if held is not None:
                self._grant(held)

    # Anew, after a failure.

    def replan(self, contract: str) -> None:
        """Reserve another generation of a contract, beside the one that is broken."""
        held = self._context.state.holdings.current(contract)
        if held is None or contract in self._asked or contract in self.replanned:
            return
        body = body_of(held)
        if body.qos is None:
            return
        self.replanned[contract] = held.generation
        self._lookups.look_up(body.variable.name, partial(self._replan_looked_up, held, body.qos))

    def _replan_looked_up(self, held: Holding, qos: ModalQos, found: LookedUp) -> None:
        contract = held.contract
        if contract not in self.replanned:
            return
        if found.variable is None:
            self._replan_failed(contract)
            if found.refused is not None and found.refused.code == NoSuchVariable.code:
                self.end_now(contract, found.refused)  # The publisher's cloud did not report it.
            return
        body = body_of(held)
        asked = AskContract(
            term=0,
            contract=contract,
            generation=body.asked,
            name=body.variable.name,
            subscriber=body.subscriber,
            qos=qos,
            type_encoded=body.type_encoded,
        )
        try:
            transaction = self._transaction(asked, found, Purpose.REPLACEMENT)
        except GridStatError as error:  # The name is published again, as another variable.
            self._replan_failed(contract)
            self.end_now(contract, refused(error))
            return
        # The damage is read only now, because the look-up may have taken long.
        if narrow(transaction, held, self._listener.damage_of(contract)):
            self._coordinator.begin(transaction)
        else:
            self._replan_failed(contract)

    def _not_replanned(self, asked: AskContract, refusal: RefusedOutcome) -> None:
        self._context.note("not_replanned", contract=asked.contract, reason=refusal.reason)
        self._replan_failed(asked.contract)
        if refusal.code == NoSuchSubscription.code:
            self.end_now(asked.contract, refusal)  # The subscriber's cloud has lost it.

    def _replan_failed(self, contract: str) -> None:
        self.replanned.pop(contract, None)
        self._go_on(contract)
        self._listener.replan_failed(contract)

    def tell_state(self, contract: str) -> None:
        """Say to the subscriber's cloud which paths work no longer, or again."""
        held = self._context.state.holdings.current(contract)
        if held is not None and held.is_owned:
            self._context.when_durable(lambda: self._say_state(held))

    def _say_state(self, holding: Holding) -> None:
        if self._context.state.holdings.current(holding.contract) != holding:
            return
        if holding.contract in self._later or self._commits.is_waiting(holding.key):
            return  # It is told with the answer.
        self._send_down(
            holding.contract,
            granted_message(self._context, holding, *self._listener.impairment_of(holding)),
        )

    # Small things.

    def _is_busy(self, message: AskContract) -> bool:
        if len(self._asked) < self._context.settings.transactions_max:
            return False
        busy = QuotaReached("this broker is busy with as many requests as it may be")
        self._refuse(message, refused(busy))
        return True

    def _is_held(self, contract: str) -> bool:
        held = self._context.state.holdings.current(contract)
        return held is not None and held.is_owned

    def _give_up(self, contract: str) -> None:
        self.replanned.pop(contract, None)
        for key in self._coordinator.keys_of(contract):
            self._coordinator.cancel(key)

    def _close(self, asked: AskContract, why: RefusedOutcome) -> None:
        self._asked.pop(asked.contract, None)
        if self.replanned.pop(asked.contract, None) is None:
            self._refuse(asked, why)
        self._go_on(asked.contract)

    def _refuse(self, asked: AskContract, why: RefusedOutcome) -> None:
        self._send_down(
            asked.contract,
            ContractRefused(
                term=self._context.term,
                contract=asked.contract,
                generation=asked.generation,
                refused=why,
            ),
        )

    def _go_on(self, contract: str) -> None:
        """A change that came while something else was decided."""
        later = self._later.pop(contract, None)
        child = self._context.state.families.child_of(contract.partition("#")[0])
        if later is not None and child is not None:
            self.ask(child, later)


# The end of a contract at its owner: durable first, then told, and everything is given back.
#
# On its way there an ending is kept by the brokers that it passes, until it is confirmed.


class ContractEndings:
    """Whoever asks twice for an end is answered twice, each time when it is durable."""

    def __init__(
        self, context: TreeContext, commits: SegmentCommits, holding_release: HoldingRelease
    ) -> None:
        self._context = context
        self._commits = commits
        self._holding_release = holding_release

    def end(self, contract: str, then: Callable[[], None]) -> None:
        """Let go of all generations that are held as this broker's own; `then` follows."""
        holdings = self._context.state.holdings
        owned = [
            found
            for found in holdings.of(contract)
            if found.is_owned and holdings.stage(found) is Stage.COMMITTED
        ]

        def over() -> None:
            for found in owned:
                self._commits.forget(found.key)
                self._holding_release.release(found)
            then()

        if not owned and not self._context.pending_count:
            then()
            return
        self._context.decide(
            holdings.moves(owned, Stage.LEAVING),
            over,
            lambda _: self._context.later(lambda: self.end(contract, then)),
        )


class ContractEndingsAbove:
    """Of more than can be kept, the children are had to say them again once the parent is there."""

    def __init__(self, context: TreeContext, membership: Membership) -> None:
        self._context = context
        self._membership = membership
        self._open: dict[str, EndContract] = {}
        self._unkept: set[str] = set()
        """Children that have ended more than could be kept."""

    def __len__(self) -> int:
        return len(self._open)

    def say(self, child: str, message: EndContract) -> None:
        """Pass it up, now and after every join, until it is confirmed."""
        if message.contract not in self._open:
            if len(self._open) < self._context.settings.transactions_max:
                self._open[message.contract] = message
            else:
                self._unkept.add(child)
        self._context.send_parent(structs.replace(message, term=self._context.term))

    def confirmed(self, contract: str) -> None:
        self._open.pop(contract, None)

    def parent_joined(self) -> None:
        for ending in self._open.values():
            self._context.send_parent(structs.replace(ending, term=self._context.term))
        unkept, self._unkept = self._unkept, set()
        for child in sorted(unkept & self._context.joined):
            text = f"broker {child} has ended more than was kept while the parent was away"
            again = LimitReached(text, hint="it joins, and says it again")
            self._membership.end_session(child, again)


# From a question to the qualities that are tried for it, and from reservations to a holding.

LEVELS_MAX: Final = 5
"""Qualities of a band that are tried, from the desired to the worst."""

_TYPE_DECODER: Final[msgspec.msgpack.Decoder[ValueType]] = msgspec.msgpack.Decoder(ValueType)


def qualities_of(asked: AskContract, variable: StatusVariable) -> list[Quality]:
    """Raises if the variable is of another type, or cannot be had so often, at any quality."""
    if asked.type_encoded:
        check_type(variable, _type_of(asked))
    check_rate(variable)
    band = band_of(asked.qos, variable.period)
    if variable.is_replay:
        band = replay_band(band)
    return levels(band, LEVELS_MAX)


def _type_of(asked: AskContract) -> ValueType:
    """Raises if they are no bytes of ours, or of a kind that only a later release knows."""
    try:
        return _TYPE_DECODER.decode(asked.type_encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise LayoutError(
            f"the type that is expected of {asked.name} cannot be read: {error}",
            hint="is the broker of the subscriber's cloud of a later release than its parents?",
        ) from None


def holding_of(asked: AskContract, done: Transaction) -> Holding:
    """A contract, as it was reserved; its latencies hold from end-point to end-point."""
    assert done.result is not None
    paths, ways = done.result
    body = HoldingBody(
        variable=done.variable,
        granted=done.quality,
        ways=ways,
        paths=tuple(
            structs.replace(path, latency_us=path.latency_us + done.ends_us) for path in paths
        ),
        is_node_disjoint=done.is_node_disjoint,
        degraded=done.lowered(),
        subscriber=asked.subscriber,
        qos=asked.qos,
        asked=asked.generation,
        type_encoded=asked.type_encoded,
        promised=done.owed(),
    )
    return holding_with(done.key, done.children(), body)


def is_of(holding: Holding, asked: AskContract) -> bool:
    """Whether a question is about the contract that is held by that name, or about another."""
    body = body_of(holding)
    return (body.variable.name, body.subscriber) == (asked.name, asked.subscriber)


def granted_message(
    context: TreeContext, holding: Holding, troubles: tuple[str, ...], down: tuple[int, ...] = ()
) -> ContractGranted:
    """What the subscriber's cloud hears of a contract that is up, but for these troubles.

    `down` are the indices of the paths that do not work.
    """
    body = context.state.holdings.body(holding)
    return ContractGranted(
        term=context.term,
        contract=holding.contract,
        generation=holding.generation,
        owner=context.settings.name,
        variable=body.variable,
        granted=body.granted,
        paths=body.paths,
        is_node_disjoint=body.is_node_disjoint,
        degraded=(*body.degraded, *troubles),
        asked=body.asked,
        paths_down=down,
    )
