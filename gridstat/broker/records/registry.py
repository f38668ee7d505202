"""State of the cloud: routers, end-points, publications, subscriptions, and their indices.

There is an index for every question of a request, so that no request walks over all subscriptions.
Only the modules of `effects` change the durable part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from typing import TYPE_CHECKING, Final, TypeVar

from gridstat.broker.records.answer_cache import AnswerCache
from gridstat.broker.records.name_tree import NameTree
from gridstat.broker.records.parent_state import ParentState
from gridstat.model.channel_security import HOP, NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gridstat.broker.records.operation import Applied, Step
    from gridstat.broker.records.operations import PatternHeld, RouterReported, Subscribed
    from gridstat.model.channel_security import Security
    from gridstat.model.cloud import EventChannel, Router, Way
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import LedgerEntry

Key = TypeVar("Key", int, str)
Member = TypeVar("Member", int, str)

ALLOTTED_CHANNEL_ID_MIN: Final = 1 << 20
"""First identifier of attachments' channels; those of the broker's file are below."""
ALLOTTED_CHANNEL_IDS: Final = (1 << 31) - ALLOTTED_CHANNEL_ID_MIN
CHANNEL_ID_BYTES: Final = 8
RETIRED_MAX: Final = 65_536
"""Bound on the end-points that have left and whose last request is remembered, against replays."""


@dataclass(slots=True)
class Attachment:
    """Attachment of an end-point to one edge: a channel up, a channel down, and its state.

    `is_doubtful` is true while only the report of a reconnected edge says that the end-point's
    session is still the one that attached.
    """

    edge: str
    edge_instance: str
    up_channel_id: int
    down_channel_id: int
    host: str
    data_port: int
    urgent_port: int
    datagram_versions: tuple[int, ...]
    security: Security = NONE
    is_up: bool = True
    is_doubtful: bool = False


@dataclass(slots=True)
class EndPoint:
    """One process of an end-point with all that it holds; `public_key` verifies its requests."""

    name: str
    incarnation: str
    public_key: bytes
    not_after_s: int
    is_restarted: bool = False
    known_since: int = 0
    """Request by which this process was registered; a later one if it was removed in between."""
    attachments: dict[str, Attachment] = field(default_factory=dict)
    publications: set[str] = field(default_factory=set)
    subscriptions: set[int] = field(default_factory=set)
    patterns: set[int] = field(default_factory=set)
    answer_cache: AnswerCache = field(default_factory=AnswerCache)
    lost_ns: int | None = None
    """Time at which the last of its sessions was lost; None while there is a session."""

    @property
    def is_up(self) -> bool:
        return any(attachment.is_up for attachment in self.attachments.values())

    def edges_up(self) -> list[str]:
        return sorted(edge for edge, found in self.attachments.items() if found.is_up)

    def edges_usable(
        self, *, is_receiver: bool = False, is_sealed: bool = False
    ) -> tuple[str, ...]:
        """Return the edges at which paths begin or end: the connected ones, or else all.

        With `is_sealed` only those edges count to which the end-point's channels are sealed.
        """
        if len(self.attachments) == 1 and not is_sealed:
            ((edge, found),) = self.attachments.items()
            return (edge,) if found.data_port > 0 or not is_receiver else ()
        here = {
            edge: found.is_up
            for edge, found in sorted(self.attachments.items())
            if (found.data_port > 0 or not is_receiver) and (found.security == HOP or not is_sealed)
        }
        return tuple(edge for edge, is_up in here.items() if is_up) or tuple(here)


@dataclass(slots=True)
class Publication:
    """A registered variable; dormant after its publisher's restart until it is published again."""

    variable: StatusVariable
    publisher: str
    is_dormant: bool = False
    subscriptions: set[int] = field(default_factory=set)
    change: PublicationChange | None = None
    request_id: int = 0
    """Request of several slices that registered it; 0 if it was decided in one turn."""

    @property
    def carried(self) -> tuple[StatusVariable, ...]:
        """Variables that routers carry for it: two during a change of period."""
        return (self.variable,) if self.change is None else (self.variable, self.change.old)


@dataclass(slots=True)
class PublicationChange:
    """A change of period under way; `from_ns` is 0 until the change is announced."""

    old: StatusVariable
    from_ns: int = 0


@dataclass(slots=True)
class Retiring:
    """Steps that tear down the paths that the given generation of a contract replaced.

    With `is_held` the steps wait for a change of the publication, which still needs the old paths.
    With `is_in_place` the old paths are not charged.
    """

    generation: int
    steps: tuple[Step, ...]
    is_held: bool
    replaced: Subscribed
    is_in_place: bool = False


@dataclass(slots=True)
class Subscription:
    """A contract in force; `troubles` lists why it is below its grant at the moment.

    `record` is the newest generation, which the journal may not have written yet. `ordered` is the
    newest generation that the routers have orders of, with its variable; None before the first.
    """

    record: Subscribed
    variable: StatusVariable
    ordered: tuple[Subscribed, StatusVariable] | None = None
    retiring: list[Retiring] = field(default_factory=list)
    troubles: tuple[str, ...] = ()
    ledger: LedgerEntry | None = None

    def order(self, record: Subscribed, variable: StatusVariable) -> None:
        """Handle that a generation is durable, and that the routers receive its orders."""
        self.ordered = record, variable

    def carries(self, record: Subscribed) -> bool:
        """Return whether routers have, or will have, orders of this very generation."""
        return record is self.record or any(record is each.replaced for each in self.retiring)

    def keep(self, retiring: Retiring) -> None:
        """Drop the entry of a change that failed."""
        self.retiring = [found for found in self.retiring if found is not retiring]

    def retire(self, generation: int, done: Applied, *, with_held: bool = False) -> None:
        """Tear down what this and earlier generations replaced, once the operation is durable."""
        before = self.retiring
        due: list[Retiring] = []
        self.retiring = []
        for found in before:
            is_due = found.generation <= generation and (with_held or not found.is_held)
            (due if is_due else self.retiring).append(found)
        done.undo.append(partial(setattr, self, "retiring", before))
        done.tables += [step for found in due for step in found.steps]


class Registry:
    """State of the cloud; every index agrees with the dictionaries, and identifiers only grow."""

    def __init__(self, cloud: str) -> None:
        self.cloud = cloud
        self.term = 0
        self.journal = ""
        self.terms_lost = (0, 0)
        """First term of a journal that is lost, and the term with which this one went on."""
        self.variable_id_first = 0
        """Lowest identifier of a variable that this journal counts from; 0: it counts from 1."""
        self.variable_id_last = 0
        self.subscription_id_last = 0
        self.channel_id_last = ALLOTTED_CHANNEL_ID_MIN - 1
        """Highest identifier so far, for releases that count identifiers up."""
        self.channel_ids: set[int] = set()
        """Identifiers of all channels that there are; none is drawn again."""
        self.routers: dict[str, Router] = {}
        self.channels: dict[int, EventChannel] = {}
        self.channels_of: dict[str, set[int]] = {}
        self.channel_on: dict[Way, int] = {}
        self.reports: dict[str, RouterReported] = {}
        self.endpoints: dict[str, EndPoint] = {}
        self.retired: dict[str, int] = {}
        self.publications: dict[str, Publication] = {}
        self.changing: set[str] = set()
        self.names: dict[int, str] = {}
        self.name_tree = NameTree()
        self.subscriptions: dict[int, Subscription] = {}
        self.unplaced: dict[int, Subscribed] = {}
        """Contracts from the journal whose routers or channels are no longer in the broker's
        file."""
        self.patterns: dict[int, PatternHeld] = {}
        self.pattern_tree = NameTree()
        self.matching_left: dict[tuple[int, str], None] = {}
        """Patterns, and names (with pattern 0), whose matching is not complete, in order."""
        self.attached_to: dict[str, set[str]] = {}
        self.over_channel: dict[int, set[int]] = {}
        self.through_router: dict[str, set[int]] = {}
        self.foreign: dict[int, Publication] = {}
        """Variables of other clouds that segments bring here, by identifier."""
        self.tree = ParentState()

    def is_lost(self, term: int) -> bool:
        """Return whether a term was begun by a journal that is lost."""
        first, end = self.terms_lost
        return first <= term < end

    # Identifiers.

    def next_variable_id(self) -> int:
        self.variable_id_last += 1
        return self.variable_id_last

    def next_subscription_id(self) -> int:
        self.subscription_id_last += 1
        return self.subscription_id_last

    def new_channel_id(self, random_bytes: Callable[[int], bytes]) -> int:
        """Return a random identifier that no channel of this cloud has.

        Nobody outside can foresee it. Identifiers of the broker's file are below the range, and
        those of channels between clouds above it.
        """
        while True:
            drawn = int.from_bytes(random_bytes(CHANNEL_ID_BYTES), "big")
            number = ALLOTTED_CHANNEL_ID_MIN + drawn % ALLOTTED_CHANNEL_IDS
            if number not in self.channel_ids:
                self.channel_ids.add(number)
                return number

    # Routers and channels.

    def add_router(self, router: Router) -> None:
        self.routers[router.name] = router
        self.channels_of.setdefault(router.name, set())

    def remove_router(self, name: str) -> None:
        self.routers.pop(name, None)
        self.channels_of.pop(name, None)
        self.reports.pop(name, None)

    def add_channel(self, channel: EventChannel) -> None:
        self.channel_ids.add(channel.channel_id)
        self.channels[channel.channel_id] = channel
        self.channels_of.setdefault(channel.from_router, set()).add(channel.channel_id)
        self.channels_of.setdefault(channel.to_router, set()).add(channel.channel_id)
        self.channel_on[channel.way] = channel.channel_id

    def remove_channel(self, channel_id: int) -> None:
        channel = self.channels.pop(channel_id, None)
        if channel is not None:
            self.channel_ids.discard(channel_id)
            for end in (channel.from_router, channel.to_router):
                self.channels_of.get(end, set()).discard(channel_id)
            self.channel_on.pop(channel.way, None)

    # End-points.

    def add_attachment(self, endpoint: EndPoint, attachment: Attachment) -> None:
        replaced = endpoint.attachments.get(attachment.edge)
        if replaced is not None:
            self.channel_ids -= {replaced.up_channel_id, replaced.down_channel_id}
        endpoint.attachments[attachment.edge] = attachment
        self.channel_ids |= {attachment.up_channel_id, attachment.down_channel_id}
        self.attached_to.setdefault(attachment.edge, set()).add(endpoint.name)

    def remove_attachment(self, endpoint: EndPoint, edge: str) -> Attachment | None:
        attachment = endpoint.attachments.pop(edge, None)
        if attachment is not None:
            self.channel_ids -= {attachment.up_channel_id, attachment.down_channel_id}
        _discard(self.attached_to, edge, endpoint.name)
        return attachment

    def retire(self, name: str, floor: int) -> None:
        """Remember the last request of an end-point that has left; drop the oldest entries."""
        self.retired.pop(name, None)
        self.retired[name] = floor
        while len(self.retired) > RETIRED_MAX:
            del self.retired[next(iter(self.retired))]

    # Publications.

    def add_publication(self, publication: Publication) -> None:
        name = publication.variable.name
        self.publications[name] = publication
        if publication.change is not None:
            self.changing.add(name)
        self.names[publication.variable.variable_id] = name
        self.name_tree.add(name, publication.variable.variable_id)
        if (publisher := self.endpoints.get(publication.publisher)) is not None:
            publisher.publications.add(name)

    def remove_publication(self, name: str) -> Publication | None:
        publication = self.publications.pop(name, None)
        self.changing.discard(name)
        if publication is not None:
            self.names.pop(publication.variable.variable_id, None)
            self.name_tree.discard(name, publication.variable.variable_id)
            if (publisher := self.endpoints.get(publication.publisher)) is not None:
                publisher.publications.discard(name)
        return publication

    def matching(self, pattern: str, *, after: str = "") -> Iterator[Publication]:
        """Return the publications that match a pattern, in name order, or those behind a name."""
        return (
            self.publications[self.names[variable_id]]
            for variable_id in self.name_tree.matching(pattern, after=after)
        )

    def matching_any(
        self, patterns: Sequence[str], *, after: str = ""
    ) -> Iterator[tuple[str, Publication | None]]:
        """Yield the publications that match one pattern or more, each once, in name order.

        Each has its name beside it. A name without a publication says how far the walk has come.
        """
        last = None
        found = (self._walk(pattern, after) for pattern in patterns)
        for name, publication in merge(*found, key=_name_parts):
            if publication is None or publication is not last:
                yield name, publication
            last = publication or last

    def _walk(self, pattern: str, after: str) -> Iterator[tuple[str, Publication | None]]:
        for each in self.name_tree.walk(pattern, after=after):
            name = each if isinstance(each, str) else self.names[each]
            yield name, None if isinstance(each, str) else self.publications[name]

    def publication_of(self, record: Subscribed) -> Publication | None:
        """Return the publication of a contract, of this cloud or of another."""
        if record.foreign is not None:
            return self.foreign.get(record.variable_id)
        return self.publications.get(record.name)

    def publication_by_id(self, variable_id: int) -> Publication | None:
        found = self.publications.get(self.names.get(variable_id, ""))
        return found or self.foreign.get(variable_id)

    # Subscriptions.

    def add_subscription(self, subscription: Subscription) -> None:
        record = subscription.record
        self.subscriptions[record.subscription_id] = subscription
        publication = self.publication_of(record)
        if publication is None:  # The first segment that brings a variable of another cloud.
            publication = Publication(subscription.variable, "")
            self.foreign[record.variable_id] = publication
        publication.subscriptions.add(record.subscription_id)
        if record.subscriber:
            self.endpoints[record.subscriber].subscriptions.add(record.subscription_id)
        self._index(record)

    def remove_subscription(self, subscription_id: int) -> Subscription | None:
        subscription = self.subscriptions.pop(subscription_id, None)
        if subscription is None:
            return None
        record = subscription.record
        if (publication := self.publication_of(record)) is not None:
            publication.subscriptions.discard(subscription_id)
            if record.foreign is not None and not publication.subscriptions:
                del self.foreign[record.variable_id]
        if (endpoint := self.endpoints.get(record.subscriber)) is not None:
            endpoint.subscriptions.discard(subscription_id)
        self._unindex(record)
        return subscription

    def contract(self, subscription_id: int) -> Subscribed | None:
        """Return the record of a contract, with or without paths in the present topology."""
        found = self.subscriptions.get(subscription_id)
        return self.unplaced.get(subscription_id) if found is None else found.record

    def segments(self) -> Iterator[Subscribed]:
        """Yield all segments of contracts across clouds that this cloud holds."""
        for generations in self.tree.segments.values():
            for number in generations.values():
                record = self.contract(number)
                if record is not None:
                    yield record

    def newest_segment(self, contract: str) -> Subscription | None:
        """Return the newest generation with paths of a contract across clouds, if there is one."""
        generations = self.tree.segments.get(contract, {})
        for generation in sorted(generations, reverse=True):
            found = self.subscriptions.get(generations[generation])
            if found is not None:
                return found
        return None

    def contracts_of(self, endpoint: EndPoint) -> set[int]:
        """Return the identifiers of all contracts of an end-point."""
        return set[int]().union(*self.contracts_by_pattern(endpoint).values())

    def contracts_by_pattern(self, endpoint: EndPoint) -> dict[int, set[int]]:
        """Return the contracts of an end-point by matching pattern; 0 for those requested by name.

        A contract across clouds counts once, however many segments this cloud holds of it.
        """
        records = [self.subscriptions[number].record for number in endpoint.subscriptions]
        records += [each for each in self.unplaced.values() if each.subscriber == endpoint.name]
        found: dict[int, set[int]] = {}
        for record in records:
            if not record.contract:
                found.setdefault(record.pattern_id, set()).add(record.subscription_id)
        for number in self.tree.asked_by.get(endpoint.name, ()):
            found.setdefault(self.tree.asked[number].record.pattern_id, set()).add(number)
        return found

    def replace_record(
        self, subscription: Subscription, record: Subscribed, variable: StatusVariable
    ) -> None:
        """Replace the record of a contract and update the indices."""
        self._unindex(subscription.record)
        subscription.record = record
        subscription.variable = variable
        self._index(record)

    def add_pattern(self, held: PatternHeld) -> None:
        self.patterns[held.pattern_id] = held
        self.pattern_tree.add(held.pattern, held.pattern_id)
        self.endpoints[held.subscriber].patterns.add(held.pattern_id)

    def remove_pattern(self, pattern_id: int) -> PatternHeld | None:
        held = self.patterns.pop(pattern_id, None)
        if held is not None:
            self.pattern_tree.discard(held.pattern, pattern_id)
            if (endpoint := self.endpoints.get(held.subscriber)) is not None:
                endpoint.patterns.discard(pattern_id)
        return held

    def _index(self, record: Subscribed) -> None:
        for path in record.paths:
            for channel_id in path.channel_ids:
                self.over_channel.setdefault(channel_id, set()).add(record.subscription_id)
            for router in path.routers:
                self.through_router.setdefault(router, set()).add(record.subscription_id)

    def _unindex(self, record: Subscribed) -> None:
        for path in record.paths:
            for channel_id in path.channel_ids:
                _discard(self.over_channel, channel_id, record.subscription_id)
            for router in path.routers:
                _discard(self.through_router, router, record.subscription_id)


def _discard(index: dict[Key, set[Member]], key: Key, member: Member) -> None:
    found = index.get(key)
    if found is not None:
        found.discard(member)
        if not found:
            del index[key]


def _name_parts(named: tuple[str, Publication | None]) -> list[str]:
    """Return what names are ordered by."""
    return named[0].split("/")
