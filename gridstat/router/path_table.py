"""The path table: the variables that a router carries, and every path commanded through it.

The table keeps every path, so that tearing one down leaves exactly the others.
`forwarding_table.py` reduces them to the needed rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridstat.core.rows import BASELINE, Flood
from gridstat.model.errors import Misuse, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.model.identifiers import ChannelId, PathId, VariableId
    from gridstat.model.rate_law import Period

PRIORITY_DEFAULT = 3


@dataclass(frozen=True, slots=True)
class CarriedVariable:
    """A status variable as its routers know it; `period` None means aperiodic.

    `source` is the channel of its publisher, at the publisher's own router, and 0 elsewhere.
    """

    variable_id: VariableId
    period: Period | None
    phase_ns: int = 0
    source: int = 0
    is_urgent: bool = False
    interval_ns_min: int = 0
    is_stamp_exempt: bool = False
    floods: tuple[Flood, ...] = ()
    keeps_newest: bool = False
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Path:
    """One subscription's path through this router: every n-th slot of a variable to a channel.

    `contract` and `index` say which path of which contract it is, where that is known.
    """

    variable_id: VariableId
    channel_id: ChannelId
    every: int = 1
    modes: int = BASELINE
    priority: int = PRIORITY_DEFAULT
    contract: int = 0
    index: int = 0


class PathTable:
    """Each path belongs to a carried variable and is known by its own identifier.

    The answers of the changing methods are the variables whose rows they may have changed; a
    repeated command changes nothing the second time.
    """

    def __init__(self) -> None:
        self._variables: dict[VariableId, CarriedVariable] = {}
        self._paths: dict[PathId, Path] = {}
        self._of_variable: dict[VariableId, dict[PathId, Path]] = {}
        self._on_channel: dict[ChannelId, int] = {}

    def carry(self, variable: CarriedVariable) -> frozenset[VariableId]:
        if self._variables.get(variable.variable_id) == variable:
            return frozenset()
        self._variables[variable.variable_id] = variable
        self._of_variable.setdefault(variable.variable_id, {})
        return frozenset((variable.variable_id,))

    def drop(self, variable_id: VariableId) -> frozenset[VariableId]:
        """Stop carrying a variable; its paths must have been torn down before."""
        if self._variables.get(variable_id) is None:
            return frozenset()
        if self._of_variable[variable_id]:
            raise Misuse(
                f"variable {variable_id} still has {len(self._of_variable[variable_id])} paths",
                hint="tear its paths down first",
            )
        del self._variables[variable_id], self._of_variable[variable_id]
        return frozenset((variable_id,))

    def set_up(self, path_id: PathId, path: Path) -> frozenset[VariableId]:
        """Add a path, or change the one of that identifier in place."""
        if path.variable_id not in self._variables:
            raise UnknownName(f"path {path_id} is of variable {path.variable_id}, not carried here")
        before = self._paths.get(path_id)
        if before == path:
            return frozenset()
        touched = self.tear_down(path_id)
        self._paths[path_id] = path
        self._of_variable[path.variable_id][path_id] = path
        self._on_channel[path.channel_id] = self._on_channel.get(path.channel_id, 0) + 1
        return touched | {path.variable_id}

    def tear_down(self, path_id: PathId) -> frozenset[VariableId]:
        path = self._paths.pop(path_id, None)
        if path is None:
            return frozenset()
        del self._of_variable[path.variable_id][path_id]
        self._on_channel[path.channel_id] -= 1
        if not self._on_channel[path.channel_id]:
            del self._on_channel[path.channel_id]
        return frozenset((path.variable_id,))

    def variable(self, variable_id: VariableId) -> CarriedVariable | None:
        return self._variables.get(variable_id)

    def paths_of(self, variable_id: VariableId) -> tuple[Path, ...]:
        return tuple(self._of_variable.get(variable_id, {}).values())

    def path(self, path_id: PathId) -> Path | None:
        return self._paths.get(path_id)

    def count_on(self, channel_id: ChannelId) -> int:
        """Return the number of paths to a channel."""
        return self._on_channel.get(channel_id, 0)

    def variables_on(self, channel_id: ChannelId) -> frozenset[VariableId]:
        """Return the variables with a path to a channel; reads every path."""
        return frozenset(
            path.variable_id for path in self._paths.values() if path.channel_id == channel_id
        )

    def variables(self) -> Iterator[CarriedVariable]:
        return iter(self._variables.values())

    def path_ids(self) -> frozenset[PathId]:
        return frozenset(self._paths)

    def __len__(self) -> int:
        return len(self._paths)
