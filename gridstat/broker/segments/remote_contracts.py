"""Contracts of our end-points with variables of other clouds: asked above, answered from there.

What an end-point asks is durable before the parent hears of it, and asked again until it is
answered; likewise an ending. Outcomes from above go into the same answer as those of this cloud.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from gridstat.broker.capacity.negotiation import band_of, replay_band
from gridstat.broker.records.end_operations import Ending
from gridstat.broker.records.parent_operations import (
    AnswerBegun,
    ContractAsked,
    ContractDeclined,
    ContractHeld,
    ContractOver,
)
from gridstat.broker.records.parent_state import contract_name, contract_number
from gridstat.broker.requests.outcomes import refused
from gridstat.broker.requests.request_checks import encode_type, expected_type
from gridstat.broker.requests.subscriptions import targets_of
from gridstat.broker.segments.pending_answers import AnswerDeadlines, PendingAnswers, place_of
from gridstat.broker.segments.segment_paths import whole_outcome
from gridstat.model.cloud import check_name
from gridstat.model.errors import (
    DeadlinePassed,
    GridStatError,
    IntervalNotSatisfiable,
    LayoutError,
    NoSuchSubscription,
    NoSuchVariable,
    QuotaReached,
    Refused,
    StorageFailed,
    TypeMismatch,
)
from gridstat.model.qos import undefined_modes
from gridstat.net.command.endpoint_messages import ContractChanged, Matched, Unpublished
from gridstat.net.command.segment_messages import AskContract, ContractEnded, EndContract

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.parent_state import AskedContract
    from gridstat.broker.records.registry import EndPoint, Subscription
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.requests.pending_grants import PendingGrants
    from gridstat.broker.requests.request_intake import Request, RequestIntake
    from gridstat.broker.segments.leaf_borders import LeafBorders
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.net.command.endpoint_messages import ChangeSubscription, SubscriptionRequest
    from gridstat.net.command.segment_messages import ContractGranted, ContractRefused

ASK_TIMER: Final = "ask"


class RemoteContracts:
    """Every question is asked until it is answered, and every ending told until it is confirmed."""

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        grants: PendingGrants,
        notices: Notices,
        link: ParentSession,
        borders: LeafBorders,
    ) -> None:
        self._context = context
        self._requests = requests
        self._notices = notices
        self._link = link
        self._borders = borders
        self.answers = PendingAnswers(context, requests, grants, self._try_again)
        self.patience = AnswerDeadlines(context, self._nobody_answered)

    # What end-points want.

    def is_elsewhere(self, name: str) -> bool:
        """Whether a name is of another cloud, and there is somebody to ask about it."""
        return bool(self._context.settings.parent) and (
            name.partition("/")[0] != self._context.registry.cloud
        )

    def asked(
        self,
        endpoint: EndPoint,
        asked: SubscriptionRequest,
        request_id: int,
        place: int,
    ) -> ContractAsked:
        """A question for the parent; raises what forbids it."""
        self._check_quota(endpoint)
        targets_of(endpoint)
        return ContractAsked(
            number=self._context.registry.next_subscription_id(),
            subscriber=endpoint.name,
            name=check_name(asked.name),
            qos=asked.qos,
            type_encoded=encode_type(expected_type(asked)),
            label=asked.label,
            request_id=request_id,
            place=place,
        )

    def wait(self, request: Request, direct: list[Subscribed], applied: Applied) -> None:
        """The answer to a request has begun."""
        self.answers.wait(request, direct, applied)

    def change(self, request: Request, command: ChangeSubscription) -> None:
        """Another quality of a contract across clouds; raises what refuses it."""
        number = command.subscription_id
        found = self._context.registry.tree.asked[number]
        if found.is_ending or found.record.subscriber != request.endpoint:
            raise NoSuchSubscription(f"{request.endpoint} has no subscription {number}")
        if found.waiting is not None:
            raise Refused(
                f"the last change of subscription {number} is not over yet",
                hint="ask again when it has been answered",
            )
        changed = msgspec.structs.replace(
            found.record,
            qos=command.qos,
            generation=found.generation + 1,
            request_id=request.request_id,
            place=0,
        )
        begun = AnswerBegun(
            endpoint=request.endpoint, request_id=request.request_id, outcomes=(b"",)
        )
        self._context.commit(
            [changed, begun], partial(self.wait, request, []), self._requests.fail(request)
        )

    def catch(self, pattern_id: int, names: Iterable[str]) -> None:
        """Ask for what a pattern stands for in other clouds, each name once."""
        registry = self._context.registry
        held = registry.patterns[pattern_id]
        unknown = undefined_modes(held.qos.modes, self._context.settings.modes_defined)
        if unknown:  # Held by an older release, which did not ask whether modes are defined.
            self._context.note("pattern_refused", pattern_id=pattern_id, reason="undefined modes")
            return
        known = registry.tree.caught.get(pattern_id, set())
        asked: list[Operation] = []
        for name in dict.fromkeys(names):
            if name in known or not self.is_elsewhere(name):
                continue
            asked.append(
                ContractAsked(
                    number=registry.next_subscription_id(),
                    subscriber=held.subscriber,
                    name=name,
                    qos=held.qos,
                    type_encoded=held.type_encoded,
                    label=held.label,
                    pattern_id=pattern_id,
                )
            )
        room = self._room(registry.endpoints[held.subscriber])
        if asked[room:]:
            self._context.note("pattern_refused", pattern_id=pattern_id, reason="quota")
        if asked[:room]:
            self._context.commit(asked[:room], _nothing, self._try_again)

    # What the parent hears.

    def ask(self, number: int) -> None:
        """Ask the parent, if an answer is still missing, or may have been lost."""
        self.patience.begin(number)
        registry = self._context.registry
        found = registry.tree.asked.get(number)
        asked = None if found is None else found.waiting
        if found is not None and self._is_in_doubt(number, found):
            asked = found.record
        endpoint = None if asked is None else registry.endpoints.get(asked.subscriber)
        if asked is None or endpoint is None:
            return
        self._link.tell(
            AskContract(
                term=self._link.term,
                contract=contract_name(registry.cloud, number),
                generation=asked.generation,
                name=asked.name,
                subscriber=asked.subscriber,
                qos=asked.qos,
                type_encoded=asked.type_encoded,
                ends=self._borders.nearness(
                    endpoint.edges_usable(is_receiver=True), is_start=False
                ),
            )
        )

    def end(self, number: int) -> None:
        """Notify the parent that a contract has ended here, and whoever still waited for it."""
        found = self._context.registry.tree.asked.get(number)
        if found is not None:
            self.answers.close(place_of(found.unanswered))
        contract = contract_name(self._context.registry.cloud, number)
        self._link.tell(EndContract(term=self._link.term, contract=contract))

    def ask_all(self) -> None:
        """After a join, or when the disk has room again: whatever is not settled."""
        for number, found in sorted(self._context.registry.tree.asked.items()):
            if found.is_ending:
                self.end(number)
            else:
                self.ask(number)

    # What the parent answers.

    def granted(self, word: ContractGranted) -> None:
        number, found = self._find(word.contract)
        if found is None or found.is_ending:
            if number:
                self.end(number)
            return
        if is_known(found.granted, word) and not self._is_in_doubt(number, found):
            return
        gap = break_of(word)
        if gap is not None:
            self._context.note("grant_refused", contract=word.contract, reason=str(gap.args[0]))
            if found.granted is None:
                self._give_up(found.record, gap)
            return
        asked = found.waiting
        if asked is not None and not answers(asked, word):
            asked = None  # A new plan of the owner, which has not heard of the change yet.
        record = asked or found.record
        mismatch = mismatch_of(record, word)
        if mismatch is not None and found.granted is None:
            self._give_up(record, mismatch)
            return
        segment = self._segment(word.contract, word.generation)
        outcome = whole_outcome(record, word, segment, detection=self._context.detection)
        told: Callable[[], None] = _nobody
        if asked is None or found.is_restoring:
            notice = ContractChanged(granted=outcome)
            told = partial(self._notices.push, record.subscriber, notice)
        elif record.pattern_id and found.granted is None:
            match = Matched(pattern_id=record.pattern_id, granted=outcome)
            told = partial(self._notices.push, record.subscriber, match)
        held = ContractHeld(number=number, granted=word, is_asked=asked is not None)
        self.answers.fill(place_of(record), outcome, [held], told)

    def refused(self, word: ContractRefused) -> None:
        number, found = self._find(word.contract)
        waiting = None if found is None else found.waiting
        if found is None or (waiting or found.record).generation != word.generation:
            return
        is_in_doubt = self._is_in_doubt(number, found)
        if word.refused.code == StorageFailed.code or (
            (is_in_doubt or found.is_restoring) and word.refused.code == DeadlinePassed.code
        ):
            # Some disk on the way is full: that is no answer, and must not be kept as one.
            self._try_again(word.refused.reason)
            return
        if waiting is None:
            if is_in_doubt:  # It has ended, and the word of that was lost.
                told = ContractEnded(term=0, contract=word.contract, refused=word.refused)
                self.ended(told)
            return
        if waiting.pattern_id and not waiting.request_id:
            self._context.note(
                "pattern_refused", pattern_id=waiting.pattern_id, reason=word.refused.reason
            )
        declined = ContractDeclined(number=number, generation=word.generation)
        self.answers.fill(place_of(waiting), word.refused, [declined], partial(self.ask, number))

    def ended(self, word: ContractEnded) -> None:
        """As asked; or the variable is gone, and with it the contract."""
        number, found = self._find(word.contract)
        if found is None:
            return
        ending = Ending()
        segments = self._context.registry.tree.segments.get(word.contract, {})
        ending.unsubscribe(self._context.registry, segments.values())
        operations = [*ending.operations, ContractOver(number=number)]
        name, subscriber = found.record.name, found.record.subscriber
        if found.is_ending:
            self.answers.close(place_of(found.unanswered), operations)
            return
        gone = word.refused or refused(NoSuchVariable(f"nobody publishes {name} any more"))
        notice = Unpublished(subscription_id=number, name=name, code=gone.code, reason=gone.reason)
        has_it = found.granted is not None

        def told() -> None:
            if has_it:
                self._notices.push(subscriber, notice)

        self.answers.fill(place_of(found.waiting or found.record), gone, operations, told)

    def segment_released(self, contract: str) -> None:
        """The parent has taken our part of a contract back: is there another, or is it over?"""
        number, found = self._find(contract)
        if found is not None and self._is_in_doubt(number, found):
            self.ask(number)

    def segment_changed(self, contract: str, failed: Collection[int] = ()) -> None:
        """Our own part of a contract leads elsewhere, or has troubles, or none any more.

        `failed` are the indices of its paths that do not work.
        """
        _, found = self._find(contract)
        if found is None or found.is_ending or found.granted is None:
            return
        live = self._context.registry.subscriptions.get(
            self._context.registry.tree.segment(contract, found.granted.generation)
        )
        if live is not None:
            outcome = whole_outcome(
                found.record,
                found.granted,
                live.record,
                live.troubles,
                detection=self._context.detection,
                failed=failed,
            )
            self._notices.push(found.record.subscriber, ContractChanged(granted=outcome))

    def report_impaired(
        self, subscriber: str, number: int, is_whole: Callable[[Subscription], bool]
    ) -> None:
        """A subscriber has paths of a contract for broken; it is told if they are not."""
        found = self._context.registry.tree.asked.get(number)
        if found is None or found.granted is None or found.record.subscriber != subscriber:
            return
        contract = contract_name(self._context.registry.cloud, number)
        own = self._context.registry.tree.segment(contract, found.granted.generation)
        live = self._context.registry.subscriptions.get(own)
        if not found.granted.paths_down and live is not None and is_whole(live):
            self.segment_changed(contract)

    # Parts.

    def _nobody_answered(self, number: int) -> None:
        """The end-point has an answer in any case; the owner hears that it is not wanted.

        Since it may grant a change yet that was refused here, it is asked for what was before.
        """
        found = self._context.registry.tree.asked[number]
        waiting = found.waiting
        if waiting is None:
            return
        late = DeadlinePassed(
            f"nobody has answered about {waiting.name} in time",
            hint="the brokers above this cloud may be away: `gridstat tree` shows them",
        )
        if found.granted is None:
            self._give_up(waiting, late)
            return
        before = msgspec.structs.replace(
            found.record, generation=found.generation + 1, request_id=0, place=0
        )
        self.answers.fill(place_of(waiting), refused(late), [before], _nobody)

    def _give_up(self, record: ContractAsked, why: GridStatError) -> None:
        """End what was asked for, and answer why."""
        ending = Ending()
        ending.unsubscribe(self._context.registry, (record.number,))
        self.answers.fill(place_of(record), refused(why), ending.operations, _nobody)

    def _is_in_doubt(self, number: int, found: AskedContract) -> bool:
        """Whether nothing is held of what was granted: what its owner said since may be lost."""
        if found.granted is None or found.is_ending or found.change is not None:
            return False
        tree = self._context.registry.tree
        contract = contract_name(self._context.registry.cloud, number)
        return not tree.segment(contract, found.granted.generation)

    def _find(self, contract: str) -> tuple[int, AskedContract | None]:
        number = contract_number(self._context.registry.cloud, contract)
        return number, self._context.registry.tree.asked.get(number)

    def _segment(self, contract: str, generation: int) -> Subscribed | None:
        registry = self._context.registry
        found = registry.subscriptions.get(registry.tree.segment(contract, generation))
        return None if found is None else found.record

    def _room(self, endpoint: EndPoint) -> int:
        """How many more it may ask for: what has ended counts until the parent has heard of it."""
        tree, quotas = self._context.registry.tree, self._context.settings.quotas
        mine = len(tree.asked_by.get(endpoint.name, ())) + tree.ending_by.get(endpoint.name, 0)
        own = quotas.subscriptions_max - max(len(endpoint.subscriptions), mine)
        return max(0, min(own, quotas.contracts_elsewhere_max - len(tree.asked)))

    def _check_quota(self, endpoint: EndPoint) -> None:
        if not self._room(endpoint):
            raise QuotaReached(
                f"{endpoint.name}, or its cloud, has as many contracts with other clouds as it may",
                hint="those that have ended count until the broker above this cloud knows of it",
            )

    def _try_again(self, _: str) -> None:
        """The disk is full: nothing has changed here, and the parent is asked once more."""
        self._context.set_timer(ASK_TIMER, self._context.settings.retry_after_ns)


def _nothing(_: Applied) -> None:
    """Whoever has to hear of it hears it as news."""


def _nobody() -> None:
    """Nobody is told but by the answer to a request."""


# Whether what an owner has granted is what was asked for.


def mismatch_of(asked: ContractAsked, word: ContractGranted) -> GridStatError | None:
    """What is wrong with the variable, or with its type, if its subscriber expects one."""
    if word.variable.name != asked.name:
        return NoSuchVariable(f"{word.variable.name} was granted where {asked.name} was asked for")
    if not asked.type_encoded or asked.type_encoded == encode_type(word.variable.value_type):
        return None
    return TypeMismatch(f"{asked.name} is of another type than asked for")


def break_of(word: ContractGranted) -> LayoutError | None:
    """Where one of its paths is none: channels lead from router to router, and pieces meet."""
    for path in word.paths:
        if any(len(piece.channel_ids) != len(piece.routers) - 1 for piece in path.pieces):
            return LayoutError(f"{word.contract} was granted over routers without channels between")
        for piece, after in pairwise(path.pieces):
            if piece.routers[-1] != after.routers[0]:
                ends = f"{piece.routers[-1]} and {after.routers[0]}"
                return LayoutError(f"{word.contract} was granted with a gap between {ends}")
    return None


def is_known(held: ContractGranted | None, word: ContractGranted) -> bool:
    """Whether nothing is new in it: an owner says it again when other clouds lead it elsewhere."""
    if held is None or word.generation > held.generation:
        return False
    return word.generation < held.generation or structs.replace(word, term=held.term) == held


def answers(asked: ContractAsked, word: ContractGranted) -> bool:
    """Whether an owner that grants this has heard of what was asked.

    One that plans anew while a change is on its way to it grants the old quality once more, under
    the very generation that the change has, perhaps.
    """
    return word.answered >= asked.generation and fits(asked, word)


def fits(asked: ContractAsked, word: ContractGranted) -> bool:
    """Whether what is granted lies between what was desired and the worst acceptable.

    All modes are granted as many paths as the one that desires most (ADR-0020).
    """
    try:
        band = band_of(asked.qos, word.variable.period)
    except IntervalNotSatisfiable:
        return False
    if word.variable.is_replay:
        band = replay_band(band)
    most = max(qos.redundancy for qos in band.desired.values())
    return band.desired.keys() == word.granted.keys() and all(
        band.worst[mode].redundancy <= qos.redundancy <= most
        and qos.every <= band.worst[mode].every
        and qos.latency_us <= band.worst[mode].latency_us
        and qos.priority == band.desired[mode].priority
        for mode, qos in word.granted.items()
    )
