"""Registrations that the application wants, and those that the cloud has lost.

Learnt from the application's own requests and their outcomes. A cloud that has forgotten the end-
point (which was away beyond the grace time, or whose state was purged) gets all of them again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from gridstat.endpoint.session_events import (
    NoticeReceived,
    PublicationRestored,
    SubscriptionRestored,
)
from gridstat.net.command.endpoint_messages import (
    SUBSCRIPTIONS_AT_ONCE,
    ChangePublication,
    ChangeSubscription,
    ContractChanged,
    Detach,
    GrantedOutcome,
    PublicationRequest,
    Publish,
    PublishedOutcome,
    RefusedOutcome,
    Subscribe,
    SubscriptionRequest,
    Unpublish,
    Unpublished,
    Unsubscribe,
)
from gridstat.net.command.session_messages import MANY_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.net.command.endpoint_messages import (
        AttachedOutcome,
        EndPointCommand,
        Notice,
        Outcome,
    )

STRANGER: Final = 0
RESTARTED: Final = 3
"""Values of `AttachedOutcome.code`: the cloud does not know the end-point, or has purged its
state."""

KNOWN_SINCE_MAX: Final = 64

WITHDRAWN_MAX: Final = 10_000
"""Withdrawn identifiers that are remembered, for answers that come after the notice."""


@dataclass(slots=True)
class _Subscription:
    request: SubscriptionRequest
    subscription_id: int


class Registrations:
    """Publications by name and subscriptions by label, as last granted, including lost ones.

    A label names one subscription of this end-point for as long as it lives.
    """

    def __init__(self) -> None:
        self._publications: dict[str, PublicationRequest] = {}
        self._identifiers: dict[str, int] = {}
        """Identifiers under which publications are registered: a late notice is of another."""
        self._withdrawn: set[int] = set()
        """Identifiers that the cloud has withdrawn; an answer may come later than that notice."""
        self._subscriptions: dict[str, _Subscription] = {}
        self._labels: dict[int, str] = {}
        self._lost_publications: set[str] = set()
        self._lost_subscriptions: set[str] = set()
        self._known_since: deque[int] = deque(maxlen=KNOWN_SINCE_MAX)
        """The latest values of `AttachedOutcome.known_since`, in the order of their arrival."""
        self.is_leaving = False
        """True if the application has requested to detach: a cloud that does not know us is
        right."""

    @property
    def is_whole(self) -> bool:
        """True if the cloud holds all registrations, as far as is known."""
        return not (self._lost_publications or self._lost_subscriptions)

    def attached(self, outcome: AttachedOutcome, *, is_alone: bool) -> bool:
        """Return whether the cloud has registered the end-point newly, and so has lost its
        registrations.

        The code alone is not enough: it is the same at an edge that is new to a cloud which knows
        us well. The code of a broker that does not send `known_since` counts at the first edge.

        A broker whose journal was lost may register us by an older request than the one before it
        did, if that request waited at a router: so any value that is new counts, not only a higher
        one. A late answer of an earlier broker then costs a repetition of what is held already.
        """
        if not outcome.known_since:
            return is_alone and outcome.code in (STRANGER, RESTARTED)
        if outcome.known_since in self._known_since:
            return False
        self._known_since.append(outcome.known_since)
        return True

    def requested(self, command: EndPointCommand) -> None:
        """Remove registrations that the application ends, whether or not the cloud answers."""
        match command:
            case Unpublish(names=names):
                for name in names:
                    self._publications.pop(name, None)
                    self._identifiers.pop(name, None)
                    self._lost_publications.discard(name)
            case Unsubscribe(subscription_ids=()) | Detach():
                self._subscriptions.clear()
                self._labels.clear()
                self._lost_subscriptions.clear()
                if isinstance(command, Detach):
                    self.is_leaving = True
                    self._publications.clear()
                    self._identifiers.clear()
                    self._lost_publications.clear()
            case Unsubscribe(subscription_ids=ids):
                for subscription_id in ids:
                    self._end(subscription_id)
            case _:
                pass

    def answered(self, command: EndPointCommand, outcomes: tuple[Outcome, ...]) -> None:
        """Remember what was granted; a refusal changes nothing."""
        match command:
            case Publish(publications=publications):
                for request, outcome in zip(publications, outcomes, strict=False):
                    if isinstance(outcome, PublishedOutcome):
                        self._publications[request.variable.name] = request
                        self._register(request.variable.name, outcome.variable.variable_id)
            case Subscribe(subscriptions=subscriptions):
                for asked, outcome in zip(subscriptions, outcomes, strict=False):
                    if isinstance(outcome, GrantedOutcome):
                        self._granted(asked, outcome)
            case ChangePublication(name=name) if name in self._publications:
                for outcome in outcomes:
                    if isinstance(outcome, PublishedOutcome):
                        self._publications[name] = PublicationRequest(variable=outcome.variable)
                        self._identifiers[name] = outcome.variable.variable_id
            case ChangeSubscription(subscription_id=subscription_id, qos=qos):
                held = self._subscriptions.get(self._labels.get(subscription_id, ""))
                if held is not None and any(isinstance(each, GrantedOutcome) for each in outcomes):
                    held.request = msgspec.structs.replace(held.request, qos=qos)
            case _:
                pass

    def _register(self, name: str, variable_id: int) -> None:
        self._identifiers[name] = variable_id
        if variable_id in self._withdrawn:
            self._lost_publications.add(name)
        else:
            self._lost_publications.discard(name)

    def changed(
        self, command: EndPointCommand, outcomes: tuple[Outcome, ...]
    ) -> list[NoticeReceived | PublicationRestored]:
        """Return outputs about a change that was granted after the application stopped waiting."""
        if not isinstance(command, ChangeSubscription | ChangePublication):
            return []
        self.answered(command, outcomes)
        outputs: list[NoticeReceived | PublicationRestored] = []
        for outcome in outcomes:
            if isinstance(outcome, GrantedOutcome):
                notice = ContractChanged(granted=outcome, order=outcome.order)
                outputs.append(NoticeReceived(notice))
            elif isinstance(outcome, PublishedOutcome):
                outputs.append(PublicationRestored(outcome.variable.name, outcome))
        return outputs

    def unknown(self, outcomes: tuple[Outcome, ...]) -> list[Outcome]:
        """Return the outcomes that grant an unknown contract."""
        return [
            each
            for each in outcomes
            if isinstance(each, GrantedOutcome) and each.subscription_id not in self._labels
        ]

    def notice_received(self, notice: Notice) -> None:
        """Remove a subscription whose variable is removed for good.

        A publication that the cloud has withdrawn (without a subscription) is requested again
        later: a rule may allow it by then.
        """
        if not isinstance(notice, Unpublished):
            return
        if not notice.subscription_id:
            if len(self._withdrawn) >= WITHDRAWN_MAX:
                self._withdrawn.clear()
            self._withdrawn.add(notice.variable_id)
            if self._identifiers.get(notice.name) == notice.variable_id:
                self._lost_publications.add(notice.name)
        elif notice.is_over:
            self._end(notice.subscription_id)

    def forget_all(self) -> None:
        """Mark all registrations as lost."""
        self._lost_publications = set(self._publications)
        self._lost_subscriptions = set(self._subscriptions)

    def restoring(self) -> Iterator[Publish | Subscribe]:
        """Yield the commands that restore lost registrations: publications first, many at a
        time."""
        names = sorted(self._lost_publications)
        for at in range(0, len(names), MANY_MAX):
            some = names[at : at + MANY_MAX]
            yield Publish(publications=tuple(self._publications[name] for name in some))
        labels = sorted(self._lost_subscriptions)
        for at in range(0, len(labels), SUBSCRIPTIONS_AT_ONCE):
            part = labels[at : at + SUBSCRIPTIONS_AT_ONCE]
            yield Subscribe(subscriptions=tuple(self._subscriptions[each].request for each in part))

    def restored(
        self, command: EndPointCommand, outcomes: tuple[Outcome, ...], newest: tuple[bytes, ...]
    ) -> tuple[list[PublicationRestored | SubscriptionRestored], list[Outcome]]:
        """Return outputs for the application, and outcomes that were granted but are not wanted any
        more."""
        outputs: list[PublicationRestored | SubscriptionRestored] = []
        unwanted: list[Outcome] = []
        if isinstance(command, Publish):
            for request, outcome in zip(command.publications, outcomes, strict=False):
                name = request.variable.name
                if name not in self._lost_publications:
                    unwanted.append(outcome)
                elif isinstance(outcome, PublishedOutcome | RefusedOutcome):
                    self.answered(Publish(publications=(request,)), (outcome,))
                    outputs.append(PublicationRestored(name, outcome))
        elif isinstance(command, Subscribe):
            for asked, outcome in zip(command.subscriptions, outcomes, strict=False):
                if asked.label not in self._lost_subscriptions:
                    unwanted.append(outcome)
                elif isinstance(outcome, GrantedOutcome | RefusedOutcome):
                    self.answered(Subscribe(subscriptions=(asked,)), (outcome,))
                    outputs.append(SubscriptionRestored(asked.label, outcome, newest))
        return outputs, unwanted

    def _granted(self, request: SubscriptionRequest, outcome: GrantedOutcome) -> None:
        before = self._subscriptions.get(request.label)
        if before is not None and self._labels.get(before.subscription_id) == request.label:
            # Else a broker that lost its journal has given the number to another one: earlier
            # releases count from the beginning then.
            del self._labels[before.subscription_id]
        self._subscriptions[request.label] = _Subscription(request, outcome.subscription_id)
        self._labels[outcome.subscription_id] = request.label
        self._lost_subscriptions.discard(request.label)

    def _end(self, subscription_id: int) -> None:
        label = self._labels.pop(subscription_id, None)
        if label is not None:
            self._subscriptions.pop(label, None)
            self._lost_subscriptions.discard(label)
