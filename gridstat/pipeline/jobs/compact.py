"""Compact: merge small files into few large ones, remove old files, and release archived log.

The job may run beside the ingest job, and needs no Spark.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import Misuse, StorageFailed
from gridstat.model.plausibility import TimeBounds
from gridstat.pipeline.archive import Archive
from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.rollup_windows import Rollups
from gridstat.pipeline.schemas import ROLLUP_LIVE, TABLES
from gridstat.record.archive_mark import note_archived
from gridstat.record.record_kinds import EVENTS

if TYPE_CHECKING:
    from gridstat.pipeline.pipeline_folder import PipelineFolder
    from gridstat.pipeline.schemas import TableSchema

HOURS_KEPT_MIN: Final = 1


@dataclass(frozen=True, slots=True)
class CompactSettings:
    """Settings of the job."""

    bytes_target: int = 128 * 1024 * 1024
    hours_kept: int = 24
    """Hours for which older versions of a table can be read; a reader of an older one may miss
    files.

    One at least: files that a running ingest has moved into a table and not yet committed look
    like those that a killed one has left.
    """

    releases_log: bool = True
    """True if archived segments of the log may be removed; False if other readers need them."""

    def __post_init__(self) -> None:
        if self.hours_kept < HOURS_KEPT_MIN:
            raise Misuse(
                f"files of tables cannot be kept for {self.hours_kept} hours only",
                hint=f"keep them for {HOURS_KEPT_MIN} hour at least; an ingest may be at work",
            )


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of compacting one table."""

    table: str
    files_before: int
    files_after: int
    removed: int
    """Files on the disk that no kept version needs."""


def compact(folder: PipelineFolder, settings: CompactSettings | None = None) -> list[Compacted]:
    """Compact every table; then release the part of the log that the tables contain.

    A table that cannot be compacted keeps its files; its error is raised after all other tables.
    """
    wanted = CompactSettings() if settings is None else settings
    found = [table for table in TABLES.values() if (folder.tables / table.name).is_dir()]
    done: list[Compacted] = []
    failures: list[StorageFailed] = []
    for table in found:
        try:
            done.append(compact_table(folder, table, wanted))
        except StorageFailed as failure:
            failures.append(failure)
    if found and wanted.releases_log:
        release(folder)  # Small files keep nobody from letting go of the log.
    if failures:
        raise failures[0]
    return done


def compact_table(
    folder: PipelineFolder, schema: TableSchema, settings: CompactSettings
) -> Compacted:
    table = StoredTable(folder.tables, schema)
    before = table.files().num_rows
    is_live = schema is ROLLUP_LIVE
    if not is_live:
        table.compact(settings.bytes_target)
    removed = table.vacuum(schema.hours_kept if is_live else settings.hours_kept)
    table.fold()
    return Compacted(schema.name, before, table.files().num_rows, len(removed))


def release(folder: PipelineFolder) -> int:
    """Write for the log the number before which all records are in the tables."""
    taken = releasable(folder)
    if taken:
        note_archived(folder.log, EVENTS, taken)
    return taken


def releasable(folder: PipelineFolder) -> int:
    """The record before which everything is in the tables, and safe on the disk."""
    archive = Archive(folder, TimeBounds())
    archive.check_log()
    taken = min(archive.taken, Rollups.of(folder, archive).taken())
    os.sync()  # Tables are written without waiting for the disk; the log is not let go before.
    return taken
