"""The broker's journal in virtual time: group commits that take a while, a disk that can be full.

Acknowledged records survive a crash; the batch that is being written reaches the disk as a whole or
not at all; waiting records are lost. `Facts` reads all records, so that an answer can be checked
against the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.records.operation import decoder_of
from gridstat.broker.records.operations import (
    SNAPSHOT_MARK,
    Moved,
    PatternHeld,
    PublicationAnnounced,
    PublicationMoved,
    PublicationRetired,
    Published,
    Subscribed,
    Unsubscribed,
    Withdrawn,
    read,
)
from gridstat.broker.records.parent_operations import (
    ContractAsked,
    ContractEnding,
    ContractHeld,
    ContractOver,
)
from gridstat.net.command.machine import Persist, Persisted, PersistFailed
from lab.simulation.modes import check_written
from lab.simulation.numbers import COUNTED, Numbers
from lab.simulation.world import WALL_NS, PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.model.qos import ModalQos
    from lab.simulation.node import Node
    from lab.simulation.world import World

EPOCH_BITS: Final = 32
CLOCK_NS_MAX: Final = 100_000_000
"""Most by which a broker's clock differs from the world's, twice."""
READ: Final = (
    *COUNTED,
    PublicationAnnounced,
    PublicationRetired,
    ContractEnding,
    ContractHeld,
    ContractOver,
    Moved,
    PublicationMoved,
    Published,
    Unsubscribed,
    Withdrawn,
)
"""Operations that `Facts` reads."""
TAGS_READ: Final = frozenset(str(kind.__struct_config__.tag).encode() for kind in READ)
FIX_MASK: Final = 0xF0
FIX_MAP: Final = 0x80
"""Head of a map of at most 15 entries, one byte; a longer map has a head of three."""


class Facts:
    """Facts that the disk has ever held: contracts begun and ended, and owners of identifiers.

    Disks of several clouds share `owner`, since identifiers are unique in the whole tree.
    """

    def __init__(self, owner: dict[int, tuple[str, object, int]] | None = None) -> None:
        self.subscribed: dict[int, ModalQos] = {}
        self.paths: dict[int, set[tuple[tuple[int, ...], ...]]] = {}
        """Channels of all paths of a contract, for each of its generations."""
        self.ended: set[int] = set()
        self.owner: dict[int, tuple[str, object, int]] = {} if owner is None else owner
        self.withdrawn: set[int] = set()
        self.until_ns = 0
        """Time at which the journal was lost, if it was."""
        self._numbers = Numbers()
        self._announced: dict[str, int] = {}
        self._variable_of: dict[str, int] = {}
        self._asked: dict[int, list[ContractAsked]] = {}

    def anew(self) -> Facts:
        """Return the facts of a journal that is begun after this one was lost.

        Identifiers that a parent leased are known to it still, and are never leased again.
        """
        return Facts(self.owner)

    def read(self, written: bytes, *, is_repeated: bool = False, wall_ns: int = 0) -> None:
        """Read a record at this time; `is_repeated` if it stands in a compacted journal."""
        if _name_of(written) not in TAGS_READ:
            return
        operation = read(decoder_of(READ), written)
        self._numbers.read(operation, self.ended, is_repeated=is_repeated)
        match operation:
            case Subscribed():
                self._subscribe(operation.subscription_id, operation.qos)
                self._keep_paths(operation)
            case Moved(subscription=record):
                self._subscribe(record.subscription_id, record.qos)
                self._keep_paths(record)
            case Unsubscribed(subscription_id=number):
                self.ended.add(number)
            case Published(variable=variable) | PublicationMoved(variable=variable):
                number = variable.variable_id
                whose = (variable.name, variable.period, variable.phase_ns)
                if self.owner.setdefault(number, whose) != whose:
                    raise PropertyBroken(
                        "identifiers are not reused",
                        f"variable {number} was {self.owner[number][0]} and is {variable.name}",
                    )
                self._variable_of[variable.name] = number
            case Withdrawn(name=name):
                gone = self._variable_of.pop(name, None)
                if gone is not None:
                    self.withdrawn.add(gone)
            case PatternHeld(pattern_id=number, qos=qos):
                self._subscribe(number, qos)
            case PublicationAnnounced(name=name, from_ns=from_ns):
                self._announced[name] = from_ns
            case PublicationRetired(name=name):
                self._check_retired(name, wall_ns)
            case _:
                self._read_of_tree(operation)

    def _subscribe(self, number: int, qos: ModalQos) -> None:
        check_written(number, qos.modes)
        self.subscribed[number] = qos

    def _check_retired(self, name: str, wall_ns: int) -> None:
        """Check that an old identifier is carried until the new one has begun."""
        from_ns = self._announced.pop(name, 0)
        if wall_ns + CLOCK_NS_MAX < from_ns:
            raise PropertyBroken(
                "the old period lasts until the new one begins",
                f"{name} is retired {from_ns - wall_ns} ns before its new period",
            )

    def _keep_paths(self, record: Subscribed) -> None:
        channels = tuple(tuple(path.channel_ids) for path in record.paths)
        self.paths.setdefault(record.subscription_id, set()).add(channels)

    def _read_of_tree(self, operation: object) -> None:
        """Read an operation of a contract across clouds, at the subscriber's cloud."""
        match operation:
            case ContractAsked(number=number):
                check_written(number, operation.qos.modes)
                self._asked.setdefault(number, []).append(operation)
            case ContractHeld(number=number, granted=granted):
                asked = [one for one in self._asked[number] if one.generation <= granted.generation]
                self.subscribed[number] = asked[-1].qos
            case ContractEnding(number=number) | ContractOver(number=number):
                self.ended.add(number)
            case _:
                pass


def _name_of(written: bytes) -> bytes:
    """Return the name of an operation: behind the head of a MessagePack map and the key "type"."""
    at = 6 if written[0] & FIX_MASK == FIX_MAP else 8
    return written[at + 1 : at + 1 + (written[at] & 0x1F)]


class SimulatedJournal:
    """Journal on a simulated disk; `durable` is the content after a restart."""

    def __init__(self, world: World, *, commit_ns_max: int, facts: Facts | None = None) -> None:
        self.world = world
        self.durable: list[bytes] = []
        self.facts = facts or Facts()
        self.lost: list[Facts] = []
        """Facts of the journals that were lost before this one."""
        self.is_full = False
        self.commits = 0
        self.check_compacted: Callable[[Sequence[bytes], Sequence[bytes]], None] | None = None
        """Called with the journal as it was, and as it is compacted."""
        self.commit_ns_max = commit_ns_max
        self._waiting: list[Persist] = []
        self._writing: list[Persist] = []
        self._failed_epoch = -1
        self._has_failed = False
        """Whether a write has failed: what no disk undoes is then in a compacted journal alone."""
        self._owner_number = 0
        self._is_done = False
        """Whether the current batch is written already, and its owner is being notified."""

    @property
    def is_idle(self) -> bool:
        return not self._writing and not self._waiting

    def persist(self, order: Persist, owner: Node) -> None:
        self._waiting.append(order)
        self._owner_number = owner.number
        if not self._writing:
            self._begin(owner)

    def crash(self) -> None:
        """End the process; the batch being written is on the disk or lost."""
        if self._writing and not (self._is_done or self.is_full) and self.world.chance(0.5):
            self._commit(self._fresh())
        self.abandon()

    def lose(self) -> None:
        """Lose all that was ever written; the broker is down."""
        self.durable.clear()
        self.facts.until_ns = self.world.now_ns
        self.lost.append(self.facts)
        self.facts = self.facts.anew()

    def has_ever_granted(self, number: int) -> bool:
        """Return whether a contract was written, in a lost journal too: answers may come late."""
        return any(number in facts.subscribed for facts in (self.facts, *self.lost))

    def has_ended(self, number: int, asked_ns: int) -> bool:
        """Return whether the end of a contract was written that was asked for at this time.

        A journal may be lost while the answer is on its way: the end was written in it.
        """
        return number in self.facts.ended or any(
            number in facts.ended for facts in self.lost if asked_ns < facts.until_ns
        )

    def has_written(self, number: int, qos: ModalQos) -> bool:
        """Return whether a contract has this quality, or had it in a lost journal."""
        return any(facts.subscribed.get(number) == qos for facts in (self.facts, *self.lost))

    def abandon(self) -> list[Persist]:
        """Drop and return all unwritten records, since another process takes the journal."""
        lost = [*self._writing, *self._waiting]
        self._writing = []
        self._waiting = []
        self._has_failed = False
        self._failed_epoch = -1
        self._is_done = False
        return lost

    def _begin(self, owner: Node) -> None:
        self._writing, self._waiting = self._waiting, []
        took_ns = self.world.between(100_000, self.commit_ns_max)
        self.world.after(took_ns, self._done, owner, owner.process, self._writing)

    def _done(self, owner: Node, process: int, batch: list[Persist]) -> None:
        if process != owner.process or batch is not self._writing:
            return
        fresh = self._fresh()
        stale = [order for order in self._writing if order not in fresh]
        for order in stale:
            owner.tell(PersistFailed(order.token, "an earlier operation could not be made durable"))
        if fresh and self.is_full:
            self._has_failed = True
            self._failed_epoch = max(order.token >> EPOCH_BITS for order in fresh)
            for order in fresh:
                owner.tell(PersistFailed(order.token, "no space left on device"))
        else:
            self._commit(fresh)
            self._is_done = True
            for order in fresh:
                owner.do_all(order.then)
                owner.tell(Persisted(order.token))
        self._writing = []
        self._is_done = False
        if self._waiting:
            self._begin(owner)

    def _fresh(self) -> list[Persist]:
        return [one for one in self._writing if one.token >> EPOCH_BITS > self._failed_epoch]

    def _commit(self, batch: list[Persist]) -> None:
        self.commits += 1
        for order in batch:
            is_compacted = bool(order.operations) and order.operations[0] == SNAPSHOT_MARK
            if is_compacted:
                if self.check_compacted is not None and self.durable and not self._has_failed:
                    self.check_compacted(self.durable, order.operations)
                self._has_failed = False
                self.durable.clear()
            self.durable += order.operations
            for written in order.operations:
                self.facts.read(
                    written, is_repeated=is_compacted, wall_ns=WALL_NS + self.world.now_ns
                )
                self.world.mark(self._owner_number, written)
