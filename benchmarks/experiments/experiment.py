"""Base of the experiments: a name, parameters, and one `run` that ends in flat figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from gridstat.model.errors import LayoutError, UnknownName

Figure = float | int | str
Progress = Callable[[float, str], None]
"""Called with the share done (0 … 1) and a text on the current measurement."""

PER_ROUTER_US_MAX = 1_000.0
"""Bound on the mean latency of one router (S3-74); every experiment reports it as a flag."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting of an experiment; its default also fixes its type.

    No number is below `least`. A text with a `least` is a list of whole numbers, all at least that.
    """

    name: str
    default: Figure
    summary: str
    least: float | None = None

    def value_of(self, given: Figure) -> Figure:
        """Return the given value if its type and bounds are right; raise `LayoutError` else."""
        value = _as_type_of(self, given)
        least = 0 if self.least is None else self.least
        if isinstance(value, int | float):
            numbers: tuple[float, ...] = (value,)
        elif self.least is not None:
            numbers = _wholes(self.name, value) or (least - 1,)
        else:
            return value
        if not all(least <= number < math.inf for number in numbers):
            raise LayoutError(
                f"{self.name} = {value} is below {least:g}, or no number", hint=self.summary
            )
        return value


AWAKE = Parameter("awake", 1, "keep the processors from sleeping, as a real-time host does; or 0")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure of a source, ours beside it, and a flag whether the two may be compared."""

    figure: str
    source: str
    theirs: float
    ours: float
    reason: str
    is_comparable: bool = False

    @property
    def source_id(self) -> str:
        """Return the name of the source: `S0` of `S0 Tab 8.12`."""
        return self.source.split()[0]

    @property
    def comparable(self) -> str:
        """Return `yes` or `no` for printing."""
        return "yes" if self.is_comparable else "no"


@dataclass(frozen=True, slots=True)
class Bound:
    """A figure that must not be larger than a limit; a run that misses one fails."""

    figure: str
    value: float
    at_most: float

    @property
    def is_met(self) -> bool:
        return self.value <= self.at_most  # A figure that is not a number is not met.

    @property
    def met(self) -> str:
        """Return `yes` or `no` for printing."""
        return "yes" if self.is_met else "no"

    def __str__(self) -> str:
        return f"{self.figure} is {self.value:g}, at most {self.at_most:g} allowed"


@dataclass(frozen=True, slots=True)
class Result:
    """Flat figures for the JSON line, one table for people, and the figures of the sources.

    With bounds the run passes only if all of them are met.
    """

    figures: dict[str, Figure]
    title: str = ""
    columns: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    bounds: tuple[Bound, ...] = ()

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.table)
        printed = [(comparison.figure, comparison.source_id) for comparison in self.comparisons]
        assert len(set(printed)) == len(printed), "one number a source for each figure"

    @property
    def missed(self) -> tuple[Bound, ...]:
        """Return the bounds that are not met."""
        return tuple(bound for bound in self.bounds if not bound.is_met)


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of one run, complete and of the right types."""

    values: Mapping[str, Figure]

    def whole(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def real(self, name: str) -> float:
        value = self.values[name]
        assert isinstance(value, int | float)
        return float(value)

    def text(self, name: str) -> str:
        return str(self.values[name])

    def wholes(self, name: str) -> tuple[int, ...]:
        """Return a comma-separated list of whole numbers."""
        return _wholes(name, self.text(name))

    def names(self, name: str, *, known: tuple[str, ...]) -> tuple[str, ...]:
        """Return a comma-separated choice among `known`; empty means all of them."""
        chosen = tuple(part.strip() for part in self.text(name).split(",") if part.strip())
        for part in chosen:
            if part not in known:
                raise UnknownName(
                    f"{name} = {part!r} is unknown", hint=f"choose from {', '.join(known)}"
                )
        return chosen or known


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment; `run` fills in defaults, checks the options and measures."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    measure: Callable[[Options, Progress], Result] = field(repr=False)

    def run(self, options: Mapping[str, Figure], progress: Progress) -> Result:
        """Measure with `options` over the defaults; a `Misuse` says which of them are wrong, and a
        `BenchmarkError` why the measurement failed."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in options:
            if name not in known:
                raise UnknownName(
                    f"{self.name} has no parameter {name!r}", hint=f"it has {', '.join(known)}"
                )
        values = {
            name: parameter.value_of(options.get(name, parameter.default))
            for name, parameter in known.items()
        }
        return self.measure(Options(values), progress)


def per_router_figures(per_router_mean_us: float) -> dict[str, Figure]:
    """Return the mean latency of one router, and the flag of S3-74 that it is at most 1 ms."""
    return {
        "per_router_mean_us": round(per_router_mean_us, 2),
        "per_router_within_1_ms": "yes" if per_router_mean_us <= PER_ROUTER_US_MAX else "no",
    }


def middle(values: list[float], digits: int = 3) -> float:
    """Return the median, rounded for printing; nan for a cell that was not measured."""
    return round(median(values), digits) if values else float("nan")


def _wholes(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise LayoutError(
            f"{name} = {text[:80]!r} is not a list of numbers", hint=f"--set {name}=0,40,120"
        ) from error


def _as_type_of(parameter: Parameter, value: Figure) -> Figure:
    try:
        return type(parameter.default)(value)
    except (ValueError, OverflowError) as error:
        kind = type(parameter.default).__name__
        raise LayoutError(
            f"{parameter.name} = {value!r} is not of type {kind}", hint=parameter.summary
        ) from error
