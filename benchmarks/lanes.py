"""Pairs of plain ends with hops between them, started once, that send on request.

The tail of a path on a shared machine is mostly due to the machine. So other kinds of hop are
measured in the same seconds, their events between those of the others, with equal ends and
priorities: effects that all show come from the machine, effects that one shows come from its hop.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from benchmarks.chain import ChainPlan, build_chain, reference_of, reference_question
from benchmarks.rig import FLOOR_SINGLE, Rig
from benchmarks.statistics import Bin, Histogram, Summary, histogram_since

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from benchmarks.samples import Label

RING_EVENTS = 65_536
ANSWER_S_MAX = 30.0

Key = TypeVar("Key", int, str)


@dataclass(frozen=True, slots=True)
class LaneRun:
    """Result since `begin`; `local` is the first hop's own share, if it is a core."""

    summary: Summary
    bins: tuple[Bin, ...]
    local: Histogram
    lost: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Choice of the events that count: after the warm-up, or created in one of the windows."""

    warm_up_s: float = 0.0
    windows_ns: tuple[tuple[int, int], ...] = ()
    samples: str = ""
    """Folder for the counted samples, or empty."""
    label: Label | None = None

    def question(self) -> dict[str, Any]:
        asked: dict[str, Any] = {"warm_up_s": self.warm_up_s, "windows_ns": self.windows_ns}
        if self.samples and self.label is not None:
            asked |= {"samples": self.samples, "label": asdict(self.label)}
        return asked

    def of(self, kind: str) -> Cut:
        """Return the same for one kind of hop, with the kind in the label of its samples."""
        return self if self.label is None else replace(self, label=replace(self.label, kind=kind))


WHOLE = Cut()


class Lane:
    """One chain of hops, which sends between `begin` and `finish`."""

    def __init__(self, rig: Rig, plan: ChainPlan) -> None:
        self._plan = plan
        self._subscriber, self._hops = build_chain(rig, plan, [], ring_events=RING_EVENTS)
        self._publisher = rig.publisher(self._hops[0], seal=plan.seal)
        self._before: Histogram = ()

    def begin(self, seconds: float, phase_s: float) -> None:
        self._before = self._histogram()
        question = reference_question(self._plan, seconds)
        self._publisher.begin({**question, "is_aligned": True, "phase_s": phase_s})
        self._seconds = seconds

    def finish(self, cut: Cut = WHOLE) -> LaneRun:
        sent = self._publisher.finish(within_s=self._seconds + ANSWER_S_MAX)
        taken = self._subscriber.take(0, **reference_of(), **cut.question())
        return LaneRun(
            summary=Summary(**taken["summary"]),
            bins=tuple(Bin(**part) for part in taken["bins"]),
            local=histogram_since(self._before, self._histogram()),
            lost=int(sent["sent"]) - int(taken["taken"]),
        )

    def _histogram(self) -> Histogram:
        state = self._hops[0].process.ask({})
        return tuple((upper, count) for upper, count in state.get("histogram", ()))


class Lanes(Generic[Key]):
    """Several lanes with one common tick; each sends at its own phase of it."""

    def __init__(self, plans: Mapping[Key, ChainPlan]) -> None:
        self._plans: dict[Key, ChainPlan] = dict(plans)
        self._stack = ExitStack()
        self._lanes: dict[Key, Lane] = {}

    def __enter__(self) -> Self:
        try:
            rigs = {key: self._stack.enter_context(Rig()) for key in self._plans}
            for key, plan in self._plans.items():  # All interpreters load at the same time.
                rigs[key].prepare(plan.kind, hops=plan.routers)
            self._lanes = {key: Lane(rigs[key], plan) for key, plan in self._plans.items()}
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def __len__(self) -> int:
        return len(self._plans)

    def begin(self, seconds: float, phases_s: Iterable[float]) -> None:
        """Send for so long, each lane at its phase after the tick."""
        for lane, phase_s in zip(self._lanes.values(), phases_s, strict=True):
            lane.begin(seconds, phase_s)

    def finish(self, cut: Cut = WHOLE) -> dict[Key, LaneRun]:
        return {key: lane.finish(cut.of(str(key))) for key, lane in self._lanes.items()}


def floor_lanes(lengths: Iterable[int], tick_s: float) -> Lanes[int]:
    """Return lanes of raw C hops, by their number in a row."""
    return Lanes(
        {
            hops: ChainPlan(FLOOR_SINGLE, hops, reference_s=tick_s, is_real_time=True)
            for hops in sorted(set(lengths))
        }
    )
