"""Contracts that this broker owns: requested from below, reserved, decided, granted, ended.

A broker owns a contract if the publisher and the subscriber lie below two different children.

States of an owned contract:

    absent --AskContract--> looked up --variable found--> being reserved (a transaction)
    being reserved --holding durable--> decided --every child has confirmed--> granted
    looked up, being reserved --refusal--> absent, or as before if it was a change
    decided, granted --AskContract with another QoS--> looked up, beside the present generation
    decided, granted --damage--> being replanned, beside the present generation
    decided, granted --LowerContract--> being lowered, beside the present generation
    any state --EndContract, or the variable has ended--> ended --children released--> absent

Messages. The subscriber's cloud sends `AskContract` and `EndContract`, and gets `ContractGranted`,
`ContractRefused` or `ContractEnded`. A broker that does not own the contract forwards requests up
and answers down, and keeps each request until it is answered, so that a lost session loses none.

Search time. The contracts that are asked for below one child have a part of this broker's time for
searches; while it is used up, their requests wait between look-up and transaction.

Timeout. Look-ups and transactions have deadlines of their own, and end in a refusal. A contract
whose children confirm late is granted with a text that says so.

Restart. Only holdings are durable. A cloud repeats its open requests when it joins. A generation
that was decided and perhaps not granted is granted again; the ones before it are then released.
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
from gridstat.broker.tree.band_changes import (
    BandHolds,
    Lowering,
    every_worst_of,
    lower_to,
    lowering_of,
    raise_from,
    texts_of,
)
from gridstat.broker.tree.contract_damage import restrict
from gridstat.broker.tree.contract_endings import ContractEndings, ContractEndingsAbove
from gridstat.broker.tree.search_turns import SEARCH_TURN_TIMER
from gridstat.broker.tree.transaction import Purpose, Transaction, levels
from gridstat.broker.tree.tree_capability import FromChild, TreeCapability
from gridstat.broker.tree.tree_operations import (
    Holding,
    HoldingBody,
    HoldingGone,
    HoldingMoved,
    HoldingTaken,
    Stage,
    body_of,
    holding_with,
)
from gridstat.model.errors import (
    GridStatError,
    LayoutError,
    NoSuchSubscription,
    NoSuchVariable,
    NotAuthorised,
    QuotaReached,
    StillInUse,
    StorageFailed,
)
from gridstat.model.qos import check_modes_defined, demands_sealing
from gridstat.model.stamp_law import charged_delay_us
from gridstat.model.status import ValueType
from gridstat.net.command.operator_messages import RemoveChild
from gridstat.net.command.segment_messages import (
    AskContract,
    ContractEnded,
    ContractGranted,
    ContractRefused,
    EndContract,
    LookedUp,
    LowerContract,
    Payer,
)

if TYPE_CHECKING:
    from gridstat.broker.capacity.negotiation import Quality
    from gridstat.broker.tree.border_graph import BorderGraph
    from gridstat.broker.tree.contract_damage import Damage, Impaired
    from gridstat.broker.tree.coordinator import Coordinator
    from gridstat.broker.tree.membership import Membership
    from gridstat.broker.tree.publication_lookups import PublicationLookups
    from gridstat.broker.tree.search_turns import SearchTurns
    from gridstat.broker.tree.segment_commits import SegmentCommits
    from gridstat.broker.tree.segment_releases import HoldingRelease
    from gridstat.broker.tree.subscriber_distances import SubscriberDistances
    from gridstat.broker.tree.tree_capability import Facts
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import RefusedOutcome


class ContractListener(Protocol):
    """Notified of decisions about contracts; knows which paths of a contract do not work."""

    def contract_settled(self, contract: str) -> None: ...

    def contract_decided(self, holding: Holding) -> None: ...

    def replan_failed(self, contract: str) -> None: ...

    def impairment_of(self, holding: Holding) -> Impaired: ...

    def damage_of(self, contract: str) -> Damage: ...


class OwnedContracts:
    """Requests that are being worked on here or forwarded; the contracts are holdings."""

    def __init__(
        self,
        context: TreeContext,
        graph: BorderGraph,
        lookups: PublicationLookups,
        coordinator: Coordinator,
        commits: SegmentCommits,
        holding_release: HoldingRelease,
        membership: Membership,
        turns: SearchTurns,
        listener: ContractListener,
    ) -> None:
        self._context = context
        self._graph = graph
        self._lookups = lookups
        self._coordinator = coordinator
        self._commits = commits
        self._holding_release = holding_release
        self._turns = turns
        self._listener = listener
        self._endings = ContractEndings(context, commits, holding_release)
        self._subscribers: SubscriberDistances = holding_release.subscribers
        self._requests: dict[str, AskContract] = {}
        self._forwarded: dict[str, AskContract] = {}
        """Requests that await the answer of an owner above, or a parent to send them to."""
        self._next_requests: dict[str, AskContract] = {}
        self.endings_above = ContractEndingsAbove(context, membership)
        self.being_replanned: dict[str, int] = {}
        self._lowerings: dict[str, Lowering] = {}
        """Contracts that are being replanned in order to lower them."""
        self.holds = BandHolds(context)

    def __len__(self) -> int:
        return len(self._requests) + len(self._forwarded)

    def capability(self) -> TreeCapability:
        """Return the registration of contracts, and of the holdings that make them durable."""
        state = self._context.state
        return TreeCapability(
            name="contracts",
            child_messages={
                AskContract: FromChild(self.request, self._is_of_child),
                EndContract: FromChild(self.end, self._is_of_child),
                LowerContract: FromChild(self._lower_for_child, self._is_held_by),
            },
            parent_messages={
                ContractGranted: self.forward_down,
                ContractRefused: self.forward_down,
                ContractEnded: self.forward_down,
            },
            objections={RemoveChild: self._object_to_child_removal},
            timers={SEARCH_TURN_TIMER: self._turns.serve_waiting},
            survey=self._facts,
            operations={
                HoldingTaken: state.hold,
                HoldingMoved: state.hold,
                HoldingGone: state.release,
            },
            snapshot=state.holding_operations,
            orphaned=self._orphaned,
            is_holding=self._is_holding,
            resume=self.resume,
            child_joined=self._take_up_forwarded,
            clouds_changed=self._take_up_forwarded,
            parent_joined=self.parent_joined,
        )

    def _is_of_child(self, child: str, message: AskContract | EndContract) -> bool:
        cloud = message.contract.partition("#")[0]
        if isinstance(message, AskContract) and message.subscriber.partition("/")[0] != cloud:
            return False  # A cloud speaks for its own end-points only.
        return self._context.state.families.child_of(cloud) == child

    def _is_held_by(self, child: str, message: LowerContract) -> bool:
        found = self._context.state.holdings.find(message.contract, message.generation)
        return found is None or child in found.children

    def _object_to_child_removal(self, command: RemoveChild) -> RefusedOutcome | None:
        held = self._context.state.holdings.of_child(command.name)
        if not held:
            return None
        return refused(
            StillInUse(f"{len(held)} contracts cross {command.name}", hint="end them first")
        )

    def _orphaned(self, term: int) -> list[HoldingMoved]:
        del term
        return self._context.state.release_parent_holdings()

    def _is_holding(self) -> bool:
        return bool(len(self._context.state.holdings))

    def _facts(self) -> Facts:
        holdings = self._context.state.holdings
        return {
            "contracts": holdings.owned_count,
            "segments": len(holdings) - holdings.owned_count,
            "search_ms": round(self._turns.times.total_ns / 1e6, 3),
        }

    # Requests from below.

    def request(self, child: str, message: AskContract) -> None:
        self._subscribers.learn(message.subscriber, message.ends)
        if not self._is_own(message):
            self._forward_up(child, message)
            return
        contract, holdings = message.contract, self._context.state.holdings
        self._forwarded.pop(contract, None)
        open_request = self._requests.get(contract)
        if open_request is not None or contract in self.being_replanned:
            is_open = open_request is not None and open_request.name == message.name
            if open_request is None or not is_open or message.generation > open_request.generation:
                self._next_requests[contract] = message
            return
        held = holdings.current(contract)
        is_other = held is not None and not is_about(held, message)
        if held is not None and not is_other:
            known = body_of(held)
            if message.generation < known.asked:
                return
            if message.generation == known.asked and message.qos == known.qos:
                self._grant(held)
                return
        if self._is_busy(message):
            return
        self._requests[contract] = message
        if is_other:
            # The cloud has lost its journal, and numbers its contracts from the beginning.
            self._listener.contract_settled(contract)
            self._endings.end(contract, partial(self._look_up, message))
        else:
            self._look_up(message)

    def _look_up(self, message: AskContract) -> None:
        self._lookups.look_up(message.name, self, message, reader=message.subscriber)

    def end(self, child: str, message: EndContract) -> None:
        """End a contract, durably before it is confirmed; confirm a repeated request again."""
        contract = message.contract
        self._next_requests.pop(contract, None)
        forwarded = self._forwarded.pop(contract, None)
        request = self._requests.pop(contract, forwarded)
        self._cancel(contract)
        holdings = self._context.state.holdings
        owned = [found for found in holdings.of(contract) if found.is_owned]
        if not owned and self._context.has_parent and not self._is_own(request):
            self.endings_above.forward(child, message)
            return
        self.end_now(contract, None)

    def end_now(self, contract: str, why: RefusedOutcome | None) -> None:
        """End a contract, and notify the subscriber's cloud once that is durable."""
        self._listener.contract_settled(contract)
        ended = ContractEnded(
            term=self._context.term,
            contract=contract,
            refused=why,
            search_us=self._turns.take_used_us(contract),
        )
        self._endings.end(contract, partial(self._send_down, contract, ended))

    # Forwarding.

    def _forward_up(self, child: str, message: AskContract) -> None:
        if not self._context.has_parent:
            cloud = message.name.partition("/")[0]
            unknown = NoSuchVariable(
                f"no cloud {cloud} is known from here to the root",
                hint="is its broker running, and is it a child of one below the root?",
            )
            self._refuse(message, refused(unknown))
            return
        if not self._is_requested(message.contract) and self._is_busy(message):
            return
        self._requests.pop(message.contract, None)
        self._forwarded[message.contract] = message
        self._context.send_parent(self._with_ends_above(child, message))

    def _with_ends_above(self, child: str, message: AskContract) -> AskContract:
        ends = self._graph.ends_above(child, message.ends)
        return structs.replace(message, term=self._context.term, ends=ends)

    def parent_joined(self) -> None:
        """Send every request again that the parent has not answered."""
        families = self._context.state.families
        for contract, message in self._forwarded.items():
            child = families.child_of(contract.partition("#")[0])
            if child is not None and not self._is_own(message):
                self._context.send_parent(self._with_ends_above(child, message))
        self.endings_above.parent_joined()

    def _take_up_forwarded(self, _: str) -> None:
        """Work on the forwarded requests whose publishers' clouds lie below this broker by now.

        The parent may have been away, and may never get them.
        """
        for contract, message in list(self._forwarded.items()):
            child = self._context.state.families.child_of(contract.partition("#")[0])
            if child is not None and self._is_own(message):
                self.request(child, message)

    def forward_down(self, message: ContractGranted | ContractRefused | ContractEnded) -> None:
        """Forward the answer of an owner above to the subscriber's cloud."""
        request = self._forwarded.get(message.contract)
        if isinstance(message, ContractEnded):
            self.endings_above.confirmed(message.contract)
            self._requests.pop(message.contract, None)
            self._forwarded.pop(message.contract, None)
        elif isinstance(message, ContractRefused) and self._is_taken_up(message.contract):
            return  # The answer to a request that went up before its cloud had joined below.
        elif request is not None and message.answered >= request.generation:
            del self._forwarded[message.contract]
        self._send_down(message.contract, structs.replace(message, term=self._context.term))

    def _is_taken_up(self, contract: str) -> bool:
        """Return whether this broker plans a contract itself, or has granted it."""
        held = self._context.state.holdings.current(contract)
        return contract in self._requests or (held is not None and held.is_owned)

    def _is_own(self, request: AskContract | None) -> bool:
        """Return whether this broker owns a contract, even if the publisher's cloud is away."""
        if request is None:
            return False
        families = self._context.state.families
        publisher = families.child_at(request.name)
        if publisher is None:
            held = self._context.state.holdings.current(request.contract)
            return held is not None and is_about(held, request)
        return publisher != families.child_of(request.contract.partition("#")[0])

    def _send_down(
        self, contract: str, message: ContractGranted | ContractRefused | ContractEnded
    ) -> None:
        child = self._context.state.families.child_of(contract.partition("#")[0])
        if child is not None:
            self._context.send_child(child, message)

    # From a request to a decision.

    def looked_up(self, request: AskContract | Holding, found: LookedUp) -> None:
        """Continue a request, or the replanning of a holding, with the answer to its look-up."""
        match request:
            case AskContract(contract=contract):
                child = self._context.state.families.child_of(contract.partition("#")[0]) or ""
                go_on = partial(self._plan, request, found)
                self._turns.plan(child, go_on, partial(self._close_waiting, request))
            case Holding():
                self._plan_replacement(request, found)

    def _plan(self, request: AskContract, found: LookedUp) -> None:
        if self._requests.get(request.contract) is not request:
            return
        if found.variable is None:
            why = found.refused or refused(NoSuchVariable(f"{request.name} is not published"))
            self._close(request, why)
            if why.code == NoSuchVariable.code and self._is_held(request.contract):
                self.end_now(request.contract, why)  # The variable of a held contract has ended.
            return
        try:
            # A cloud of an older release does not check modes.
            check_modes_defined(request.qos.modes, self._context.settings.modes_defined)
            transaction = self._transaction(request, found, Purpose.CONTRACT)
        except GridStatError as error:
            self._close(request, refused(error))
            return
        self._coordinator.begin(transaction)

    def _transaction(self, request: AskContract, found: LookedUp, purpose: Purpose) -> Transaction:
        variable = found.variable
        assert variable is not None
        held = self._context.state.holdings.current(request.contract)
        generation = request.generation
        for found_here in self._context.state.holdings.of(request.contract):
            # Including one that is being released, whose children may not know that yet.
            generation = max(generation, found_here.generation + 1)
        transaction = Transaction(
            (request.contract, generation),
            variable,
            qualities_of(request, variable),
            request,
            self,
            purpose,
        )
        families = self._context.state.families
        transaction.starts = self._subscribers.starts(variable.name, found.starts)
        child = families.child_of(request.contract.partition("#")[0]) or ""
        transaction.ends = self._subscribers.ends(request.subscriber, child)
        transaction.subscriber = request.subscriber
        transaction.reader = request.subscriber
        delay_us = charged_delay_us(variable.delay_ms)
        transaction.ends_us = self._context.state.channels.ends_us + delay_us
        transaction.replaces = -1 if held is None else held.generation
        transaction.is_sealed = demands_sealing(request.qos)
        transaction.payers = payers_of(request, found)
        transaction.room.every_worst = every_worst_of(request.qos, variable)
        return transaction

    def transaction_ended(self, transaction: Transaction, refusal: RefusedOutcome | None) -> None:
        request = transaction.request
        assert isinstance(request, AskContract)
        if refusal is None:
            self._decide(request, transaction)
        elif transaction.purpose is Purpose.REPLACEMENT:
            self._subscribers.forget(request.subscriber)
            if transaction.room.was_made:
                self.holds.asked_in_vain(request.contract)
            self._not_replanned(request, refusal)
        else:
            self._close(request, refusal)

    def _decide(self, request: AskContract, transaction: Transaction) -> None:
        """Make the holding durable: from then on the contract is decided."""
        holding = holding_of(request, transaction)
        self._coordinator.hand_over(transaction)
        self._context.decide(
            [HoldingTaken(holding=holding, stage=Stage.COMMITTED)],
            partial(self._decided, request.contract, holding),
            partial(self._not_written, request, holding),
        )

    def _not_written(self, request: AskContract, holding: Holding, reason: str) -> None:
        self._holding_release.release_reserved(holding.key, holding.children)
        self._close(request, refused(StorageFailed(f"nothing was granted: {reason}")))

    def _decided(self, contract: str, holding: Holding) -> None:
        self.holds.note(holding, self._context.state.holdings.of(contract))
        if self._context.state.holdings.current(contract) == holding:
            self._grant(holding)
        self._requests.pop(contract, None)
        self.being_replanned.pop(contract, None)
        self._listener.contract_settled(contract)
        self._listener.contract_decided(holding)
        self._take_next(contract)

    def _grant(self, holding: Holding) -> None:
        """Commit a holding at its children, grant it, and release the generations before it."""
        if self._commits.is_waiting(holding.key):
            self._commits.report_if_late(holding.key)
            return
        self._commits.start(holding, self)

    def commit_complete(self, holding: Holding, texts: tuple[str, ...]) -> None:
        self._send_granted(holding, texts)
        for found in self._holding_release.release_superseded(holding):
            self._commits.forget(found.key)

    def commit_late(self, holding: Holding, texts: tuple[str, ...]) -> None:
        self._send_granted(holding, texts)

    def _send_granted(self, holding: Holding, troubles: tuple[str, ...]) -> None:
        if self._context.state.holdings.current(holding.contract) != holding:
            return
        texts, down = self._listener.impairment_of(holding)
        message = granted_message(self._context, holding, (*troubles, *texts), down)
        used_us = self._turns.take_used_us(holding.contract)
        message = structs.replace(message, search_us=used_us)
        if holding.contract not in self._next_requests:
            # A request that waits is answered by its own outcome.
            self._send_down(holding.contract, message)

    def resume(self) -> None:
        """Grant, after a start, generations that were decided and perhaps not granted."""
        holdings = self._context.state.holdings
        for contract in sorted({found.contract for found in holdings.superseded()}):
            held = holdings.current(contract)
            if held is not None:
                self._grant(held)

    # Lowering.

    def _lower_for_child(self, child: str, message: LowerContract) -> None:
        del child
        self.lower(message)

    def lower(self, message: LowerContract) -> None:
        """Lower a contract within its band, since another needs room; or ask the owner above.

        A contract that is being changed, or is broken, is left alone: who needs room asks again.
        """
        holdings = self._context.state.holdings
        held = holdings.find(message.contract, message.generation)
        if held is None or holdings.stage(held) is not Stage.COMMITTED:
            return
        if not held.is_owned:
            self._context.send_parent(structs.replace(message, term=self._context.term))
            return
        contract = held.contract
        is_busy = self._is_requested(contract) or contract in self.being_replanned
        if is_busy or holdings.current(contract) != held or self._commits.is_waiting(held.key):
            return
        if not self._listener.damage_of(contract).is_whole:
            return
        lowering = lowering_of(body_of(held), message)
        if lowering is None:
            return
        self._context.note(
            "contract_lowered",
            contract=contract,
            every=message.every,
            room_for=message.lowered_for,
        )
        self._lowerings[contract] = lowering
        self.replan(contract)

    # Replanning.

    def replan(self, contract: str) -> None:
        """Reserve another generation of a contract, beside the one that is broken."""
        held = self._context.state.holdings.current(contract)
        if held is None or self._is_requested(contract) or contract in self.being_replanned:
            return
        body = body_of(held)
        if body.qos is None:
            return
        self.being_replanned[contract] = held.generation
        self._lookups.look_up(body.variable.name, self, held, reader=body.subscriber)

    def _plan_replacement(self, held: Holding, found: LookedUp) -> None:
        contract = held.contract
        if contract not in self.being_replanned:
            return
        if found.variable is None:
            self._replan_failed(contract)
            if found.refused is not None and found.refused.code in _ENDING_CODES:
                self.end_now(contract, found.refused)  # The publisher's cloud did not report it.
            return
        body = body_of(held)
        assert body.qos is not None
        request = AskContract(
            term=0,
            contract=contract,
            generation=body.asked,
            name=body.variable.name,
            subscriber=body.subscriber,
            qos=body.qos,
            type_encoded=body.type_encoded,
        )
        try:
            transaction = self._transaction(request, found, Purpose.REPLACEMENT)
        except GridStatError as error:  # The name is published again, as another variable.
            self._replan_failed(contract)
            self.end_now(contract, refused(error))
            return
        transaction.payers = body.payers
        # The damage is read only now, because the look-up may have taken long.
        damage = self._listener.damage_of(contract)
        lowering = self._lowerings.pop(contract, None)
        if lowering is not None and damage.is_whole:
            is_possible = lower_to(transaction, body, lowering)
        elif held.is_lowered and body.lowered_for and damage.is_whole:
            may_ask = self.holds.may_ask(contract)
            is_possible = raise_from(transaction, body, may_ask=may_ask)
        else:
            transaction.room.lowered_for = body.lowered_for
            is_possible = restrict(transaction, held, damage)
        if is_possible:
            self._coordinator.begin(transaction)
        else:
            self._replan_failed(contract)

    def _not_replanned(self, request: AskContract, refusal: RefusedOutcome) -> None:
        self._context.note("not_replanned", contract=request.contract, reason=refusal.reason)
        self._replan_failed(request.contract)
        if refusal.code == NoSuchSubscription.code:
            self.end_now(request.contract, refusal)  # The subscriber's cloud has lost it.

    def _replan_failed(self, contract: str) -> None:
        self.being_replanned.pop(contract, None)
        self._lowerings.pop(contract, None)
        self._take_next(contract)
        self._listener.replan_failed(contract)

    def send_state(self, contract: str) -> None:
        """Notify the subscriber's cloud of the paths that have failed or returned.

        It is sent even if a pending write fails, since nobody asks for it again.
        """
        held = self._context.state.holdings.current(contract)
        if held is not None and held.is_owned:
            self._context.when_settled(partial(self._send_state, held))

    def _send_state(self, holding: Holding) -> None:
        if self._context.state.holdings.current(holding.contract) != holding:
            return
        if holding.contract in self._next_requests or self._commits.is_waiting(holding.key):
            return  # The answer to the open request contains the state.
        self._send_down(
            holding.contract,
            granted_message(self._context, holding, *self._listener.impairment_of(holding)),
        )

    # Helpers.

    def _is_requested(self, contract: str) -> bool:
        return contract in self._requests or contract in self._forwarded

    def _is_busy(self, message: AskContract) -> bool:
        if len(self) < self._context.settings.transactions_max:
            return False
        busy = QuotaReached("this broker is busy with as many requests as it may be")
        self._refuse(message, refused(busy))
        return True

    def _is_held(self, contract: str) -> bool:
        held = self._context.state.holdings.current(contract)
        return held is not None and held.is_owned

    def _cancel(self, contract: str) -> None:
        self.being_replanned.pop(contract, None)
        self._lowerings.pop(contract, None)
        for key in self._coordinator.keys_of(contract):
            self._coordinator.cancel(key)

    def _close_waiting(self, request: AskContract, why: RefusedOutcome) -> None:
        if self._requests.get(request.contract) is request:
            self._close(request, why)

    def _close(self, request: AskContract, why: RefusedOutcome) -> None:
        self._requests.pop(request.contract, None)
        if self.being_replanned.pop(request.contract, None) is None:
            self._refuse(request, why)
        self._take_next(request.contract)

    def _refuse(self, request: AskContract, why: RefusedOutcome) -> None:
        self._send_down(
            request.contract,
            ContractRefused(
                term=self._context.term,
                contract=request.contract,
                generation=request.generation,
                refused=why,
                search_us=self._turns.take_used_us(request.contract),
            ),
        )

    def _take_next(self, contract: str) -> None:
        """Take up a request that arrived while another one was being worked on."""
        later = self._next_requests.pop(contract, None)
        child = self._context.state.families.child_of(contract.partition("#")[0])
        if later is not None and child is not None:
            self.request(child, later)


# From a request to the qualities that are tried, and from reservations to a holding.

_ENDING_CODES: Final = frozenset({NoSuchVariable.code, NotAuthorised.code})
"""Answers to a look-up that end a contract: the variable is gone, or kept from the reader."""
LEVELS_MAX: Final = 5
"""Number of qualities of a band that are tried, from the desired to the worst."""

_TYPE_DECODER: Final[msgspec.msgpack.Decoder[ValueType]] = msgspec.msgpack.Decoder(ValueType)


def qualities_of(request: AskContract, variable: StatusVariable) -> list[Quality]:
    """Return the qualities to try; raise if the type or the rate does not fit the variable."""
    if request.type_encoded:
        check_type(variable, _type_of(request))
    check_rate(variable)
    band = band_of(request.qos, variable.period)
    if variable.is_replay:
        band = replay_band(band)
    return levels(band, LEVELS_MAX)


def payers_of(request: AskContract, found: LookedUp) -> tuple[Payer, ...]:
    """Return who pays: the subscriber, and the publisher of what a pattern has matched."""
    subscriber = Payer(name=request.subscriber, share_ppm=request.share_ppm)
    if not request.is_matched or found.publisher in {"", request.subscriber}:
        return (subscriber,)
    return subscriber, Payer(name=found.publisher, share_ppm=found.publisher_share_ppm)


def _type_of(request: AskContract) -> ValueType:
    """Return the expected type; raise if the bytes are malformed or of a later release."""
    try:
        return _TYPE_DECODER.decode(request.type_encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise LayoutError(
            f"the type that is expected of {request.name} cannot be read: {error}",
            hint="is the broker of the subscriber's cloud of a later release than its parents?",
        ) from None


def holding_of(request: AskContract, done: Transaction) -> Holding:
    """Return the holding of a reserved contract, with latencies from end-point to end-point."""
    assert done.result is not None
    paths, ways = done.result
    body = HoldingBody(
        variable=done.variable,
        granted=done.quality,
        scope_paths=ways,
        paths=tuple(
            structs.replace(path, latency_us=path.latency_us + done.ends_us) for path in paths
        ),
        is_node_disjoint=done.is_node_disjoint,
        degraded=texts_of(done),
        subscriber=request.subscriber,
        qos=request.qos,
        asked=request.generation,
        type_encoded=request.type_encoded,
        promised=done.owed(),
        is_sealed=done.is_sealed,
        charged_to=() if done.payers == (Payer(name=request.subscriber),) else done.payers,
        lowered_for=done.room.lowered_for if done.owed() is not None else "",
    )
    return holding_with(done.key, done.children(), body)


def is_about(holding: Holding, request: AskContract) -> bool:
    """Return whether a request is about the held contract, or another one of the same name."""
    body = body_of(holding)
    return (body.variable.name, body.subscriber) == (request.name, request.subscriber)


def granted_message(
    context: TreeContext, holding: Holding, troubles: tuple[str, ...], down: tuple[int, ...] = ()
) -> ContractGranted:
    """Return the grant for the subscriber's cloud.

    `troubles` are texts about what is degraded, `down` the indices of paths that do not work.
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
        is_sealed=body.is_sealed,
        lowered_for=body.lowered_for,
    )
