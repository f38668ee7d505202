"""Alarms after each batch: evaluates what has become final, commits what begins, hands it on.

    follower = AlarmFollower(folder, load_rules(), publish=publisher.publish)
    Ingest(spark, folder, followers=[follower])

A commit carries how far it reaches, so an interval that comes again after a kill adds nothing.
Alarms are handed on after their commit, and marked as sent once the publisher says so: one that is
handed on again after a kill has the same identity, by which routers and subscribers drop it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from gridstat.model.alarms.alarm_identity import distinct_sequences
from gridstat.model.rate_law import NS_PER_S
from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.file_rows import in_shares
from gridstat.pipeline.recording_gaps import RecordingGaps
from gridstat.pipeline.schemas import ALARMS
from gridstat.pipeline.stages.alarm_evaluation import LOOK_BACK_NS_MAX, alarms, watched
from gridstat.pipeline.stream_catalog import StreamCatalog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from gridstat.pipeline.alarm_rules import AlarmRule
    from gridstat.pipeline.archive import Archive
    from gridstat.pipeline.pipeline_folder import PipelineFolder
    from gridstat.pipeline.stages.alarm_evaluation import Watched

log = logging.getLogger(__name__)

EVALUATED: Final = "alarms"
"""The mark up to which, without it, events were evaluated."""
SENT: Final = "alarms-sent"
"""The mark up to which alarms are known to have been sent."""
SLICE_NS: Final = 300 * NS_PER_S
"""A long history is evaluated in pieces, which finds the same, in bounded memory."""
WATCH_NS: Final = 3_600 * NS_PER_S
"""Interval after which streams that have ended are dropped from the watched ones."""
MARK_NS: Final = 10 * NS_PER_S
"""A quiet time is marked no more often than this; evaluating it again finds nothing again."""


class AlarmFollower:
    """Invariant: all alarms before the mark are in the table, once each, and none after it."""

    def __init__(
        self,
        folder: PipelineFolder,
        rules: Sequence[AlarmRule],
        *,
        publish: Callable[[pa.Table], object] | None = None,
        is_sent: Callable[[], bool] = lambda: True,
    ) -> None:
        self._rules = tuple(rules)
        self._publish = publish
        self._is_sent = is_sent
        self._table = StoredTable(folder.tables, ALARMS)
        self._streams = StreamCatalog(folder.log)
        self._gaps = RecordingGaps(folder.log)
        self._known: pa.Table | None = None
        self._watched: Watched | None = None
        self._hour_ns = 0
        self._evaluated_ns = self._table.mark(EVALUATED)
        self._handed_ns = self._table.mark(SENT) or 0
        self._hand_on()  # What a killed process has committed and not sent.

    def followed_ns(self) -> int | None:
        """Up to which instant, without it, events have been evaluated."""
        return self._evaluated_ns

    def follow(self, spark: SparkSession, archive: Archive, span_ns: tuple[int, int]) -> int:
        """Evaluates events created in [from, to); returns how many alarms have begun."""
        from_ns, to_ns = max(span_ns[0], _earliest_ns(archive)), span_ns[1]
        added = 0
        while from_ns < to_ns:
            end_ns = min(to_ns, from_ns + SLICE_NS, from_ns - from_ns % WATCH_NS + WATCH_NS)
            added += self._evaluate(spark, archive, self._watch(from_ns), (from_ns, end_ns))
            from_ns = end_ns
        self._hand_on()
        return added

    def settle(self) -> None:
        """Record at a clean end that the publisher has sent all alarms, so that the next start
        sends none again."""
        sent_ns = self._table.mark(SENT) or 0
        if self._handed_ns > sent_ns and self._is_sent():
            self._table.add_files([], "", {SENT: self._handed_ns})

    def _evaluate(
        self, spark: SparkSession, archive: Archive, seen: Watched, span_ns: tuple[int, int]
    ) -> int:
        from_ns, to_ns = span_ns[0] - 1, span_ns[1] - 1
        found = self._table.empty()
        if seen.variables:
            events = archive.rows(((from_ns - seen.look_back_ns, to_ns),))
            away_ns = self._gaps.spans_ns(from_ns - seen.look_back_ns)
            begun = alarms(in_shares(spark, events), events, seen, (from_ns, to_ns), away_ns)
            found = numbered(begun.toArrow())
        self._commit(found, span_ns[1])
        return int(found.num_rows)

    def _commit(self, found: pa.Table, evaluated_ns: int) -> None:
        marked_ns = self._table.mark(EVALUATED) or 0
        if found.num_rows:
            self._table.append(found, self._marks(evaluated_ns))
        elif evaluated_ns - marked_ns >= MARK_NS:
            self._table.add_files([], "", self._marks(evaluated_ns))
        self._evaluated_ns = evaluated_ns

    def _marks(self, evaluated_ns: int) -> dict[str, int]:
        """Return the marks of a commit; alarms that were handed on before count as sent if the
        publisher has no more."""
        marks = {EVALUATED: evaluated_ns}
        if self._handed_ns and self._is_sent():
            marks[SENT] = self._handed_ns
        return marks

    def _hand_on(self) -> None:
        """Alarms that are committed and were not handed on, in the order of their onsets."""
        committed_ns = self._table.mark(EVALUATED) or 0
        if committed_ns <= self._handed_ns:
            return
        if self._publish is not None:
            rows = self._between(self._handed_ns, committed_ns)
            if rows.num_rows:
                self._publish(rows)
        self._handed_ns = committed_ns

    def _between(self, from_ns: int, to_ns: int) -> pa.Table:
        """Committed alarms with an onset in [from, to)."""
        folder = self._table.folder
        paths = self._table.paths("onset_ns", [(from_ns, to_ns)])
        if not paths:
            return self._table.empty().drop_columns(["day"])
        schema = self._table.empty().drop_columns(["day"]).schema
        files = ds.dataset([str(folder / path) for path in paths], schema, format="parquet")
        onset_ns = pc.field("onset_ns")
        rows = files.to_table(filter=(onset_ns >= from_ns) & (onset_ns < to_ns))
        return rows.sort_by([("onset_ns", "ascending"), ("sequence", "ascending")])

    def _watch(self, from_ns: int) -> Watched:
        """Return the streams that the rules watch from then on, up to the next whole hour."""
        known, hour_ns = self._streams.table(), from_ns - from_ns % WATCH_NS
        if self._watched is None or known is not self._known or hour_ns != self._hour_ns:
            self._known, self._hour_ns = known, hour_ns
            self._watched = watched(self._rules, recently_active(known, hour_ns).to_pylist())
            if self._watched.too_slow:
                log.warning("silence_not_judged too_slow=%s", len(self._watched.too_slow))
        return self._watched


def recently_active(known: pa.Table, from_ns: int) -> pa.Table:
    """Return the streams that may send after an instant; a log has many streams that have ended."""
    return known.filter(pc.greater_equal(known.column("until_ns"), from_ns - LOOK_BACK_NS_MAX - 1))


def numbered(found: pa.Table) -> pa.Table:
    """Alarms in order, no two of one onset with the same sequence."""
    columns = [found.column(name).to_pylist() for name in ("onset_ns", "rule", "variable")]
    keys = list(zip(*columns, strict=True))
    numbers = distinct_sequences(keys)
    sequences = pa.array([numbers[key] for key in keys], pa.int32())
    place = found.schema.get_field_index("sequence")
    changed = found.set_column(place, "sequence", sequences)
    return changed.sort_by([("onset_ns", "ascending"), ("sequence", "ascending")])


def _earliest_ns(archive: Archive) -> int:
    """Return the creation time of the oldest archived event, by the statistics of the files."""
    files = archive.events.files()
    name = "min.created_ns"
    found = pc.min(files.column(name)).as_py() if name in files.column_names else None
    return int(found) if found is not None else (1 << 62)
