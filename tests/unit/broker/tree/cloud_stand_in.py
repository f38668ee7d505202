"""Stand-in of a cloud that follows the protocol of the tree, with routers only by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.model.errors import (
    ChannelFull,
    LatencyNotSatisfiable,
    NoSuchVariable,
    RedundancyNotSatisfiable,
    Refused,
    SearchUndecided,
    SecurityNotSatisfiable,
)
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.net.command.machine import Connected, Disconnected, Received
from gridstat.net.command.segment_messages import (
    AskContract,
    Commit,
    ContractEnded,
    ContractGranted,
    ContractRefused,
    EndContract,
    HeldSegment,
    LookedUp,
    Lookup,
    Nearness,
    NotReserved,
    PathSegment,
    Release,
    Released,
    Reserve,
    Reserved,
    SegmentedPath,
    SegmentsHeld,
    SegmentUp,
)
from gridstat.net.command.tree_messages import (
    AbstractLink,
    AbstractLinksReported,
    AskNumbers,
    BorderChannelReported,
    BorderReported,
    CloseBorder,
    EndWatch,
    JoinTree,
    NamesFound,
    NumbersLeased,
    OpenBorder,
    TreeJoined,
    WantBorders,
    WatchNames,
)

if TYPE_CHECKING:
    from gridstat.model.qos import ModalQos
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.machine import Event
    from gridstat.net.command.messages import Message


@dataclass
class Segment:
    """Part of a contract that the cloud holds, and its state."""

    reserve: Reserve
    answer: Reserved
    is_committed: bool = False


@dataclass
class CloudStandIn:
    """Cloud whose state is all durable: a restart loses the session and begins a new term."""

    name: str
    parent: str
    near_us: int = 300
    capacity: int = 1_000_000
    """Segments that it holds at most."""
    term: int = 1
    variables: dict[str, StatusVariable] = field(default_factory=dict)
    segments: dict[tuple[str, int], Segment] = field(default_factory=dict)
    asked: dict[str, AskContract] = field(default_factory=dict)
    ending: set[str] = field(default_factory=set)
    granted: dict[str, ContractGranted] = field(default_factory=dict)
    refused: dict[str, ContractRefused] = field(default_factory=dict)
    ended: dict[str, ContractEnded] = field(default_factory=dict)
    searched_us: Counter[str] = field(default_factory=Counter)
    """Search time of each contract that its owner has told."""
    search_us: int = 0
    """Search time that it tells with each answer to Reserve."""
    undecided_ways: set[tuple[str, str]] = field(default_factory=set)
    """Abstract links of which its searches end without a verdict."""
    borders: tuple[str, ...] = ()
    open_channels: dict[int, str] = field(default_factory=dict)
    numbers: dict[int, NumbersLeased] = field(default_factory=dict)
    asking_numbers: dict[int, int] = field(default_factory=dict)
    watched: dict[str, str] = field(default_factory=dict)
    found: list[NamesFound] = field(default_factory=list)
    numbers_used: int = 0
    journal: str = ""
    clouds: tuple[str, ...] = ()
    depth: int = -1
    above: tuple[str, ...] = ()
    is_joined: bool = False
    is_silent: bool = False
    slow_us: dict[tuple[str, str], int] = field(default_factory=dict)
    closed_ways: set[tuple[str, str]] = field(default_factory=set)
    """Abstract links that the cloud refuses, though it has reported them."""
    share_ppm: int = 10**6
    """Part of a channel that its rules let each of its end-points reserve."""
    is_matching: bool = False
    """True if patterns of its end-points have made its requests."""
    ways: int = 1
    """Paths without a common channel that it reports between its borders, and to its end-points."""
    ways_most: int = 4
    """Paths that it reserves at one border."""
    edges: tuple[str, ...] = ()
    """Borders to which its end-points are attached."""
    plain_ways: set[tuple[str, str]] = field(default_factory=set)
    """Abstract links with a channel that is not sealed."""
    loaded_us: int = 0
    """Latency that load adds to its ways, which it has not reported."""
    is_older: bool = False
    """True for a release that knows neither sealed channels nor gates that belong together."""
    out: list[Message] = field(default_factory=list)

    def restart(self) -> None:
        self.term += 1
        self.is_joined = False

    def flush(self) -> list[Message]:
        out, self.out = self.out, []
        return out

    # What it wants.

    def ask(self, subscriber: str, name: str, number: int, generation: int, qos: ModalQos) -> str:
        contract = f"{self.name}#{number}"
        ends = self._near()
        self.asked[contract] = AskContract(
            term=self.term,
            contract=contract,
            generation=generation,
            name=name,
            subscriber=subscriber,
            qos=qos,
            ends=ends,
            share_ppm=self.share_ppm,
            is_matched=self.is_matching,
        )
        self._say(self.asked[contract])
        return contract

    def end(self, contract: str) -> None:
        self.asked.pop(contract, None)
        self.granted.pop(contract, None)
        self.ending.add(contract)
        self._say(EndContract(term=self.term, contract=contract))

    def ask_numbers(self, request: int, count: int) -> None:
        self.asking_numbers[request] = count
        self._say(AskNumbers(term=self.term, request=request, count=count))

    def tell_channel(self, channel_id: int, *, is_up: bool) -> None:
        self._say(BorderChannelReported(term=self.term, channel_id=channel_id, is_up=is_up))

    def _say(self, message: Message) -> None:
        if self.is_joined:
            self.out.append(structs.replace(message, term=self.term))

    # Received messages.

    def handle(self, event: Event) -> list[Message]:
        match event:
            case Connected():
                self.out.append(
                    JoinTree(
                        term=self.term,
                        clouds=self.clouds or (self.name,),
                        numbers_used=self.numbers_used,
                        journal=self.journal,
                    )
                )
            case Disconnected():
                self.is_joined = False
                self.watched.clear()
            case Received(message=message):
                if not self.is_silent:
                    self._hear(message)
        return self.flush()

    def _hear(self, message: Message) -> None:
        match message:
            case TreeJoined():
                self.depth, self.above = message.depth, message.above
                if not self.is_joined:
                    self.is_joined = True
                    self._joined()
            case WantBorders():
                self.borders = message.routers
                self._tell_borders()
            case OpenBorder():
                if message.is_whole and not message.page:
                    self.open_channels.clear()
                for found in message.channels:
                    self.open_channels[found.channel.channel_id] = found.channel.label
            case CloseBorder():
                self.open_channels.pop(message.channel_id, None)
            case NumbersLeased():
                self.numbers[message.request] = message
                self.asking_numbers.pop(message.request, None)
            case Lookup():
                self._look_up(message)
            case Reserve() | Commit() | Release():
                self._hear_of_segment(message)
            case _:
                self._hear_answer(message)

    def _hear_answer(self, message: Message) -> None:
        match message:
            case WatchNames():
                self.watched[message.watch] = message.pattern
            case EndWatch():
                self.watched.pop(message.watch, None)
            case NamesFound():
                self.found.append(message)
            case ContractGranted():
                asked = self.asked.get(message.contract)
                if asked is not None and message.answered >= asked.generation:
                    del self.asked[message.contract]
                self.searched_us[message.contract] += message.search_us
                self.granted[message.contract] = structs.replace(message, search_us=0)
            case ContractRefused():
                self.asked.pop(message.contract, None)
                self.searched_us[message.contract] += message.search_us
                self.refused[message.contract] = message
            case ContractEnded():
                self.ending.discard(message.contract)
                self.granted.pop(message.contract, None)
                self.ended[message.contract] = message

    def _joined(self) -> None:
        held = tuple(
            HeldSegment(contract=key[0], generation=key[1], is_committed=found.is_committed)
            for key, found in self.segments.items()
        )
        self._say(SegmentsHeld(term=self.term, held=held))
        for request, count in self.asking_numbers.items():
            self._say(AskNumbers(term=self.term, request=request, count=count))
        for asked in self.asked.values():
            self._say(asked)
        for contract in self.ending:
            self._say(EndContract(term=self.term, contract=contract))

    def _tell_borders(self) -> None:
        for at, router in enumerate(self.borders):
            told = BorderReported(
                term=self.term,
                router=router,
                is_up=True,
                host="10.0.0.1",
                data_port=1_000 + at,
                urgent_port=2_000 + at,
                datagram_versions=(1, 2, 3),
            )
            self._say(told)
        self.retell()

    def retell(self) -> None:
        """The ways between its borders, as they are now."""
        abstract_links = tuple(
            AbstractLink(
                from_router=one,
                to_router=other,
                latency_us=self.slow_us.get((one, other), 2 * self.near_us),
                link_disjoint=self.ways,
            )
            for one in self.borders
            for other in self.borders
            if one != other
        )
        self._say(AbstractLinksReported(term=self.term, abstract_links=abstract_links))

    def _near(self) -> tuple[Nearness, ...]:
        return tuple(
            Nearness(
                router=one,
                latency_us=self.near_us,
                link_disjoint=self.ways,
                is_edge=one in self.edges,
            )
            for one in self.borders
        )

    def _look_up(self, asked: Lookup) -> None:
        found = self.variables.get(asked.name)
        if found is None:
            missing = RefusedOutcome(code=NoSuchVariable.code, reason="not published")
            self._say(LookedUp(term=self.term, lookup=asked.lookup, refused=missing))
            return
        starts = self._near()
        answer = LookedUp(
            term=self.term,
            lookup=asked.lookup,
            variable=found,
            starts=starts,
            publisher=asked.name.rpartition("/")[0],
            publisher_share_ppm=self.share_ppm,
        )
        self._say(answer)

    # Segments.

    def _hear_of_segment(self, message: Reserve | Commit | Release) -> None:
        key = (message.contract, message.generation)
        known = self.segments.get(key)
        match message:
            case Reserve():
                if known is None:
                    self._reserve(key, message)
                else:
                    self._say(structs.replace(known.answer, round=message.round))
            case Commit():
                if known is not None:
                    known.is_committed = True
                    self._say(SegmentUp(term=self.term, contract=key[0], generation=key[1]))
            case Release():
                self.segments.pop(key, None)
                released = Released(term=self.term, contract=key[0], generation=key[1])
                self._say(structs.replace(released, round=message.round))

    def _has_too_few(self, message: Reserve) -> bool:
        at_border = Counter(gate.router for gate in (*message.entries, *message.exits))
        return any(count > self.ways_most for count in at_border.values())

    def _refuse(
        self,
        message: Reserve,
        error: type[Refused],
        reason: str,
        *,
        where: str = "",
        limit: str = "",
    ) -> None:
        refused = NotReserved(
            term=self.term,
            contract=message.contract,
            generation=message.generation,
            refused=RefusedOutcome(code=error.code, reason=reason, bottleneck=where),
            limit=limit,
            round=message.round,
            search_us=self.search_us,
        )
        self._say(refused)

    def _reserve(self, key: tuple[str, int], message: Reserve) -> None:
        entries = [(gate.router, gate.channel_id) for gate in message.entries]
        exits = [(gate.router, gate.channel_id) for gate in message.exits]
        ways = max(len(entries), len(exits))
        assert all(qos.redundancy == ways for qos in message.granted.values())
        entries = entries or [(f"{self.name}/edge", 0)] * ways
        exits = exits or [(f"{self.name}/edge", 0)] * ways
        if not message.is_paired or self.is_older:
            # Whichever to whichever: the other way round than asked, so that joining is tested.
            exits.reverse()
        pairs = list(zip(entries, exits, strict=True))
        is_closed = any((one[0], other[0]) in self.closed_ways for one, other in pairs)
        plain = [way for one, other in pairs if (way := (one[0], other[0])) in self.plain_ways]
        if plain and message.is_sealed and not self.is_older:
            reason = f"channel {'→'.join(plain[0])} is not sealed"
            self._refuse(message, SecurityNotSatisfiable, reason)
            return
        if any((one[0], other[0]) in self.undecided_ways for one, other in pairs):
            self._refuse(message, SearchUndecided, "reached its time limit", limit="UNDECIDED")
            return
        if self._has_too_few(message):
            self._refuse(message, RedundancyNotSatisfiable, "too few disjoint paths")
            return
        if any(qos.latency_us < self.loaded_us for qos in message.granted.values()):
            reason = f"{self.name} has load"
            self._refuse(message, LatencyNotSatisfiable, reason, limit="LATENCY")
            return
        latency_us = self.near_us if not message.entries or not message.exits else 2 * self.near_us
        is_late = any(qos.latency_us < latency_us for qos in message.granted.values())
        if is_closed or is_late or len(self.segments) >= self.capacity:
            where = f"channel in {self.name}"
            self._refuse(message, ChannelFull, "full", where=where, limit="CHANNEL")
            return
        paths = tuple(
            SegmentedPath(
                entry=one[1],
                exit=other[1],
                latency_us=latency_us,
                pieces=(
                    PathSegment(
                        owner=self.name,
                        routers=(one[0], other[0]),
                        channel_ids=(7,),
                        latency_us=latency_us,
                    ),
                ),
            )
            for one, other in pairs
        )
        answer = Reserved(
            term=self.term,
            contract=key[0],
            generation=key[1],
            paths=paths,
            is_sealed=message.is_sealed and not self.is_older,
        )
        self.segments[key] = Segment(message, answer)
        self._say(structs.replace(answer, round=message.round, search_us=self.search_us))
