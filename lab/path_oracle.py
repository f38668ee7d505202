"""Oracle of the path search: the same question to a solver of integer programmes.

One 0/1 variable a path and channel. Nothing of the search is used here but its answers' meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import highspy
import numpy as np

if TYPE_CHECKING:
    from lab.topologies import Topology

SECONDS_MAX: Final = 20.0
UNBOUNDED_US: Final = 1 << 32
"""Bound of a path whose latency does not matter."""


class SolverGaveUpError(Exception):
    """Error: the oracle itself found no verdict in time."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Edge routers of both ends, and the latency bounds in ascending order."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    bounds_us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The least cost, and how disjoint the paths are that reach it."""

    cost: int
    is_spread: bool
    is_node_disjoint: bool


def verdict(topology: Topology, demand: Demand) -> Verdict | None:
    """Return the best kind of disjointness with an answer, at its least cost; None: none has."""
    for is_node_disjoint in (True, False) if len(demand.bounds_us) > 1 else (False,):
        for is_spread in (True, False):
            cost = _Programme(
                topology, demand, is_spread=is_spread, is_node_disjoint=is_node_disjoint
            ).least_cost()
            if cost is not None:
                return Verdict(cost, is_spread, is_node_disjoint)
            if len(demand.sources) == len(demand.targets) == 1:
                break  # There is nothing to spread.
    return None


def is_possible(topology: Topology, demand: Demand) -> bool:
    """Return whether there are any such paths that share no channel and no risk."""
    return _Programme(topology, demand, is_spread=False, is_node_disjoint=False).is_feasible()


class _Programme:
    """Rows and columns of one kind's programme; columns are path-major: channels, starts, ends,
    the paths that are a single router, common to both ends, and the risks that are run."""

    def __init__(
        self, topology: Topology, demand: Demand, *, is_spread: bool, is_node_disjoint: bool
    ) -> None:
        self._topology = topology
        self._demand = demand
        self._paths = len(demand.bounds_us)
        self._common = [name for name in demand.sources if name in demand.targets]
        only_sources, only_targets = (
            {name for name in names if name not in self._common}
            for names in (demand.sources, demand.targets)
        )
        self._arcs = [
            arc
            for arc in topology.arcs
            if arc.to_router not in only_sources and arc.from_router not in only_targets
        ]
        ends = len(demand.sources) + len(demand.targets) + len(self._common)
        risks: dict[str, list[int]] = {}
        for index, arc in enumerate(self._arcs):
            for risk in arc.risks:
                risks.setdefault(risk, []).append(index)
        self._risks = [running for running in risks.values() if len(running) > 1]
        self._first_risk = len(self._arcs) + ends
        self._width = self._first_risk + len(self._risks)
        self._rows: list[tuple[dict[int, float], float, float]] = []
        for path in range(self._paths):
            self._one_path(path)
        self._no_channel_twice()
        self._no_risk_twice()
        self._no_single_router_twice(is_spread=is_spread)
        if is_node_disjoint:
            self._no_router_twice()
        if is_spread:
            self._spread_edges()

    def least_cost(self) -> int | None:
        return self._solved(self._model())

    def is_feasible(self) -> bool:
        model = self._model()
        model.col_cost_ = np.zeros(model.num_col_)
        return self._solved(model) is not None

    def _solved(self, model: highspy.HighsLp) -> int | None:
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("output_flag", False)  # noqa: FBT003
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("time_limit", SECONDS_MAX)
        solver.setOptionValue("mip_rel_gap", 0.0)
        solver.setOptionValue("mip_abs_gap", 0.5)
        solver.passModel(model)
        solver.run()
        match solver.getModelStatus():
            case highspy.HighsModelStatus.kOptimal:
                return round(float(solver.getInfo().objective_function_value))
            case highspy.HighsModelStatus.kInfeasible:
                return None
            case status:
                raise SolverGaveUpError(str(status))

    def _model(self) -> highspy.HighsLp:
        columns = self._width * self._paths
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = columns, len(self._rows)
        costs = [float(arc.cost) for arc in self._arcs]
        costs += [0.0] * (self._width - len(costs))
        model.col_cost_ = np.tile(np.array(costs), self._paths)
        model.col_lower_, model.col_upper_ = np.zeros(columns), np.ones(columns)
        model.integrality_ = [highspy.HighsVarType.kInteger] * columns
        model.row_lower_ = np.array([low for _, low, _ in self._rows])
        model.row_upper_ = np.array([high for _, _, high in self._rows])
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lengths = [0, *(len(row) for row, _, _ in self._rows)]
        model.a_matrix_.start_ = np.cumsum(lengths).astype(np.int32)
        model.a_matrix_.index_ = np.array([at for row, _, _ in self._rows for at in row], np.int32)
        model.a_matrix_.value_ = np.array([by for row, _, _ in self._rows for by in row.values()])
        return model

    def _one_path(self, path: int) -> None:
        """Add the rows of one path: from one source to one target without a gap, in time."""
        demand, inf = self._demand, highspy.kHighsInf
        starts = {source: self._start(path, at) for at, source in enumerate(demand.sources)}
        ends = {target: self._end(path, at) for at, target in enumerate(demand.targets)}
        alone = {name: self._alone(path, at) for at, name in enumerate(self._common)}
        for joined in (starts, ends):
            columns = [*joined.values(), *alone.values()]
            self._rows.append((dict.fromkeys(columns, 1.0), 1, 1))
        balance: dict[str, dict[int, float]] = {name: {} for name in self._topology.routers}
        latency = {
            start: float(self._topology.router_latency_us[source])
            for joined in (starts, alone)
            for source, start in joined.items()
        }
        for index, arc in enumerate(self._arcs):
            column = path * self._width + index
            balance[arc.from_router][column] = 1.0
            balance[arc.to_router][column] = -1.0
            latency[column] = float(
                arc.latency_us + self._topology.router_latency_us[arc.to_router]
            )
        for source, start in starts.items():
            balance[source][start] = -1.0
        for target, end in ends.items():
            balance[target][end] = 1.0
        for name in self._common:
            # A path that starts at a common router does not return to it, and passes none.
            self._rows.append(({starts[name]: 1.0, ends[name]: 1.0}, 0, 1))
            for sign, joined in ((1.0, starts), (-1.0, ends)):
                row = {at: 1.0 for at, by in balance[name].items() if by == sign}
                row.pop(starts[name], None)
                row.pop(ends[name], None)
                self._rows.append((row | {joined[name]: -1.0}, -inf, 0))
        self._rows += [(row, 0, 0) for row in balance.values() if row]
        if demand.bounds_us[path] < UNBOUNDED_US:
            self._rows.append((latency, -inf, float(demand.bounds_us[path])))

    def _no_channel_twice(self) -> None:
        for index in range(len(self._arcs)):
            columns = [path * self._width + index for path in range(self._paths)]
            self._rows.append((dict.fromkeys(columns, 1.0), -highspy.kHighsInf, 1))

    def _no_risk_twice(self) -> None:
        """Add a column for each path and risk: whether the path runs it; at most one path does."""
        for number, running in enumerate(self._risks):
            columns = [
                path * self._width + self._first_risk + number for path in range(self._paths)
            ]
            for path, column in enumerate(columns):
                for index in running:
                    used = path * self._width + index
                    self._rows.append(({used: 1.0, column: -1.0}, -highspy.kHighsInf, 0))
            self._rows.append((dict.fromkeys(columns, 1.0), -highspy.kHighsInf, 1))

    def _no_single_router_twice(self, *, is_spread: bool) -> None:
        for at in range(len(self._common)):
            columns = [self._alone(path, at) for path in range(self._paths)]
            self._rows.append((dict.fromkeys(columns, 1.0), int(is_spread), 1))

    def _no_router_twice(self) -> None:
        edges = {*self._demand.sources, *self._demand.targets}
        for router in self._topology.routers:
            columns = [
                path * self._width + index
                for path in range(self._paths)
                for index, arc in enumerate(self._arcs)
                if arc.to_router == router
            ]
            if columns and router not in edges:
                self._rows.append((dict.fromkeys(columns, 1.0), -highspy.kHighsInf, 1))

    def _spread_edges(self) -> None:
        for names, column in (
            (self._demand.sources, self._start),
            (self._demand.targets, self._end),
        ):
            for at, name in enumerate(names):
                columns = [column(path, at) for path in range(self._paths)]
                if name in self._common:
                    alone = self._common.index(name)
                    columns += [self._alone(path, alone) for path in range(self._paths)]
                room = -(-self._paths // len(names))
                self._rows.append((dict.fromkeys(columns, 1.0), -highspy.kHighsInf, room))

    def _start(self, path: int, at: int) -> int:
        return path * self._width + len(self._arcs) + at

    def _end(self, path: int, at: int) -> int:
        return path * self._width + len(self._arcs) + len(self._demand.sources) + at

    def _alone(self, path: int, at: int) -> int:
        ends = len(self._demand.sources) + len(self._demand.targets)
        return path * self._width + len(self._arcs) + ends + at
