"""The stage of alarms: final events and rules in, alarms out; the laws run on Arrow batches.

Only streams that some rule watches are evaluated, and all streams of a variable together. A test
event shows that its sender is alive, and nothing else. A variable without any event is checked,
too: the start of its recording counts as a sign of life.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from gridstat.model.alarms.alarm_identity import sequence_of
from gridstat.model.alarms.runs import LONG_AGO_NS, Series
from gridstat.model.alarms.silence import Silence
from gridstat.model.rate_law import NS_PER_S
from gridstat.model.status import EventFlag
from gridstat.pipeline.file_rows import FileRows, is_in_share, share_of
from gridstat.pipeline.schemas import ALARMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from gridstat.model.alarms.runs import Finding
    from gridstat.pipeline.alarm_rules import AlarmRule

Columns: TypeAlias = "dict[str, NDArray[Any]]"

_SEEN: Final = pa.schema(
    [
        ("stream", pa.int32()),
        ("created_ns", pa.int64()),
        ("value", pa.float64()),
        ("place", pa.int64()),
        ("slot_ns", pa.int64()),
    ]
)
"""Events and the index of their variable; an event without a value is only a sign of life."""
_READ: Final = ("stream", "created_ns", "value", "flags")
LOOK_BACK_NS_MAX: Final = 2 * 3_600 * NS_PER_S
"""Silence of streams so slow that it needs more is not judged; `Watched.too_slow` names them."""
NS_PER_US: Final = 1_000
_FOUND: Final = pa.schema(
    [
        ("rule", pa.string()),
        ("kind", pa.string()),
        ("variable", pa.string()),
        ("stream", pa.int32()),
        ("onset", pa.timestamp("us", tz="UTC")),
        ("onset_ns", pa.int64()),
        ("sequence", pa.int32()),
        ("value", pa.float64()),
        ("limit", pa.float64()),
        ("severity", pa.string()),
        ("text", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class WatchedVariable:
    """A variable that rules watch, and the spans of its contracts, in which it is to send."""

    variable: str
    rules: tuple[int, ...]
    held_ns: tuple[tuple[int, int], ...]

    @property
    def since_ns(self) -> int:
        """Start of the first span."""
        return min(since_ns for since_ns, _ in self.held_ns)

    def is_held(self, at_ns: int) -> bool:
        """Return whether the variable was to send at that instant."""
        return any(since_ns <= at_ns <= until_ns for since_ns, until_ns in self.held_ns)


@dataclass(frozen=True, slots=True)
class WatchedStream:
    """A stream of a watched variable; `slot_ns` is 0 where nothing is due."""

    place: int
    stream: int
    since_ns: int
    until_ns: int
    slot_ns: int


@dataclass(frozen=True, slots=True)
class Watched:
    """Streams that the rules watch; `place` of a stream is the index of its variable."""

    rules: tuple[AlarmRule, ...]
    variables: tuple[WatchedVariable, ...]
    streams: tuple[WatchedStream, ...]
    too_slow: tuple[str, ...]
    look_back_ns: int


def watched(rules: Sequence[AlarmRule], known: Iterable[dict[str, Any]]) -> Watched:
    """Matches rules with streams, rows with the columns of `KNOWN_STREAMS`."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in known:
        by_name.setdefault(row["variable"], []).append(row)
    variables: list[WatchedVariable] = []
    streams: list[WatchedStream] = []
    too_slow: list[str] = []
    look_back_ns = 0
    for variable, rows in sorted(by_name.items()):
        slots_ns = [slot_ns(row) for row in rows]
        chosen = [place for place, rule in enumerate(rules) if rule.watches(variable)]
        backs = {place: rules[place].law.look_back_ns(max(slots_ns)) for place in chosen}
        kept = tuple(place for place in chosen if backs[place] <= LOOK_BACK_NS_MAX)
        if len(kept) < len(chosen):
            too_slow.append(variable)
        if not kept:
            continue
        place = len(variables)
        held_ns = tuple((row["since_ns"], row["until_ns"]) for row in rows)
        variables.append(WatchedVariable(variable, kept, held_ns))
        streams += [
            WatchedStream(place, row["stream"], row["since_ns"], row["until_ns"], each_ns)
            for row, each_ns in zip(rows, slots_ns, strict=True)
        ]
        look_back_ns = max(look_back_ns, *(backs[rule] for rule in kept))
    return Watched(tuple(rules), tuple(variables), tuple(streams), tuple(too_slow), look_back_ns)


def slot_ns(row: dict[str, Any]) -> int:
    """The time between two events that are due, 0 for a variable without a period."""
    if row["period_seconds"] is None:
        return 0
    return int(row["every"] * row["period_seconds"] * NS_PER_S // row["period_per_seconds"])


def alarms(
    shares: DataFrame,
    events: FileRows,
    seen: Watched,
    span_ns: tuple[int, int],
    unrecorded_ns: Sequence[tuple[int, int]] = (),
) -> DataFrame:
    """The alarms that begin in (from, to] of the span, with the columns of `ALARMS`.

    Shares are as `in_shares` gives them; events must be all that are final from
    `seen.look_back_ns` before. While nothing was recorded, in the spans of `unrecorded_ns`, nobody
    is called silent.
    """
    work = partial(
        _judge_share, events=events, seen=seen, span_ns=span_ns, unrecorded_ns=tuple(unrecorded_ns)
    )
    found = shares.mapInArrow(work, _spark_columns())
    return found.select(*_FOUND.names, F.to_date("onset").alias("day"))


def _judge_share(
    batches: Iterable[pa.RecordBatch],
    *,
    events: FileRows,
    seen: Watched,
    span_ns: tuple[int, int],
    unrecorded_ns: tuple[tuple[int, int], ...],
) -> Iterator[pa.RecordBatch]:
    """The alarms of a share of the variables; runs in a task."""
    given = share_of(batches)
    if given is None:
        return
    rows = _rows_of_share(events, seen, span_ns, unrecorded_ns, given)
    found = [
        _row(seen.rules[place], variable.variable, finding, stream)
        for variable, columns in _by_variable(seen, rows)
        for place, finding, stream in _findings(
            seen, variable, columns, span_ns, partial(_is_excused, variable, unrecorded_ns)
        )
    ]
    yield from pa.Table.from_pylist(found, schema=_FOUND).to_batches()


def _rows_of_share(
    events: FileRows,
    seen: Watched,
    span_ns: tuple[int, int],
    unrecorded_ns: Sequence[tuple[int, int]],
    given: tuple[int, int],
) -> pa.Table:
    """Return events of watched streams, with the index of their variable, and the signs of life."""
    start_ns, to_ns = span_ns[0] - seen.look_back_ns, span_ns[1]
    is_mine = is_in_share(np.array([each.place for each in seen.streams], np.int64), *given)
    mine = [each for each, is_ours in zip(seen.streams, is_mine, strict=True) if is_ours]
    mine.sort(key=lambda each: each.stream)
    numbers = np.array([each.stream for each in mine], np.int32)
    places, slots_ns = (
        np.array([getattr(each, name) for each in mine], np.int64) for name in ("place", "slot_ns")
    )
    parts = [_signs(seen, mine, start_ns, to_ns, unrecorded_ns)]
    wanted = replace(events, spans_ns=((start_ns + 1, to_ns),))
    for rows in wanted.read(_READ, lambda streams: np.isin(streams, numbers)):
        at = np.searchsorted(numbers, rows.column("stream").to_numpy())
        is_test = rows.column("flags").to_numpy() & int(EventFlag.TEST) != 0
        values = np.where(is_test, np.nan, rows.column("value").to_numpy())
        columns = [
            rows.column("stream"),
            rows.column("created_ns"),
            values,
            places[at],
            slots_ns[at],
        ]
        parts.append(pa.table(columns, schema=_SEEN))
    return pa.concat_tables(parts)


def _by_variable(seen: Watched, rows: pa.Table) -> Iterator[tuple[WatchedVariable, Columns]]:
    """The events of each variable of a crate in order of time, one of each instant.

    Of several (two streams of a variable overlap) an event goes before a mere sign, and then the
    stream of the lowest number, whatever the order in which they come.
    """
    places = rows.column("place").to_numpy()
    times_ns = rows.column("created_ns").to_numpy()
    is_sign = np.isnan(rows.column("value").to_numpy())
    order = np.lexsort((rows.column("stream").to_numpy(), is_sign, times_ns, places))
    is_first = np.diff(times_ns[order], prepend=LONG_AGO_NS) != 0
    is_first |= np.diff(places[order], prepend=-1) != 0
    order = order[is_first]
    names = ("created_ns", "value", "slot_ns", "stream")
    columns = {name: rows.column(name).to_numpy()[order] for name in names}
    starts = np.flatnonzero(np.diff(places[order], prepend=-1))
    for start, end in pairwise([*starts.tolist(), len(order)]):
        variable = seen.variables[places[order[start]]]
        yield variable, {name: column[start:end] for name, column in columns.items()}


def _findings(
    seen: Watched,
    variable: WatchedVariable,
    columns: Columns,
    span_ns: tuple[int, int],
    is_excused: Callable[[int], bool],
) -> list[tuple[int, Finding, int]]:
    """Rule, finding and stream, for every rule that watches the variable."""
    times_ns, values, slots_ns, numbers = columns.values()
    everything = Series(times_ns, values, slots_ns, variable.since_ns)
    is_event = np.isfinite(values)
    events = Series(times_ns[is_event], values[is_event], slots_ns[is_event], variable.since_ns)
    found = []
    for place in variable.rules:
        law = seen.rules[place].law
        findings: Sequence[Finding]
        if isinstance(law, Silence):
            findings = law.findings(everything, *span_ns, is_excused)
        else:
            findings = law.findings(events, *span_ns)
        for finding in findings:
            at = int(np.searchsorted(times_ns, finding.onset_ns, side="right")) - 1
            found.append((place, finding, int(numbers[max(0, at)])))
    return found


def _is_excused(
    variable: WatchedVariable, unrecorded_ns: tuple[tuple[int, int], ...], at_ns: int
) -> bool:
    """Return whether a silence does not count: there is no contract, or nothing was recorded."""
    return not variable.is_held(at_ns) or any(
        from_ns <= at_ns <= to_ns for from_ns, to_ns in unrecorded_ns
    )


def _row(rule: AlarmRule, variable: str, finding: Finding, stream: int) -> dict[str, Any]:
    return {
        "rule": rule.name,
        "kind": rule.kind,
        "variable": variable,
        "stream": stream,
        "onset": finding.onset_ns // NS_PER_US,
        "onset_ns": finding.onset_ns,
        "sequence": sequence_of(rule.name, variable),
        "value": finding.value,
        "limit": finding.limit,
        "severity": rule.severity,
        "text": rule.text(variable, finding),
    }


def _signs(
    seen: Watched,
    streams: Iterable[WatchedStream],
    start_ns: int,
    to_ns: int,
    unrecorded_ns: Sequence[tuple[int, int]],
) -> pa.Table:
    """Instants that are no events and yet no silence: a recording begins, or goes on."""
    rows = []
    for each in streams:
        law_rules = seen.variables[each.place].rules
        if any(isinstance(seen.rules[place].law, Silence) for place in law_rules):
            instants = {each.since_ns, *(end_ns for _, end_ns in unrecorded_ns)}
            rows += [
                (each.stream, at_ns, None, each.place, each.slot_ns)
                for at_ns in sorted(instants)
                if max(start_ns, each.since_ns - 1) < at_ns <= min(to_ns, each.until_ns - 1)
            ]
    columns = list(zip(*rows, strict=True)) or [()] * len(_SEEN)
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, _SEEN.types, strict=True)],
        schema=_SEEN,
    )


def _spark_columns() -> str:
    return ALARMS.columns.removesuffix(", day date")
