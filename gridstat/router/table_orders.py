"""Conversion and checks of a broker's orders.

A change is checked as a whole before any of it is applied, so a refused one leaves the table
unchanged. Of a whole table only the invalid orders are left out: no other table will come.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import msgspec

from gridstat.core.rows import CLASS_REPLAY, Flood, check_row
from gridstat.model.errors import LayoutError, Misuse, UnknownName
from gridstat.model.identifiers import (
    PATH_CONTRACT_SHIFT,
    PATH_INDEX_SHIFT,
    ChannelId,
    PathId,
    VariableId,
)
from gridstat.model.rate_law import EVERY_MAX
from gridstat.router.forwarding_table import forwarding_row
from gridstat.router.path_table import CarriedVariable, Path
from gridstat.router.router_channels import spec_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from gridstat.core.rows import ChannelSpec
    from gridstat.net.command.router_messages import ChangeTable, PathOrder, VariableOrder
    from gridstat.router.path_table import PathTable

MODES_MAX: Final = 2**64
PATH_INDEX_MAX: Final = 2 ** (PATH_CONTRACT_SHIFT - PATH_INDEX_SHIFT) - 1
ConvertedChange: TypeAlias = (
    "tuple[list[ChannelSpec], tuple[CarriedVariable, ...], dict[PathId, Path]]"
)
_Order = TypeVar("_Order")


def carried_of(order: VariableOrder) -> CarriedVariable:
    """Return the variable; raise `LayoutError` where the core could not hold it."""
    variable = CarriedVariable(
        variable_id=VariableId(order.variable_id),
        period=order.period,
        phase_ns=order.phase_ns,
        source=order.source,
        is_urgent=order.is_urgent,
        interval_ns_min=order.interval_ns_min,
        is_stamp_exempt=order.phase_ns > 0 if order.period is None else order.interval_ns_min > 0,
        floods=tuple(Flood(flood.level, flood.modes, flood.every) for flood in order.floods),
        keeps_newest=order.keeps_newest,
        delay_ms=order.delay_ms,
    )
    check_row(forwarding_row(variable, ()))
    return variable


def path_of(order: PathOrder) -> Path:
    """Return the path; raise `LayoutError` where the core could not hold it."""
    if (
        not 1 <= order.every <= EVERY_MAX
        or not 0 < order.modes < MODES_MAX
        or not 1 <= order.priority <= CLASS_REPLAY
    ):
        raise LayoutError(
            f"path {order.path_id}: every {order.every}, modes {order.modes} or priority "
            f"{order.priority} is out of range"
        )
    return Path(
        variable_id=VariableId(order.variable_id),
        channel_id=ChannelId(order.channel_id),
        every=order.every,
        modes=order.modes,
        priority=order.priority,
        contract=order.path_id >> PATH_CONTRACT_SHIFT,
        index=order.path_id >> PATH_INDEX_SHIFT & PATH_INDEX_MAX,
    )


def converted(change: ChangeTable, *, in_memory: bool) -> ConvertedChange:
    """Return the channels, variables and paths of a change; raise `LayoutError` for an invalid
    one."""
    return (
        [spec_of(order, in_memory=in_memory) for order in change.channels],
        tuple(carried_of(order) for order in change.variables),
        {PathId(order.path_id): path_of(order) for order in change.paths},
    )


def valid_part(change: ChangeTable) -> tuple[ChangeTable, int]:
    """Return a whole table without its invalid orders, and the number of those."""
    channels = tuple(order for order in change.channels if _is_valid(spec_of, order))
    variables = tuple(order for order in change.variables if _is_valid(carried_of, order))
    channel_ids = {order.channel_id for order in channels}
    variable_ids = {order.variable_id for order in variables}
    paths = tuple(
        order
        for order in change.paths
        if order.channel_id in channel_ids
        and order.variable_id in variable_ids
        and _is_valid(path_of, order)
    )
    valid = msgspec.structs.replace(change, channels=channels, variables=variables, paths=paths)
    return valid, sum(
        len(before) - len(after)
        for before, after in (
            (change.channels, channels),
            (change.variables, variables),
            (change.paths, paths),
        )
    )


def _is_valid(convert: Callable[[_Order], object], order: _Order) -> bool:
    try:
        convert(order)
    except LayoutError:
        return False
    return True


def check_whole(change: ChangeTable) -> None:
    """Raise unless the orders of a whole table need nothing but each other."""
    _check_paths(
        change,
        channels={order.channel_id for order in change.channels},
        variables={order.variable_id for order in change.variables},
    )


def check_delta(change: ChangeTable, *, channels: AbstractSet[int], table: PathTable) -> None:
    """Raise unless the table, so changed, has every path to an open channel."""
    opened = {order.channel_id for order in change.channels}
    closed = set(change.closed_channels) - opened
    carried = {order.variable_id for order in change.variables}
    dropped = set(change.dropped) - carried
    known = {
        order.variable_id
        for order in change.paths
        if table.variable(VariableId(order.variable_id)) is not None
    }
    _check_paths(
        change, channels=(channels - closed) | opened, variables=(known - dropped) | carried
    )
    _check_left_behind(change, closed=closed, dropped=dropped, table=table)


def _check_paths(
    change: ChangeTable, *, channels: AbstractSet[int], variables: AbstractSet[int]
) -> None:
    for order in change.paths:
        if order.channel_id not in channels:
            raise UnknownName(f"path {order.path_id} leads to channel {order.channel_id}, not open")
        if order.variable_id not in variables:
            raise UnknownName(
                f"path {order.path_id} is of variable {order.variable_id}, not carried here"
            )


def _check_left_behind(
    change: ChangeTable, *, closed: AbstractSet[int], dropped: AbstractSet[int], table: PathTable
) -> None:
    """No path may stay on a channel that closes, or of a variable that is dropped.

    A path that is set up again under its old identifier does not stay on its old channel.
    """
    on_channel: Counter[int] = Counter()
    of_variable: Counter[int] = Counter()
    for path_id in {*change.torn_down, *(order.path_id for order in change.paths)}:
        path = table.path(PathId(path_id))
        if path is not None:
            on_channel[path.channel_id] += 1
            of_variable[path.variable_id] += 1
    for channel_id in sorted(closed):
        if table.count_on(ChannelId(channel_id)) > on_channel[channel_id]:
            raise Misuse(f"channel {channel_id} closes, and paths still lead to it")
    for variable_id in sorted(dropped):
        if len(table.paths_of(VariableId(variable_id))) > of_variable[variable_id]:
            raise Misuse(f"variable {variable_id} is dropped, and still has paths")
