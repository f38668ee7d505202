"""Durable state of a broker above clouds, and the effect of each operation on it.

The same code applies a live decision and replays the journal at a start. Every change records how
to undo it, in case the journal cannot be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.broker.capacity.allocation import everys
from gridstat.broker.records.operation import Applied
from gridstat.broker.tree.children import Children
from gridstat.broker.tree.configured_channels import ConfiguredChannels
from gridstat.broker.tree.holdings import Holdings
from gridstat.broker.tree.identifier_blocks import IdentifierBlocks
from gridstat.broker.tree.tree_operations import (
    ChannelsNumbered,
    HoldingGone,
    HoldingMoved,
    HoldingTaken,
    Placed,
    Stage,
    TreeChannelAdded,
    TreeChannelRemoved,
    TreeTermBegan,
    Unplaced,
    body_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.broker.tree.owned_channels import OwnedChannels
    from gridstat.broker.tree.tree_capability import TreeCapabilities
    from gridstat.broker.tree.tree_operations import Holding, TreeOperation


class TreeState:
    """State that only `apply` changes, beside the children and channels of the broker's file."""

    def __init__(
        self, children: Iterable[str], channels: OwnedChannels, capabilities: TreeCapabilities
    ) -> None:
        self.term = 0
        self.journal = ""
        self.placed: Placed | None = None
        self.tree = ""
        """Root of the tree that this broker is, or was last, part of; empty if there is none."""
        self.channels = channels
        self.families = Children(children)
        self.holdings = Holdings()
        self.numbers = IdentifierBlocks()
        self.unwritten: list[Applied] = []
        self._is_applying = False
        self.charged: set[tuple[str, int]] = set()
        """Holdings that are about to be taken, and that their plan has charged for already."""
        self._capabilities = capabilities
        self._file_children = tuple(self.families.children)
        self.file_channels = ConfiguredChannels(channels)

    @property
    def depth(self) -> int:
        return 0 if self.placed is None else self.placed.depth

    @property
    def is_holding(self) -> bool:
        """True if channel numbers are in use below, and so cannot change."""
        return self._capabilities.is_holding()

    def replay(self, operation: TreeOperation) -> None:
        if isinstance(operation, ChannelsNumbered) and not self.is_holding:
            self.file_channels.begin_replay()
        self.apply(operation, Applied())
        self.unwritten.clear()

    @property
    def is_torn(self) -> bool:
        """True if an exception interrupted a change, so that only the journal is consistent."""
        return self._is_applying or self.channels.is_charging

    def apply(self, operation: TreeOperation, done: Applied) -> None:
        self._is_applying = True
        self._apply(operation, done)
        self._is_applying = False

    def _apply(self, operation: TreeOperation, done: Applied) -> None:
        if not any(found is done for found in self.unwritten):
            self.unwritten.append(done)
        self._capabilities.apply(operation, done)

    def begin_term(self, began: TreeTermBegan, done: Applied) -> None:
        del done  # A term is never taken back: the next start writes a higher one.
        self.term = max(self.term, began.term)
        self.journal = began.journal or self.journal

    def change_channels(
        self, operation: TreeChannelAdded | TreeChannelRemoved | ChannelsNumbered, done: Applied
    ) -> None:
        match operation:
            case TreeChannelAdded(channel=channel):
                index_before = self.channels.index_last
                self.channels.add(channel)
                done.undo.append(lambda: self.channels.take_back(channel.channel_id, index_before))
                self._capabilities.channel_added(channel.channel_id, done)
            case TreeChannelRemoved(channel_id=channel_id):
                self._capabilities.channel_removed(channel_id, done)
                removed = self.channels.remove(channel_id)
                done.undo.append(lambda: self.channels.add(removed))
            case ChannelsNumbered():
                for number in self.file_channels.forgotten(operation):
                    self._capabilities.channel_removed(number, done)
                for number in self.file_channels.apply(operation, done):
                    self._capabilities.channel_added(number, done)

    def numbering(self) -> list[ChannelsNumbered]:
        """Return the operations that number the file's channels, before others learn of them."""
        missing = self.file_channels.missing_in_file()
        unused = [number for number in missing if not self.holdings.over_channel(number)]
        return self.file_channels.unnumbered(unused)

    def place(self, standing: Placed | Unplaced, done: Applied) -> None:
        before, prefix, prefix_next = self.placed, self.channels.prefix, standing.numbered_at
        tree_before = self.tree
        if isinstance(standing, Placed):
            self.placed = structs.replace(standing, numbered_at=-1)
            self.tree = standing.above[0] if standing.above else self.tree
            prefix_next = standing.depth if prefix_next < 0 else prefix_next
        else:
            self.placed, self.tree = None, standing.tree

        def undo() -> None:
            self.placed, self.tree = before, tree_before

        done.undo.append(undo)
        if prefix_next != prefix and not self.is_holding:
            self._renumber(prefix_next)
            done.undo.append(lambda: self._renumber(prefix))

    def _renumber(self, prefix: int) -> None:
        self._capabilities.channels_renumbered()
        self.channels.renumber(prefix)

    def standing(self, prefix: int) -> Placed | Unplaced:
        """Return the operation that keeps this broker's place, with this channel prefix."""
        if self.placed is None:
            return Unplaced(numbered_at=prefix, tree=self.tree)
        return structs.replace(self.placed, numbered_at=prefix)

    def orphaned_place(self, term: int) -> list[Unplaced]:
        """Return the operation that gives up the place below a former parent."""
        del term
        if self.placed is None:
            return []
        return [Unplaced(numbered_at=self.channels.prefix, tree=self.tree)]

    def release_parent_holdings(self) -> list[HoldingMoved]:
        """Return the operations that release all segments held for a former parent."""
        held = [holding for holding, _ in self.holdings.all() if not holding.is_owned]
        return self.holdings.moves(held, Stage.LEAVING)

    def hold(self, operation: HoldingTaken | HoldingMoved, done: Applied) -> None:
        if isinstance(operation, HoldingMoved):
            self.holdings.move(operation, done)
            return
        holding = operation.holding
        if self.holdings.find(*holding.key) is not None:
            return
        if holding.key in self.charged:
            self.charged.discard(holding.key)
        else:
            self._charge(holding)
        self.holdings.take(holding, operation.stage)

        def undo() -> None:
            self.holdings.drop(*holding.key)
            self._uncharge(holding)

        done.undo.append(undo)

    def release(self, gone: HoldingGone, done: Applied) -> None:
        holding = self.holdings.find(gone.contract, gone.generation)
        if holding is None:
            return
        stage = self.holdings.drop(*holding.key)
        self._uncharge(holding)

        def undo() -> None:
            self._charge(holding)
            self.holdings.take(holding, stage)

        done.undo.append(undo)

    def _charge(self, holding: Holding) -> None:
        if holding.channel_ids:
            body = body_of(holding)
            self.channels.charge(
                body.variable, everys(body.granted, 0), body.scope_paths, body.payers
            )

    def _uncharge(self, holding: Holding) -> None:
        if holding.channel_ids:
            body = body_of(holding)
            self.channels.uncharge(
                body.variable, everys(body.granted, 0), body.scope_paths, body.payers
            )

    # Snapshot.

    def operations(self) -> Iterator[TreeOperation]:
        """Return the shortest journal that results in this state."""
        return self._capabilities.snapshot()

    def place_operations(self) -> Iterator[TreeOperation]:
        """Return the part of the snapshot with the term, the place and the children."""
        yield TreeTermBegan(term=self.term, journal=self.journal)
        if self.placed is not None or self.channels.prefix or self.tree:
            yield self.standing(self.channels.prefix)
        yield from self.families.operations(self._file_children)

    def holding_operations(self) -> Iterator[HoldingTaken]:
        """Return the part of the snapshot with the holdings."""
        for holding, stage in self.holdings.all():
            yield HoldingTaken(holding=holding, stage=stage)
