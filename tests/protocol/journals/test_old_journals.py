"""Journals written by an earlier version replay to the state that it had.

`tests/golden/old_journals.msgpack.zlib` holds whole journals of leaf and QoS brokers, written by
version 0.1.0 before its operations and messages were renamed, each with the broker's file and with
the snapshot that the writing version made of it. The tags and field names of a journal are part of
its format: a rename of a class or a field must not reach the bytes.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gridstat.broker.context import Outside
from gridstat.broker.leaf_broker import LeafBroker
from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.broker.settings import BrokerSettings
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.cloud import EventChannel, Router
from lab.simulation.broker_node import PlainVerifier

if TYPE_CHECKING:
    from collections.abc import Sequence

GOLDEN = Path(__file__).parents[2] / "golden" / "old_journals.msgpack.zlib"
NOW_NS = 1_800_000_000_000_000_000
ADDED_SINCE: frozenset[str] = frozenset()
"""Tags of operations that versions since then write into a snapshot beside the old ones."""

FIELDS_ADDED_SINCE: dict[str, tuple[Any, ...]] = {
    "delay_ms": (100,),
    "security": ("hop", "none"),
    "name": ("",),
    "risks": ([],),
    "to_host": ("",),
}
"""Fields that versions since then write, with the values that an old journal implies: a channel is
sealed, has no name and no named risks, and goes to the address of its router; a contract demands
nothing."""


class OldJournal(msgspec.Struct):
    """One journal, the file of its broker, and the state that its writer replayed it to."""

    name: str
    parent: str
    kind: str
    routers: tuple[Router, ...]
    children: tuple[str, ...]
    channels: tuple[EventChannel, ...]
    written: tuple[bytes, ...]
    state: tuple[bytes, ...]

    def broker(self) -> LeafBroker | QosBroker:
        outside = Outside(PlainVerifier(), lambda: NOW_NS, new_identity=lambda: "new")
        if self.kind == "leaf":
            return LeafBroker(
                BrokerSettings(cloud=self.name, parent=self.parent),
                outside,
                routers=self.routers,
                channels=self.channels,
            )
        return QosBroker(
            TreeSettings(name=self.name, parent=self.parent),
            outside,
            children=self.children,
            channels=self.channels,
        )


def old_journals() -> list[OldJournal]:
    packed = zlib.decompress(GOLDEN.read_bytes())
    return msgspec.msgpack.decode(packed, type=list[OldJournal])


@pytest.mark.parametrize("number", range(len(old_journals())))
def test_an_old_journal_replays_to_the_state_that_its_writer_had(number: int) -> None:
    journal = old_journals()[number]
    broker = journal.broker()
    broker.restore(journal.written)
    assert readable(broker.snapshot()) == readable(journal.state)


def test_the_old_journals_hold_every_kind_of_operation_that_renames_could_break() -> None:
    found = {
        msgspec.msgpack.decode(data)["type"]
        for each in old_journals()
        for data in each.written
        if data != SNAPSHOT_MARK
    }
    renamed = {"ParentHeard", "ChildHeard", "StretchCommitted", "HoldingTaken", "FloodingHeld"}
    assert renamed <= found
    assert len(found) >= 37


def test_a_broker_reads_its_own_snapshot_of_an_old_journal() -> None:
    for journal in old_journals():
        first = journal.broker()
        first.restore(journal.written)
        second = journal.broker()
        second.restore(first.snapshot())
        assert second.snapshot() == first.snapshot()


def readable(written: Sequence[bytes]) -> list[dict[str, Any]]:
    """The operations of a snapshot as plain values, so that a difference can be read."""
    found: list[dict[str, Any]] = [msgspec.msgpack.decode(data) for data in written]
    return [_without_new_fields(each) for each in found if each["type"] not in ADDED_SINCE]


def _without_new_fields(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_new_fields(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_new_fields(each)
        for key, each in value.items()
        if key not in FIELDS_ADDED_SINCE or each not in FIELDS_ADDED_SINCE[key]
    }
