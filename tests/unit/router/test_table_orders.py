"""Translation of orders to the router's own types; bad ones are refused first."""

from __future__ import annotations

import msgspec
import pytest

from gridstat.model.errors import LayoutError, Misuse, UnknownName
from gridstat.model.identifiers import ChannelId, PathId, VariableId
from gridstat.model.rate_law import Period
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    PathOrder,
    VariableOrder,
)
from gridstat.router import CarriedVariable, Path, PathTable
from gridstat.router.table_orders import carried_of, check_delta, check_whole, path_of

EAST = ChannelOrder(channel_id=7, to="c1/e1", host="::1", data_port=1, urgent_port=2)
VOLTAGE = VariableOrder(variable_id=1, period=Period(1, 60), source=3, keeps_newest=True)
PATH = PathOrder(path_id=9, variable_id=1, channel_id=7, every=2, modes=5, priority=1)


@pytest.fixture
def table() -> PathTable:
    table = PathTable()
    table.carry(carried_of(VOLTAGE))
    table.set_up(PathId(9), path_of(PATH))
    return table


def test_orders_keep_their_meaning() -> None:
    assert carried_of(VOLTAGE) == CarriedVariable(
        VariableId(1), Period(1, 60), source=3, keeps_newest=True
    )
    assert path_of(PATH) == Path(VariableId(1), ChannelId(7), 2, 5, 1)


@pytest.mark.parametrize(
    ("order", "is_exempt"),
    [
        (VOLTAGE, False),
        (msgspec.structs.replace(VOLTAGE, phase_ns=5), False),
        (msgspec.structs.replace(VOLTAGE, interval_ns_min=5), True),
        (VariableOrder(variable_id=2, period=None, interval_ns_min=5), False),
        (VariableOrder(variable_id=2, period=None, interval_ns_min=5, phase_ns=1), True),
    ],
)
def test_only_replayed_streams_and_belated_alerts_may_bear_old_stamps(
    order: VariableOrder, is_exempt: bool
) -> None:
    assert carried_of(order).is_stamp_exempt is is_exempt


@pytest.mark.parametrize(
    "nonsense", [{"every": 0}, {"every": 2**32}, {"modes": 0}, {"modes": 2**64}, {"priority": 9}]
)
def test_a_path_out_of_range_is_refused(nonsense: dict[str, int]) -> None:
    with pytest.raises(LayoutError):
        path_of(msgspec.structs.replace(PATH, **nonsense))


@pytest.mark.parametrize("nonsense", [{"variable_id": 2**32}, {"source": -1}, {"phase_ns": 2**64}])
def test_a_variable_out_of_range_is_refused(nonsense: dict[str, int]) -> None:
    with pytest.raises(LayoutError):
        carried_of(msgspec.structs.replace(VOLTAGE, **nonsense))


def test_a_whole_table_needs_nothing_but_itself() -> None:
    whole = ChangeTable(
        term=1, number=1, begins_anew=True, channels=(EAST,), variables=(VOLTAGE,), paths=(PATH,)
    )
    check_whole(whole)
    with pytest.raises(UnknownName, match="channel 7"):
        check_whole(msgspec.structs.replace(whole, channels=()))
    with pytest.raises(UnknownName, match="variable 1"):
        check_whole(msgspec.structs.replace(whole, variables=()))


@pytest.mark.parametrize(
    "change",
    [
        ChangeTable(term=1, number=1, torn_down=(9,), dropped=(1,), closed_channels=(7,)),
        ChangeTable(term=1, number=1, closed_channels=(7,), channels=(EAST,)),
        ChangeTable(term=1, number=1, paths=(msgspec.structs.replace(PATH, path_id=10),)),
        ChangeTable(term=1, number=1, torn_down=(9,), dropped=(1,), variables=(VOLTAGE,)),
        ChangeTable(
            term=1,
            number=1,
            dropped=(1,),
            closed_channels=(7,),
            channels=(msgspec.structs.replace(EAST, channel_id=8),),
            variables=(msgspec.structs.replace(VOLTAGE, variable_id=2),),
            paths=(msgspec.structs.replace(PATH, channel_id=8, variable_id=2),),
        ),
        ChangeTable(term=1, number=1, torn_down=(777,), dropped=(888,), closed_channels=(999,)),
    ],
)
def test_a_sound_change_passes(change: ChangeTable, table: PathTable) -> None:
    check_delta(change, channels={7}, table=table)


@pytest.mark.parametrize(
    "change",
    [
        ChangeTable(term=1, number=1, paths=(msgspec.structs.replace(PATH, channel_id=8),)),
        ChangeTable(term=1, number=1, paths=(msgspec.structs.replace(PATH, variable_id=2),)),
        ChangeTable(term=1, number=1, dropped=(1,)),
        ChangeTable(term=1, number=1, closed_channels=(7,)),
        ChangeTable(term=1, number=1, torn_down=(9,), dropped=(1,), paths=(PATH,)),
        ChangeTable(term=1, number=1, torn_down=(9,), closed_channels=(7,), paths=(PATH,)),
    ],
)
def test_a_change_that_leaves_a_path_without_its_end_is_refused(
    change: ChangeTable, table: PathTable
) -> None:
    with pytest.raises(Misuse):
        check_delta(change, channels={7}, table=table)
