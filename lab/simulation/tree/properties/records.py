"""Readability of records: a broker's next process must be able to read its journal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.broker.leaf_broker import LeafBroker
from gridstat.broker.records.operations import SNAPSHOT_MARK, Answered
from gridstat.broker.tree import tree_operations as of_tree
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.model.errors import GridStatError
from gridstat.net.command.frames import decode_outcomes
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.simulation.tree.broker_node import Broker

RULE: Final = "what is written can be read"


def check_readable(name: str, broker: Broker | None, written: Sequence[bytes]) -> None:
    """Check that records, and values encoded in them, can be read under the journal's schema."""
    assert isinstance(broker, LeafBroker | QosBroker), f"{name} writes although it does not run"
    if isinstance(broker, LeafBroker):
        read = partial(_read_of_leaf, broker)
    else:
        read = partial(_read_of_tree, broker)
    for data in written:
        if data == SNAPSHOT_MARK:
            continue
        try:
            read(data)
        except GridStatError as error:
            raise PropertyBroken(RULE, f"{name}: {error.args[0]}") from error


def _read_of_leaf(broker: LeafBroker, data: bytes) -> None:
    operation = broker.decode(data)
    if isinstance(operation, Answered):
        decode_outcomes(operation.body)


def _read_of_tree(broker: QosBroker, data: bytes) -> None:
    for operation in of_tree.operations_of([data], broker.operation_types):
        if isinstance(operation, of_tree.HoldingTaken):
            of_tree.body_of(operation.holding)
