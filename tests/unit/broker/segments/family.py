"""A leaf broker with a parent: the conversation of `conversation.py`, and a stand-in for a root.

The cloud is the ring of `stand_ins.py`. Its borders are the inner routers: channels 1 and 3 of the
parent come in at i0 and i1, channels 2 and 4 go out from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gridstat.broker.settings import BrokerSettings
from gridstat.model.cloud import EventChannel
from gridstat.model.identifiers import ChannelId, VariableId
from gridstat.model.qos import Qos
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.command.machine import Connected, Disconnected, Received
from gridstat.net.command.messages import Hello, Message
from gridstat.net.command.segment_messages import (
    AskContract,
    Commit,
    ContractGranted,
    Gate,
    PathSegment,
    Release,
    Reserve,
    Reserved,
    SegmentedPath,
)
from gridstat.net.command.tree_messages import (
    AskNumbers,
    BorderChannel,
    NumbersLeased,
    OpenBorder,
    TreeJoined,
    WantBorders,
)
from tests.unit.broker.conversation import Conversation
from tests.unit.broker.stand_ins import CENTRE, CLOUD, PMU, ring

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.model.cloud import Router

Word = TypeVar("Word")
ROOT = "broker/root"
BORDERS = ("c1/i0", "c1/i1")
IN, OUT, IN_TWO, OUT_TWO = ((1 << 31) + number for number in (1, 2, 3, 4))
ENTRIES = (Gate(router="c1/i0", channel_id=IN), Gate(router="c1/i1", channel_id=IN_TWO))
EXITS = (Gate(router="c1/i0", channel_id=OUT), Gate(router="c1/i1", channel_id=OUT_TWO))
FAR = StatusVariable(
    VariableId(5_000), "c2/south/pmu/current", BuiltinType.FLOAT64, period=Period(1, 60)
)


def border(number: int, start: str, end: str) -> BorderChannel:
    channel = EventChannel(ChannelId(number), start, end, latency_us=1_000, level=0)
    return BorderChannel(
        channel=channel, host="10.9.0.1", data_port=700, urgent_port=701, datagram_version=2
    )


def quality(paths: int = 1, latency_us: int = 100_000, every: int = 1) -> dict[int, Qos]:
    return {0: Qos(every=every, latency_us=latency_us, redundancy=paths, priority=3)}


class Family(Conversation):
    """`words` is all that the parent has heard; its own words carry `parent_term`."""

    def __init__(
        self,
        *,
        bandwidth_bytes_per_s: int = 0,
        numbers_at_once: int = 4_096,
        topology: tuple[list[Router], list[EventChannel]] | None = None,
    ) -> None:
        super().__init__(
            topology or ring(bandwidth_bytes_per_s=bandwidth_bytes_per_s),
            settings=BrokerSettings(CLOUD, parent="root", numbers_at_once=numbers_at_once),
        )
        self.words: list[Message] = []
        self.parent_term = 7
        self.is_parent_there = False

    def _deliver(self, peer: str, message: Message) -> None:
        if peer == ROOT:
            if self.is_parent_there:
                self.words.append(message)
            return
        super()._deliver(peer, message)

    def kill_broker(self) -> None:
        self.is_parent_there = False
        super().kill_broker()

    def call_parent(self) -> None:
        """The session with the parent is up, and nothing is said by it yet."""
        self.is_parent_there = True
        self.tell(Connected(ROOT, Hello(role="broker", name="root", instance="1")))

    def lose_parent(self) -> None:
        self.is_parent_there = False
        self.tell(Disconnected(ROOT))

    def join(self, *, is_leasing: bool = True) -> Family:
        """The parent takes the cloud in, wants its borders and opens its channels."""
        self.call_parent()
        self.say(TreeJoined(term=self.parent_term, depth=1, above=("root",)))
        self.say(WantBorders(term=self.parent_term, routers=BORDERS))
        channels = (
            border(IN, "c2/b", "c1/i0"),
            border(OUT, "c1/i0", "c2/b"),
            border(IN_TWO, "c3/b", "c1/i1"),
            border(OUT_TWO, "c1/i1", "c3/b"),
        )
        self.say(OpenBorder(term=self.parent_term, channels=channels, is_whole=True))
        if is_leasing:
            self.lease()
        self.settle()
        return self

    def lease(self) -> None:
        """Give what identifiers were asked for; the same question has the same answer."""
        for asked in self.heard(AskNumbers)[-1:]:
            first = 10_000 * asked.request
            self.say(
                NumbersLeased(
                    term=self.parent_term, request=asked.request, first=first, count=asked.count
                )
            )

    def say(self, word: Message) -> None:
        self.tell(Received(ROOT, word))

    def heard(self, kind: type[Word]) -> list[Word]:
        return [word for word in self.words if isinstance(word, kind)]

    def last(self, kind: type[Word]) -> Word:
        return self.heard(kind)[-1]

    # What a parent says about a contract.

    def reserve(
        self,
        contract: str,
        *,
        generation: int = 0,
        variable: StatusVariable = FAR,
        entries: Iterable[Gate] = (),
        exits: Iterable[Gate] = (),
        replaces: int = -1,
        **facts: object,
    ) -> None:
        entries, exits = tuple(entries), tuple(exits)
        granted = facts.pop("granted", quality(len(entries) or len(exits)))
        assert isinstance(granted, dict)
        self.say(
            Reserve(
                term=self.parent_term,
                contract=contract,
                generation=generation,
                variable=variable,
                granted=granted,
                entries=entries,
                exits=exits,
                subscriber=str(facts.pop("subscriber", "")),
                replaces=replaces,
                is_paired=bool(facts.pop("is_paired", False)),
            )
        )
        assert not facts
        self.settle()

    def commit(self, contract: str, generation: int = 0) -> None:
        self.say(Commit(term=self.parent_term, contract=contract, generation=generation))
        self.settle()

    def release(self, contract: str, generation: int = 0) -> None:
        self.say(Release(term=self.parent_term, contract=contract, generation=generation))
        self.advance(self.settings.release_after_ns)
        self.settle()

    def grant(self, asked: AskContract, *, paths: int = 1, generation: int | None = None) -> None:
        """Reserve and commit the end of a contract, and grant the whole of it."""
        number = asked.generation if generation is None else generation
        self.reserve(
            asked.contract,
            generation=number,
            entries=ENTRIES[:paths],
            subscriber=asked.subscriber,
        )
        self.commit(asked.contract, number)
        self.say(self.granted(asked, generation=number))
        self.settle()

    def granted(self, asked: AskContract, *, generation: int) -> ContractGranted:
        reserved = self.last(Reserved)
        whole = tuple(
            SegmentedPath(
                entry=0,
                exit=0,
                latency_us=9_000,
                pieces=(
                    PathSegment(
                        owner="c2", routers=("c2/e", "c2/b"), channel_ids=(77,), latency_us=1
                    ),
                    PathSegment(
                        owner="root",
                        routers=("c2/b", path.pieces[0].routers[0]),
                        channel_ids=(path.entry,),
                        latency_us=1,
                    ),
                    *path.pieces,
                ),
            )
            for path in reserved.paths
        )
        return ContractGranted(
            term=self.parent_term,
            contract=asked.contract,
            generation=generation,
            owner="root",
            variable=FAR,
            granted=quality(len(whole)),
            paths=whole,
        )


def family(*, bandwidth_bytes_per_s: int = 0) -> Family:
    """A publisher at e0 and e1 and a subscriber at e2 and e3, in a cloud with a parent."""
    found = Family(bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    found.start()
    found.join()
    found.attach(PMU, "c1/e0", "c1/e1", data_port=0)
    found.attach(CENTRE, "c1/e2", "c1/e3")
    return found
