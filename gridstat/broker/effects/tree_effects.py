"""Effects of operations on the tree: parent, borders, identifiers, contracts across clouds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs

from gridstat.broker.interning import same, same_qos, same_quality
from gridstat.broker.records.parent_operations import (
    AnswerBegun,
    BorderClosed,
    BorderOpened,
    ContractAsked,
    ContractDeclined,
    ContractEnding,
    ContractHeld,
    ContractOver,
    NumbersAllotted,
    OutcomeKnown,
    ParentJoined,
)
from gridstat.broker.records.parent_state import AskedContract

if TYPE_CHECKING:
    from gridstat.broker.leaf_capability import Apply
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.records.registry import Registry
    from gridstat.broker.tables.channel_plan import ChannelPlan
    from gridstat.net.command.segment_messages import ContractGranted
    from gridstat.net.command.tree_messages import BorderChannel

_Key = TypeVar("_Key")
_Member = TypeVar("_Member")


class TreeEffects:
    """Applies operations to `registry.tree`; one that is applied twice has no further effect."""

    def __init__(self, registry: Registry, channel_plan: ChannelPlan) -> None:
        self._registry = registry
        self._tree = registry.tree
        self._channel_plan = channel_plan

    def position_operations(self) -> dict[type[Operation], Apply]:
        """Return the operations of the cloud's position in the tree, as its parent decided it."""
        return {
            ParentJoined: self._join_parent,
            BorderOpened: self._open_border,
            BorderClosed: self._close_border,
            NumbersAllotted: self._allot,
        }

    def contract_operations(self) -> dict[type[Operation], Apply]:
        """Return the operations of contracts across clouds, and of answers that wait for them."""
        return {
            AnswerBegun: self._begin_answer,
            OutcomeKnown: self._fill_answer,
            ContractAsked: self._request_contract,
            ContractHeld: self._change,
            ContractDeclined: self._change,
            ContractEnding: self._change,
            ContractOver: self._change,
        }

    # Messages of the parent.

    def _join_parent(self, joined: ParentJoined, done: Applied) -> None:
        """Record the parent's term and the cloud's position; both are facts and not undone."""
        tree, depth = self._tree, self._tree.depth
        parent = joined.above[-1] if joined.above else ""
        tree.parent_term = max(tree.term_of(parent) if parent else tree.parent_term, joined.term)
        if depth is None:
            tree.numbers_used = joined.numbers_used
        tree.depth, tree.above = joined.depth, joined.above
        if depth != joined.depth:
            done.tables.append(self._channel_plan.refresh_all)

    def _open_border(self, operation: BorderOpened, done: Applied) -> None:
        self._set_border(operation.border.channel.channel_id, operation.border, done)

    def _close_border(self, operation: BorderClosed, done: Applied) -> None:
        self._set_border(operation.channel_id, None, done)

    def _set_border(self, number: int, border: BorderChannel | None, done: Applied) -> None:
        borders = self._tree.borders
        before = borders.get(number)
        if border == before:
            return
        # A router that reports meanwhile gets the orders of the registry, so undo those too.
        done.undo.append(partial(self._reorder, border, before))
        _put(borders, number, border)
        done.undo.append(partial(_put, borders, number, before))
        done.tables.append(partial(self._reorder, before, border))

    def _reorder(self, old: BorderChannel | None, new: BorderChannel | None) -> None:
        if old is not None:
            self._channel_plan.close_border(old)
        if new is not None:
            self._channel_plan.open_border(new)

    def _allot(self, operation: NumbersAllotted, done: Applied) -> None:
        blocks, block = self._tree.blocks, (operation.first, operation.count)
        if block not in blocks:
            blocks.append(block)
            done.undo.append(partial(blocks.remove, block))

    # Answers that wait for other clouds.

    def _begin_answer(self, operation: AnswerBegun, done: Applied) -> None:
        begun, key = self._tree.begun, (operation.endpoint, operation.request_id)
        if key not in begun:
            begun[key] = list(operation.outcomes)
            done.undo.append(partial(begun.pop, key, None))

    def _fill_answer(self, operation: OutcomeKnown, done: Applied) -> None:
        outcomes = self._tree.begun.get((operation.endpoint, operation.request_id))
        if outcomes is not None and operation.place < len(outcomes):
            before = outcomes[operation.place]
            outcomes[operation.place] = operation.outcome
            done.undo.append(partial(outcomes.__setitem__, operation.place, before))

    # Contracts of our end-points on variables of other clouds.

    def _request_contract(self, record: ContractAsked, done: Applied) -> None:
        registry, number = self._registry, record.number
        registry.subscription_id_last = max(registry.subscription_id_last, number)
        found = self._tree.asked.get(number)
        if found is not None:
            if record.generation > (found.change or found.record).generation:
                done.undo.append(partial(setattr, found, "change", found.change))
                found.change = record
                done.tables.append(partial(self._tree.news.asked.append, number))
            return
        record = structs.replace(record, qos=same_qos(record.qos))
        self._tree.asked[number] = AskedContract(record)
        self._add_to_index(record)
        done.undo += [
            partial(self._tree.asked.pop, number, None),
            partial(self._remove_from_index, record),
        ]
        done.tables.append(partial(self._tree.news.asked.append, number))

    def _change(
        self,
        operation: ContractHeld | ContractDeclined | ContractEnding | ContractOver,
        done: Applied,
    ) -> None:
        found = self._tree.asked.get(operation.number)
        if found is None:
            return
        record, change, granted = found.record, found.change, found.granted
        done.undo.append(partial(_restore, found, record, change, granted))
        match operation:
            case ContractHeld():
                found.granted = _sharing(operation.granted)
                if change is not None and operation.is_asked:
                    found.record, found.change = change, None
            case ContractDeclined():
                if change is not None and change.generation == operation.generation:
                    found.change = None
                elif granted is None:
                    self._remove(found, done)
            case ContractEnding():
                if not found.is_ending:
                    found.is_ending = True
                    self._remove_from_index(record)
                    self._count_ending(record, 1)
                    done.undo += [
                        partial(_cancel_ending, found),
                        partial(self._add_to_index, record),
                        partial(self._count_ending, record, -1),
                    ]
                    done.tables.append(partial(self._tree.news.ending.append, record.number))
            case ContractOver():
                self._remove(found, done)

    def _remove(self, found: AskedContract, done: Applied) -> None:
        record = found.record
        del self._tree.asked[record.number]
        done.undo.append(partial(self._tree.asked.__setitem__, record.number, found))
        if found.is_ending:
            self._count_ending(record, -1)
            done.undo.append(partial(self._count_ending, record, 1))
        else:
            self._remove_from_index(record)
            done.undo.append(partial(self._add_to_index, record))

    def _count_ending(self, record: ContractAsked, more: int) -> None:
        ending = self._tree.ending_by
        count = ending.pop(record.subscriber, 0) + more
        if count:
            ending[record.subscriber] = count

    def _add_to_index(self, record: ContractAsked) -> None:
        self._tree.asked_by.setdefault(record.subscriber, set()).add(record.number)
        if record.pattern_id:
            self._tree.matched_names.setdefault(record.pattern_id, set()).add(record.name)

    def _remove_from_index(self, record: ContractAsked) -> None:
        _discard(self._tree.asked_by, record.subscriber, record.number)
        _discard(self._tree.matched_names, record.pattern_id, record.name)


def _sharing(granted: ContractGranted) -> ContractGranted:
    """Return the grant with interned paths and qualities, which equal grants share."""
    paths = tuple(
        structs.replace(path, pieces=same(tuple([same(piece) for piece in path.pieces])))
        for path in granted.paths
    )
    return structs.replace(
        granted,
        variable=same(granted.variable),
        paths=same(paths),
        granted=same_quality(granted.granted),
    )


def _put(borders: dict[int, BorderChannel], number: int, border: BorderChannel | None) -> None:
    if border is None:
        borders.pop(number, None)
    else:
        borders[number] = border


def _discard(index: dict[_Key, set[_Member]], key: _Key, member: _Member) -> None:
    found = index.get(key, set())
    found.discard(member)
    if not found:
        index.pop(key, None)


def _restore(
    found: AskedContract,
    record: ContractAsked,
    change: ContractAsked | None,
    granted: ContractGranted | None,
) -> None:
    found.record, found.change = record, change
    found.granted = granted


def _cancel_ending(found: AskedContract) -> None:
    found.is_ending = False
