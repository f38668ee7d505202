"""Contracts of this cloud's end-points with variables of other clouds.

States of a contract (`AskedContract` in the registry):

  requested  --ContractGranted-->  granted     the end-point is answered
  requested  --ContractRefused-->  none        the end-point is answered
  granted    --change requested--> changing    AskContract of the next generation
  changing   --granted, refused--> granted     with the new or the previous quality
  granted    --ContractEnded-->    none        the end-point is notified
  any state  --unsubscribed-->     ending      EndContract
  ending     --ContractEnded-->    none
  any state  --start, no parent--> none        the end-point is notified

A contract is *in doubt* if it is granted but this cloud holds no segment of it: the owner may have
moved or ended it in a message that was lost. The broker then requests it again.

Timeout: after `ask_within_ns` without an answer the end-point is answered with `DeadlinePassed`. A
new contract is ended; a changed one is requested again with its previous quality, since the owner
may have granted the change. If a disk is full, here or on the way, the request is repeated after
`retry_after_ns`.

Restart and lost session: each request and each end is durable before the parent receives it, and is
sent again after every join until it is answered. Outcomes from other clouds go into the same answer
as those of this cloud (`pending_answers.py`).
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from gridstat.broker.capacity.negotiation import band_of, replay_band
from gridstat.broker.permissions import best_priority
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
from gridstat.broker.segments.pending_answers import AnswerDeadlines, PendingAnswers, position_of
from gridstat.broker.segments.segment_paths import whole_outcome
from gridstat.model.access_rules import Action, Wish
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
    SecurityNotSatisfiable,
    StorageFailed,
    TypeMismatch,
)
from gridstat.model.qos import demands_sealing, undefined_modes
from gridstat.model.quota import share_ppm
from gridstat.net.command.endpoint_messages import (
    ContractChanged,
    GrantedOutcome,
    Matched,
    Unpublished,
)
from gridstat.net.command.frames import decode_outcomes
from gridstat.net.command.segment_messages import AskContract, ContractEnded, EndContract

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation, PatternHeld, Subscribed
    from gridstat.broker.records.parent_state import AskedContract
    from gridstat.broker.records.registry import EndPoint, Subscription
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.requests.pending_grants import PendingGrants
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.broker.segments.leaf_borders import LeafBorders
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.net.command.endpoint_messages import ChangeSubscription, SubscriptionRequest
    from gridstat.net.command.segment_messages import ContractGranted, ContractRefused

REQUEST_TIMER: Final = "ask"
SEARCH_US_MAX: Final = 1_000_000
"""Search time that one answer may charge: no broker above spends as much on one contract."""


class RemoteContracts:
    """Sends every request until it is answered, and every end until it is confirmed."""

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        grants: PendingGrants,
        notices: Notices,
        session: ParentSession,
        borders: LeafBorders,
        failed_paths: Callable[[Subscribed], Collection[int]],
    ) -> None:
        """`failed_paths` returns the indices of a segment's paths that do not work."""
        self._context = context
        self._requests = requests
        self._notices = notices
        self._session = session
        self._borders = borders
        self._failed_paths = failed_paths
        self.answers = PendingAnswers(
            context, requests, grants, self._retry_later, self.report_changes
        )
        self.deadlines = AnswerDeadlines(context, self._answer_timed_out)
        self._orphaned: list[tuple[str, Unpublished]] = []
        """Subscribers and notices of contracts that a start without a parent is ending."""

    # Requests of end-points.

    def is_elsewhere(self, name: str) -> bool:
        """Return whether a name belongs to another cloud, and this cloud has a parent."""
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
        """Return the request for a contract; raise the refusal."""
        self._check_quota(endpoint)
        targets_of(endpoint, asked.qos)
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
        """Record a request whose answer waits for other clouds."""
        self.answers.wait(request, direct, applied)

    def change(self, request: Request, command: ChangeSubscription) -> None:
        """Request another quality of a contract; raise the refusal."""
        number = command.subscription_id
        found = self._context.registry.tree.asked[number]
        if found.is_ending or found.record.subscriber != request.endpoint:
            raise NoSuchSubscription(f"{request.endpoint} has no subscription {number}")
        if found.waiting is not None:
            raise Refused(
                f"the last change of subscription {number} has not been answered yet",
                hint="try again when it has been answered",
            )
        self._context.permissions.check_name(request.endpoint, found.record.name, command.qos)
        targets_of(self._context.registry.endpoints[request.endpoint], command.qos)
        changed = msgspec.structs.replace(
            found.record,
            qos=command.qos,
            generation=found.generation + 1,
            request_id=request.request_id,
            place=0,
        )
        # Request and begun answer become durable together: after a restart neither is alone.
        begun = AnswerBegun(
            endpoint=request.endpoint, request_id=request.request_id, outcomes=(b"",)
        )
        self._context.commit(
            [changed, begun], partial(self.wait, request, []), self._requests.fail(request)
        )

    def request_matches(self, pattern_id: int, names: Iterable[str]) -> None:
        """Request contracts for names in other clouds that match a pattern, each name once."""
        registry = self._context.registry
        held = registry.patterns[pattern_id]
        unknown = undefined_modes(held.qos.modes, self._context.settings.modes_defined)
        if unknown:  # Stored by an older release, which did not check the modes.
            self._context.note("pattern_refused", pattern_id=pattern_id, reason="undefined modes")
            return
        known = registry.tree.matched_names.get(pattern_id, set())
        requested: list[Operation] = []
        for name in dict.fromkeys(names):
            if name in known or not self.is_elsewhere(name) or not self._may_have(held, name):
                continue
            requested.append(
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
        quota_left = self._quota_left(registry.endpoints[held.subscriber])
        if requested[quota_left:]:
            self._context.note("pattern_refused", pattern_id=pattern_id, reason="quota")
        if requested[:quota_left]:
            self._context.commit(requested[:quota_left], _ignore_applied, self._retry_later)

    def _may_have(self, held: PatternHeld, name: str) -> bool:
        permissions = self._context.permissions
        wish = Wish(held.subscriber, Action.SUBSCRIBE, name, best_priority(held.qos))
        is_allowed = permissions.allows(wish)
        if not is_allowed and permissions.is_named(wish.who, wish.action, name):
            reason = f"{name} was not caught: {permissions.rules.decide(wish).reason}"
            self._context.note("pattern_refused", pattern_id=held.pattern_id, reason=reason)
        return is_allowed

    # Start without the parent that the cloud had.

    def orphaned(self) -> list[Operation]:
        """Return the ends of all contracts across clouds, which no parent can carry any more.

        A failed write of the ends is followed by another call, so the notices are collected anew.
        Missing outcomes of incomplete answers are filled by `PendingAnswers.resume`.
        """
        registry = self._context.registry
        gone = NoSuchVariable(
            f"cloud {registry.cloud} was started without a parent, by which it reached other clouds"
        )
        self._orphaned.clear()
        operations: list[Operation] = []
        for number, found in sorted(registry.tree.asked.items()):
            operations += self.answers.replaced(position_of(found.record), refused(gone))
            operations.append(ContractOver(number=number))
            if found.granted is not None and not found.is_ending:
                notice = Unpublished(
                    subscription_id=number,
                    name=found.record.name,
                    code=gone.code,
                    reason=str(gone.args[0]),
                )
                self._orphaned.append((found.record.subscriber, notice))
        return operations

    def notify_orphaned(self) -> None:
        """Notify the subscribers of ended contracts, once the ends are durable."""
        notices, self._orphaned = self._orphaned, []
        for subscriber, notice in notices:
            self._notices.push(subscriber, notice)

    # Messages to the parent.

    def request(self, number: int) -> None:
        """Send AskContract if an answer is missing or may have been lost."""
        self.deadlines.begin(number)
        registry = self._context.registry
        found = registry.tree.asked.get(number)
        requested = None if found is None else found.waiting
        if found is not None and self._is_in_doubt(number, found):
            # The owner answers a known generation with its present grant, or with a refusal.
            requested = found.record
        endpoint = None if requested is None else registry.endpoints.get(requested.subscriber)
        if requested is None or endpoint is None:
            return
        self._session.send(
            AskContract(
                term=self._session.term,
                contract=contract_name(registry.cloud, number),
                generation=requested.generation,
                name=requested.name,
                subscriber=requested.subscriber,
                qos=requested.qos,
                type_encoded=requested.type_encoded,
                ends=self._borders.distances_to_ends(
                    endpoint.edges_usable(
                        is_receiver=True, is_sealed=demands_sealing(requested.qos)
                    ),
                    is_start=False,
                ),
                share_ppm=share_ppm(self._context.quotas.of(requested.subscriber)),
                is_matched=bool(requested.pattern_id),
            )
        )

    def note_ended(self, reasons: Mapping[int, str]) -> None:
        """Note why access rules end contracts, some of which may not be answered yet."""
        asked = self._context.registry.tree.asked
        for number in reasons.keys() & asked.keys():
            self.answers.explain(position_of(asked[number].unanswered), reasons[number])

    def end(self, number: int) -> None:
        """Send EndContract, and answer a request that still waits for the contract."""
        found = self._context.registry.tree.asked.get(number)
        if found is not None:
            self.answers.close(position_of(found.unanswered))
        contract = contract_name(self._context.registry.cloud, number)
        self._session.send(EndContract(term=self._session.term, contract=contract))

    def request_all(self) -> None:
        """Send all unanswered requests and ends, after a join or when the disk has space again."""
        for number, found in sorted(self._context.registry.tree.asked.items()):
            if found.is_ending:
                self.end(number)
            else:
                self.request(number)

    # Messages from the parent.

    def granted(self, message: ContractGranted) -> None:
        number, found = self._find(message.contract)
        self._charge_search(found, message.search_us)
        message = structs.replace(message, search_us=0)  # Else a repeated one would be another.
        if found is None or found.is_ending:
            if number:
                self.end(number)  # The owner has not received the end yet, or lost it.
            return
        if is_repeated(found.granted, message) and not self._is_in_doubt(number, found):
            return
        # The owner is another process, perhaps of another release: nothing is taken on trust.
        gap = path_gap(message)
        if gap is not None:
            self._context.note("grant_refused", contract=message.contract, reason=str(gap.args[0]))
            if found.granted is None:
                self._give_up(found.record, gap)
            return
        requested = found.waiting
        if requested is not None and not answers_request(requested, message):
            requested = None  # A new plan of an owner that has not received the change yet.
        record = requested or found.record
        if demands_sealing(record.qos) and not message.is_sealed:
            self._refuse_unsealed(number, found, requested)
            return
        mismatch = variable_mismatch(record, message)
        if mismatch is not None and found.granted is None:
            self._give_up(record, mismatch)
            return
        segment = self._segment(message.contract, message.generation)
        order = self._context.next_order()  # Of the answer, or of the notice once it is durable.
        outcome = structs.replace(
            whole_outcome(record, message, segment, detection=self._context.detection), order=order
        )
        notify: Callable[[], None] = _no_op
        if requested is None or found.is_restoring:
            notice = ContractChanged(granted=outcome, order=order)
            notify = partial(self._notices.push, record.subscriber, notice)
        elif record.pattern_id and found.granted is None:
            match = Matched(pattern_id=record.pattern_id, granted=outcome)
            notify = partial(self._notices.push, record.subscriber, match)
        held = ContractHeld(number=number, granted=message, is_asked=requested is not None)
        self.answers.fill(position_of(record), outcome, [held], notify)

    def _refuse_unsealed(
        self, number: int, found: AskedContract, requested: ContractAsked | None
    ) -> None:
        """Refuse a grant whose owner does not confirm the sealed channels that were demanded."""
        unsealed = SecurityNotSatisfiable(
            f"the brokers above cloud {self._context.registry.cloud} do not confirm sealed "
            f"channels to {found.record.name}: one of them is of an earlier release",
            hint="upgrade the brokers above this cloud, or ask without security",
        )
        if found.granted is None:
            self._give_up(found.record, unsealed)
        elif requested is not None:
            self._restore(found, requested, unsealed)
        else:
            contract = contract_name(self._context.registry.cloud, number)
            self._context.note("grant_refused", contract=contract, reason=str(unsealed.args[0]))

    def refused(self, message: ContractRefused) -> None:
        number, found = self._find(message.contract)
        self._charge_search(found, message.search_us)
        waiting = None if found is None else found.waiting
        if found is None or (waiting or found.record).generation != message.generation:
            return  # A late answer to a request that was changed or ended since.
        is_in_doubt = self._is_in_doubt(number, found)
        if message.refused.code == StorageFailed.code or (
            (is_in_doubt or found.is_restoring) and message.refused.code == DeadlinePassed.code
        ):
            # A full disk or a late broker on the way is no answer, and must not be stored as one.
            self._retry_later(message.refused.reason)
            return
        if waiting is None:
            if is_in_doubt:  # The contract has ended, and ContractEnded was lost.
                notify = ContractEnded(term=0, contract=message.contract, refused=message.refused)
                self.ended(notify)
            return
        if waiting.pattern_id and not waiting.request_id:
            self._context.note(
                "pattern_refused", pattern_id=waiting.pattern_id, reason=message.refused.reason
            )
        declined = ContractDeclined(number=number, generation=message.generation)
        self.answers.fill(
            position_of(waiting), message.refused, [declined], partial(self.request, number)
        )

    def ended(self, message: ContractEnded) -> None:
        """Remove a contract that has ended, on our request or because its variable is gone."""
        number, found = self._find(message.contract)
        if found is None:
            return
        self._charge_search(found, message.search_us)
        # Our segments of the contract end with it, even if the Release of the parent is lost.
        ending = Ending()
        segments = self._context.registry.tree.segments.get(message.contract, {})
        ending.unsubscribe(self._context.registry, segments.values())
        operations = [*ending.operations, ContractOver(number=number)]
        name, subscriber = found.record.name, found.record.subscriber
        if found.is_ending:
            self.answers.close(position_of(found.unanswered), operations)
            return
        gone = message.refused or refused(NoSuchVariable(f"nobody publishes {name} any more"))
        notice = Unpublished(subscription_id=number, name=name, code=gone.code, reason=gone.reason)
        has_it = found.granted is not None

        def notify() -> None:
            if has_it:
                self._notices.push(subscriber, notice)

        self.answers.fill(position_of(found.waiting or found.record), gone, operations, notify)

    def segment_released(self, contract: str) -> None:
        """Request the contract again if the parent released our segment and granted no other."""
        number, found = self._find(contract)
        if found is not None and self._is_in_doubt(number, found):
            self.request(number)

    def segment_changed(self, contract: str, failed: Collection[int] = ()) -> None:
        """Notify the subscriber that our segment was rerouted, has failures, or is restored.

        `failed` are the indices of its paths that do not work.
        """
        _, found = self._find(contract)
        live = self._live_segment(contract, found)
        if found is not None and live is not None:
            outcome = self._present_outcome(found, live, failed)
            self._notices.push(found.record.subscriber, ContractChanged(granted=outcome))

    def report_changes(self, body: bytes) -> None:
        """Notify of contracts that have changed since an answer, which was just sent, was decided.

        The end-point did not know the contracts when the first notices of these changes were sent.
        """
        registry = self._context.registry
        for outcome in decode_outcomes(body).outcomes:
            if not isinstance(outcome, GrantedOutcome):
                continue
            found = registry.tree.asked.get(outcome.subscription_id)
            contract = contract_name(registry.cloud, outcome.subscription_id)
            live = self._live_segment(contract, found)
            if found is None or live is None:
                continue
            present = self._present_outcome(found, live, self._failed_paths(live.record))
            if structs.replace(present, order=outcome.order) != outcome:
                self._notices.push(found.record.subscriber, ContractChanged(granted=present))

    def report_impaired(
        self, subscriber: str, number: int, is_whole: Callable[[Subscription], bool]
    ) -> None:
        """Notify a subscriber that reports broken paths of a contract if all paths work."""
        found = self._context.registry.tree.asked.get(number)
        if found is None or found.granted is None or found.record.subscriber != subscriber:
            return
        contract = contract_name(self._context.registry.cloud, number)
        own = self._context.registry.tree.segment(contract, found.granted.generation)
        live = self._context.registry.subscriptions.get(own)
        if not found.granted.paths_down and live is not None and is_whole(live):
            self.segment_changed(contract)

    # Helpers.

    def _answer_timed_out(self, number: int) -> None:
        """Answer the end-point with `DeadlinePassed`, and withdraw the request from the owner.

        The owner may still grant a change that was refused here, so the previous quality is
        requested again.
        """
        found = self._context.registry.tree.asked[number]
        waiting = found.waiting
        if waiting is None:
            return
        late = DeadlinePassed(
            f"no answer about {waiting.name} has arrived in time",
            hint="the brokers above this cloud may be down: `gridstat tree` shows them",
        )
        if found.granted is None:
            self._give_up(waiting, late)
            return
        self._restore(found, waiting, late)

    def _restore(self, found: AskedContract, change: ContractAsked, why: GridStatError) -> None:
        """Refuse a change, and request the previous quality again."""
        before = msgspec.structs.replace(
            found.record, generation=found.generation + 1, request_id=0, place=0
        )
        self.answers.fill(position_of(change), refused(why), [before], _no_op)

    def _give_up(self, record: ContractAsked, why: GridStatError) -> None:
        """End a contract that was requested, and answer the end-point with the reason."""
        ending = Ending()
        ending.unsubscribe(self._context.registry, (record.number,))
        self.answers.fill(position_of(record), refused(why), ending.operations, _no_op)

    def _charge_search(self, found: AskedContract | None, search_us: int) -> None:
        """Charge the subscriber for the searches that its request has caused in the tree."""
        if found is not None and search_us:
            took_us = min(search_us, SEARCH_US_MAX)
            self._requests.searched(found.record.subscriber, 1_000 * took_us)

    def _is_in_doubt(self, number: int, found: AskedContract) -> bool:
        """Return whether a granted contract has no segment here: messages of its owner may be
        lost."""
        if found.granted is None or found.is_ending or found.change is not None:
            return False
        tree = self._context.registry.tree
        contract = contract_name(self._context.registry.cloud, number)
        return not tree.segment(contract, found.granted.generation)

    def _live_segment(self, contract: str, found: AskedContract | None) -> Subscription | None:
        """Return our segment of a granted contract that is not ending."""
        if found is None or found.is_ending or found.granted is None:
            return None
        registry = self._context.registry
        return registry.subscriptions.get(registry.tree.segment(contract, found.granted.generation))

    def _present_outcome(
        self, found: AskedContract, live: Subscription, failed: Collection[int]
    ) -> GrantedOutcome:
        assert found.granted is not None
        return whole_outcome(
            found.record,
            found.granted,
            live.record,
            live.troubles,
            detection=self._context.detection,
            failed=failed,
        )

    def _find(self, contract: str) -> tuple[int, AskedContract | None]:
        number = contract_number(self._context.registry.cloud, contract)
        return number, self._context.registry.tree.asked.get(number)

    def _segment(self, contract: str, generation: int) -> Subscribed | None:
        registry = self._context.registry
        found = registry.subscriptions.get(registry.tree.segment(contract, generation))
        return None if found is None else found.record

    def _quota_left(self, endpoint: EndPoint) -> int:
        """Return how many more contracts the end-point may request.

        An ended contract counts until the parent has confirmed the end.
        """
        tree, quotas = self._context.registry.tree, self._context.settings.quotas
        mine = len(tree.asked_by.get(endpoint.name, ())) + tree.ending_by.get(endpoint.name, 0)
        own = self._context.quotas.of(endpoint.name).subscriptions - max(
            len(endpoint.subscriptions), mine
        )
        return max(0, min(own, quotas.contracts_elsewhere_max - len(tree.asked)))

    def _check_quota(self, endpoint: EndPoint) -> None:
        if not self._quota_left(endpoint):
            raise QuotaReached(
                f"{endpoint.name}, or its cloud, has too many contracts with other clouds",
                hint="an ended contract counts until the broker above this cloud confirms it",
            )

    def _retry_later(self, _: str) -> None:
        """Repeat all requests later, because the disk is full and nothing has changed here."""
        self._context.set_timer(REQUEST_TIMER, self._context.settings.retry_after_ns)


def _ignore_applied(_: Applied) -> None:
    """Ignore the result; `end_turn` reports the change."""


def _no_op() -> None:
    """Send no notice: the answer to the request is enough."""


# Checks of a grant against the request that it answers.


def variable_mismatch(requested: ContractAsked, message: ContractGranted) -> GridStatError | None:
    """Return the error if the grant is for another variable, or of an unexpected type."""
    if message.variable.name != requested.name:
        return NoSuchVariable(
            f"{message.variable.name} was granted where {requested.name} was requested"
        )
    if not requested.type_encoded or requested.type_encoded == encode_type(
        message.variable.value_type
    ):
        return None
    return TypeMismatch(f"{requested.name} is of another type than requested")


def path_gap(message: ContractGranted) -> LayoutError | None:
    """Return the error if a path has a gap between routers, channels or pieces."""
    for path in message.paths:
        if any(len(piece.channel_ids) != len(piece.routers) - 1 for piece in path.pieces):
            return LayoutError(
                f"{message.contract} was granted over routers without channels between them"
            )
        for piece, after in pairwise(path.pieces):
            if piece.routers[-1] != after.routers[0]:
                ends = f"{piece.routers[-1]} and {after.routers[0]}"
                return LayoutError(f"{message.contract} was granted with a gap between {ends}")
    return None


def is_repeated(held: ContractGranted | None, message: ContractGranted) -> bool:
    """Return whether the grant is old or repeated; owners also send it again with new paths."""
    if held is None or message.generation > held.generation:
        return False
    return message.generation < held.generation or structs.replace(message, term=held.term) == held


def answers_request(requested: ContractAsked, message: ContractGranted) -> bool:
    """Return whether the owner had received the request when it sent this grant.

    An owner that plans again while a change is under way grants the old quality once more, possibly
    under the generation of the change.
    """
    return message.answered >= requested.generation and is_within_request(requested, message)


def is_within_request(requested: ContractAsked, message: ContractGranted) -> bool:
    """Return whether the granted quality lies between the desired and the worst acceptable one.

    All modes are granted as many paths as the mode that desires most (ADR-0020).
    """
    try:
        band = band_of(requested.qos, message.variable.period)
    except IntervalNotSatisfiable:
        return False
    if message.variable.is_replay:
        band = replay_band(band)
    most = max(qos.redundancy for qos in band.desired.values())
    return band.desired.keys() == message.granted.keys() and all(
        band.worst[mode].redundancy <= qos.redundancy <= most
        and qos.every <= band.worst[mode].every
        and qos.latency_us <= band.worst[mode].latency_us
        and qos.priority == band.desired[mode].priority
        for mode, qos in message.granted.items()
    )
