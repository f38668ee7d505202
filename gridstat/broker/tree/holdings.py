"""Table of all holdings of a broker above clouds: own contracts, and segments for its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from gridstat.broker.tree.current_paths import with_moved_segments
from gridstat.broker.tree.tree_operations import HoldingMoved, Stage, body_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.broker.records.operation import Applied
    from gridstat.broker.tree.tree_operations import Holding, HoldingBody
    from gridstat.net.command.segment_messages import Reserved


class Holdings:
    """Holdings by contract, oldest generation first.

    Nearly all contracts have one committed generation, so only other stages are stored.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[Holding, ...]] = {}
        self._stages: dict[tuple[str, int], Stage] = {}
        self._over_channel: dict[int, set[str]] = {}
        self._of_child: dict[str, set[str]] = {}
        self._interned_tuples: dict[Any, Any] = {}
        self.owned_count = 0
        """Number of contracts that this broker owns; all others are segments for its parent."""
        self.moved: dict[tuple[str, int], dict[str, Reserved]] = {}
        """Latest report of each child that has moved its segment since the last start."""

    def __len__(self) -> int:
        return len(self._held)

    def find(self, contract: str, generation: int) -> Holding | None:
        for holding in self._held.get(contract, ()):
            if holding.generation == generation:
                return holding
        return None

    def of(self, contract: str) -> tuple[Holding, ...]:
        return self._held.get(contract, ())

    def current(self, contract: str) -> Holding | None:
        """Return the newest committed generation of a contract that this broker owns."""
        for holding in reversed(self._held.get(contract, ())):
            if holding.is_owned and self.stage(holding) is Stage.COMMITTED:
                return holding
        return None

    def stage(self, holding: Holding) -> Stage:
        return self._stages.get(holding.key, Stage.COMMITTED) if self._stages else Stage.COMMITTED

    def body(self, holding: Holding) -> HoldingBody:
        """Return the decoded body, with the paths as children route them now."""
        reports = self.moved.get(holding.key)
        return (
            body_of(holding)
            if reports is None
            else with_moved_segments(body_of(holding), reports.values())
        )

    def record_move(self, holding: Holding, child: str, report: Reserved) -> bool:
        """Record how a child routes its segment now; return whether that is a change."""
        reports = self.moved.setdefault(holding.key, {})
        is_changed = reports.get(child) != report
        reports[child] = report
        return is_changed

    def over_channel(self, channel_id: int) -> set[str]:
        return self._over_channel.get(channel_id, set())

    def of_child(self, child: str) -> set[str]:
        """Return the contracts of which this child holds, or held, a segment."""
        return self._of_child.get(child, set())

    def all(self) -> Iterator[tuple[Holding, Stage]]:
        for held in self._held.values():
            for holding in held:
                yield holding, self.stage(holding)

    def unsettled(self) -> list[tuple[Holding, Stage]]:
        """Return the holdings that are reserved or being released."""
        found = [(self.find(*key), stage) for key, stage in self._stages.items()]
        return [(holding, stage) for holding, stage in found if holding is not None]

    def superseded(self) -> list[Holding]:
        """Return owned, committed holdings with a newer committed generation.

        They exist only after a restart.
        """
        return [
            holding
            for contract, held in self._held.items()
            if len(held) > 1
            for holding in held
            if self.stage(holding) is Stage.COMMITTED
            and (current := self.current(contract)) is not None
            and holding != current
        ]

    def moves(self, holdings: Iterable[Holding], stage: Stage) -> list[HoldingMoved]:
        """Return the operations that bring these holdings to a later stage."""
        return [
            HoldingMoved(contract=found.contract, generation=found.generation, stage=stage)
            for found in holdings
            if self.find(*found.key) == found and self.stage(found) < stage
        ]

    # Changes.

    def take(self, holding: Holding, stage: Stage) -> None:
        holding = self._interned(holding)
        others = self._held.get(holding.contract, ())
        self.owned_count += holding.is_owned and not _is_any_owned(others)
        self._held[holding.contract] = tuple(
            sorted((*others, holding), key=lambda found: found.generation)
        )
        if stage is not Stage.COMMITTED:
            self._stages[holding.key] = stage
        for channel_id in _channels_of(holding):
            self._over_channel.setdefault(channel_id, set()).add(holding.contract)
        for child in holding.children:
            self._of_child.setdefault(child, set()).add(holding.contract)

    def _interned(self, holding: Holding) -> Holding:
        """Return an equal holding that shares its tuples with other holdings, to save memory."""
        children = self._interned_tuples.setdefault(holding.children, holding.children)
        channel_ids = self._interned_tuples.setdefault(holding.channel_ids, holding.channel_ids)
        return structs.replace(holding, children=children, channel_ids=channel_ids)

    def drop(self, contract: str, generation: int) -> Stage:
        """Remove a holding, and return the stage that it had."""
        holding = self.find(contract, generation)
        assert holding is not None
        stage = self._stages.pop(holding.key, Stage.COMMITTED)
        self.moved.pop(holding.key, None)
        left = tuple(found for found in self._held[contract] if found != holding)
        self.owned_count -= holding.is_owned and not _is_any_owned(left)
        if left:
            self._held[contract] = left
        else:
            del self._held[contract]
        channels = {number for found in left for number in _channels_of(found)}
        children = {child for found in left for child in found.children}
        for channel_id in _channels_of(holding) - channels:
            _forget(self._over_channel, channel_id, contract)
        for child in set(holding.children) - children:
            _forget(self._of_child, child, contract)
        return stage

    def move(self, moved: HoldingMoved, done: Applied) -> None:
        holding = self.find(moved.contract, moved.generation)
        if holding is None:
            return
        before = self.stage(holding)
        self._set_stage(holding, moved.stage)
        done.undo.append(lambda: self._set_stage(holding, before))

    def _set_stage(self, holding: Holding, stage: Stage) -> None:
        if stage is Stage.COMMITTED:
            self._stages.pop(holding.key, None)
        else:
            self._stages[holding.key] = stage


def _is_any_owned(holdings: Iterable[Holding]) -> bool:
    return any(found.is_owned for found in holdings)


def _channels_of(holding: Holding) -> set[int]:
    return set(holding.channel_ids)


def _forget(
    index: dict[int, set[str]] | dict[str, set[str]], key: int | str, contract: str
) -> None:
    found = index[key]  # type: ignore[index]
    found.discard(contract)
    if not found:
        del index[key]  # type: ignore[arg-type]
