"""Roll-back of floods that could not be made durable: charges are as before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.broker.context import Outside
from gridstat.broker.floods.flooding_operations import FloodingHeld
from gridstat.broker.records.operation import Applied
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.broker.tree.tree_operations import TreeChannelAdded, TreeChannelRemoved
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.cloud import EventChannel
from gridstat.model.flooding import FloodTerm
from gridstat.model.identifiers import ChannelId, VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from tests.unit.broker.stand_ins import PlainVerifier

if TYPE_CHECKING:
    from gridstat.broker.tree.tree_operations import TreeOperation
    from gridstat.broker.tree.tree_state import TreeState

VOLTAGE = StatusVariable(VariableId(1), "a/pmu/voltage", BuiltinType.FLOAT64, Period(1, 30))
FLOOD = FloodingHeld(variable=VOLTAGE, number=1, own={0: FloodTerm(level=0)})
SLOWER = FloodingHeld(variable=VOLTAGE, number=2, own={0: FloodTerm(level=0, every=3)})
OVER = FloodingHeld(variable=VOLTAGE, number=3)


def channel(number: int, start: str, end: str) -> EventChannel:
    return EventChannel(ChannelId(number), start, end, bandwidth_bytes_per_s=10_000)


def broker(*operations: TreeOperation) -> QosBroker:
    """Return a broker with two channels between its clouds, after these operations."""
    channels = [channel(0, "a/0", "b/0"), channel(0, "b/0", "a/0")]
    outside = Outside(PlainVerifier(), lambda: 0)
    found = QosBroker(TreeSettings("root"), outside, ["a", "b"], channels)
    for operation in operations:
        found.state.apply(operation, Applied())
    return found


def free(state: TreeState) -> dict[int, dict[int, int] | None]:
    accounts = state.channels.accounts
    return {number: account.free_bytes_per_s() for number, account in accounts.items()}


@pytest.mark.parametrize(
    ("before", "failed"),
    [
        pytest.param((), FLOOD, id="a first flood"),
        pytest.param((FLOOD,), SLOWER, id="another divisor"),
        pytest.param((FLOOD,), OVER, id="its end"),
    ],
)
def test_a_change_of_flooding_that_is_rolled_back_leaves_every_charge_as_it_was(
    before: tuple[TreeOperation, ...], failed: FloodingHeld
) -> None:
    root, applied = broker(*before), Applied()
    state, flooding = root.state, root.parts.flooding
    charged, floods = free(state), dict(flooding.floods)
    state.apply(failed, applied)
    assert free(state) != charged
    applied.roll_back()
    assert free(state) == charged
    assert flooding.floods == floods


def test_a_new_channel_that_is_rolled_back_is_gone_with_what_floods_it() -> None:
    state, applied = broker(FLOOD).state, Applied()
    charged = free(state)
    number = state.channels.next_number()
    state.apply(TreeChannelAdded(channel=channel(number, "a/0", "c/0")), applied)
    assert free(state)[number] == charged[min(charged)]
    applied.roll_back()
    assert free(state) == charged


def test_a_removed_channel_that_is_rolled_back_carries_again_what_floods() -> None:
    state, applied = broker(FLOOD).state, Applied()
    charged = free(state)
    state.apply(TreeChannelRemoved(channel_id=min(charged)), applied)
    assert len(free(state)) == 1
    applied.roll_back()
    assert free(state) == charged
