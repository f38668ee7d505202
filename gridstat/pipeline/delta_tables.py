"""The pipeline's tables: Delta by `deltalake` alone, one commit a change.

A commit may carry marks, numbers by name that record how far the table is. The marks are in the
same commit as the rows, so a process that is killed and restarts sees what was done and does it
only once.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import ArrayType, PrimitiveType

from gridstat.model.errors import StorageFailed
from gridstat.pipeline.data_files import add_action
from gridstat.pipeline.schemas import column_names, columns_of
from gridstat.pipeline.time_spans import touching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from deltalake.transaction import AddAction, RemoveAction
    from pyspark.sql import DataFrame, SparkSession

    from gridstat.pipeline.data_files import DataFile
    from gridstat.pipeline.schemas import TableSchema

ATTEMPTS_MAX: Final = 5
VERSION_KEY: Final = "gridstat.version"
_TYPES: Final = {
    "bigint": "long",
    "int": "integer",
    "smallint": "short",
    "double": "double",
    "string": "string",
    "boolean": "boolean",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
}
"""Spark's names of types, and Delta's."""

Done = TypeVar("Done")


class StoredTable:
    """One table. Invariant: what this object knows is some committed version of the table."""

    def __init__(self, tables: Path, schema: TableSchema) -> None:
        self.schema = schema
        self.folder = tables / schema.name
        with _plain_errors(self.folder):
            self._delta = self._open()
        self._check_version()

    def mark(self, name: str) -> int | None:
        """Return the number that the last commit with this mark recorded; None if there is no such
        commit."""
        return self._delta.transaction_version(name)

    def refresh(self) -> None:
        """Load the commits of other processes.

        Called before every commit: a version that was removed cannot be the base of one.
        """
        with _plain_errors(self.folder):
            self._delta.update_incremental()

    def add_files(
        self, files: Iterable[DataFile], name: str, marks: Mapping[str, int] | None = None
    ) -> None:
        """Takes files over, in one commit with the marks; without files, only marks change."""
        self.refresh()
        with _plain_errors(self.folder):
            actions: list[AddAction | RemoveAction] = [
                add_action(file, self.folder, f"{name}-{index:05d}.parquet", self.schema.partitions)
                for index, file in enumerate(files)
            ]
            self._delta.create_write_transaction(
                actions,
                "append",
                delta_schema(self.schema),
                partition_by=list(self.schema.partitions),
                commit_properties=_marked(marks),
            )
        self.refresh()

    def append(self, rows: pa.Table, marks: Mapping[str, int] | None = None) -> None:
        self.refresh()
        with _plain_errors(self.folder):
            write_deltalake(
                self._delta, self._fitted(rows), mode="append", commit_properties=_marked(marks)
            )

    def overwrite(self, rows: pa.Table, marks: Mapping[str, int] | None = None) -> None:
        """Replace all rows of the table by these."""
        self.refresh()
        with _plain_errors(self.folder):
            write_deltalake(
                self._delta, self._fitted(rows), mode="overwrite", commit_properties=_marked(marks)
            )

    def upsert(self, rows: pa.Table, order: str, marks: Mapping[str, int] | None = None) -> None:
        """Replace rows by the table's key; `order` is a column of the key by which files are
        selected."""
        if not rows.num_rows:
            self.add_files([], "", marks)
            return
        self.refresh()
        source = self._fitted(rows)
        extent = pc.min_max(source.column(order)).as_py()
        same = [f"kept.{name} = fresh.{name}" for name in {*self.schema.key, *self._days()}]
        same += [
            f"kept.{order} >= {_literal(extent['min'])}",
            f"kept.{order} <= {_literal(extent['max'])}",
        ]
        self._merge(source, " AND ".join(same), marks)
        self.refresh()

    def files(self) -> pa.Table:
        """Every file with its statistics; columns `path`, `num_records`, `min.…` and `max.…`."""
        return pa.table(self._delta.get_add_actions(flatten=True))

    def rows(self) -> int:
        """Number of rows, by the statistics of the files."""
        return int(pc.sum(self.files().column("num_records")).as_py() or 0)

    def highest(self, column: str) -> Any:  # noqa: ANN401 - Whatever the column holds.
        """The largest value of a column, by the statistics; None without rows."""
        files = self.files()
        name = f"max.{column}"
        return pc.max(files.column(name)).as_py() if name in files.column_names else None

    def paths(self, column: str, spans: Iterable[tuple[int | None, int | None]]) -> list[str]:
        """Files that may hold a row whose `column`, a whole number, is within one of the spans."""
        found: list[str] = self.files_within(column, spans).column("path").to_pylist()
        return found

    def files_within(self, column: str, spans: Iterable[tuple[int | None, int | None]]) -> pa.Table:
        """The same with their statistics; a file without any may hold anything."""
        files = self.files()
        if not files.num_rows:
            return files
        first, last = (files.column(f"{end}.{column}") for end in ("min", "max"))
        is_known = pc.and_(pc.is_valid(first), pc.is_valid(last)).to_numpy()
        first, last = (pc.fill_null(end, 0).to_numpy() for end in (first, last))
        wanted = ~is_known | touching(first, last, spans)
        return files.filter(pa.array(wanted))

    def read(self, spark: SparkSession, paths: list[str] | None = None) -> DataFrame:
        """All rows, or those of some files, as Spark sees them."""
        chosen = self.files().column("path").to_pylist() if paths is None else paths
        reader = spark.read.schema(self.schema.columns).option("basePath", str(self.folder))
        if not chosen:
            return spark.createDataFrame([], self.schema.columns)
        rows = reader.parquet(*(str(self.folder / path) for path in chosen))
        return rows.select(*column_names(self.schema))

    def empty(self) -> pa.Table:
        """No rows, with the table's columns."""
        return pa.schema(self._delta.schema().to_arrow()).empty_table()

    def compact(self, bytes_target: int) -> Mapping[str, Any]:
        """Makes few large files of many small ones; rows and marks stay."""
        figures: Mapping[str, Any] = self._retried(
            lambda: self._delta.optimize.compact(target_size=bytes_target)
        )
        self.refresh()
        return figures

    def vacuum(self, hours_kept: int) -> list[str]:
        """Removes files that no version of the last hours has, those of killed writers too."""
        with _plain_errors(self.folder):
            return self._delta.vacuum(
                retention_hours=hours_kept,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
            )

    def fold(self) -> None:
        """Write a new list of files, and remove entries of the log that are old enough."""
        with _plain_errors(self.folder):
            self._delta.create_checkpoint()
            self._delta.cleanup_metadata()

    def _open(self) -> DeltaTable:
        try:
            return DeltaTable(str(self.folder))
        except TableNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True)
            return DeltaTable.create(
                str(self.folder),
                delta_schema(self.schema),
                mode="ignore",
                partition_by=list(self.schema.partitions),
                configuration=_properties(self.schema),
                raise_if_key_not_exists=False,
            )

    def _check_version(self) -> None:
        version = int(self._delta.metadata().configuration.get(VERSION_KEY) or 0)
        stored = {field.name: str(field.type) for field in self._delta.schema().fields}
        ours = {field.name: str(field.type) for field in delta_schema(self.schema).fields}
        if version <= self.schema.version and stored == ours:
            return
        odd = sorted(name for name in {*stored, *ours} if stored.get(name) != ours.get(name))
        raise StorageFailed(
            f"{self.folder} is of version {version}, and this release knows {self.schema.version}"
            + (f"; columns that differ: {', '.join(odd)}" if odd else ""),
            hint="use the release that wrote it, or a newer one, or give the pipeline a new folder",
        )

    def _fitted(self, rows: pa.Table) -> pa.Table:
        schema = pa.schema(self._delta.schema().to_arrow())
        return rows.select(schema.names).cast(schema)

    def _merge(self, source: pa.Table, same: str, marks: Mapping[str, int] | None) -> None:
        def merge() -> object:
            merged = self._delta.merge(
                source,
                same,
                source_alias="fresh",
                target_alias="kept",
                commit_properties=_marked(marks),
            )
            return merged.when_matched_update_all().when_not_matched_insert_all().execute()

        self._retried(merge)

    def _retried(self, change: Callable[[], Done]) -> Done:
        """Try again when another process has replaced files that the change has read."""
        with _plain_errors(self.folder):
            for _ in range(ATTEMPTS_MAX - 1):
                with suppress(CommitFailedError):
                    return change()
                self.refresh()
            return change()

    def _days(self) -> list[str]:
        return [name for name in self.schema.partitions if name == "day"]


def delta_schema(table: TableSchema) -> Schema:
    return Schema([Field(name, _delta_type(kind)) for name, kind in columns_of(table)])


def _properties(table: TableSchema) -> dict[str, str | None]:
    """Return the table's properties; by Delta's defaults its log would keep entries for a month, at
    two a second."""
    kept = f"interval {table.hours_kept} hours"
    return {
        VERSION_KEY: str(table.version),
        "delta.logRetentionDuration": kept,
        "delta.deletedFileRetentionDuration": kept,
        "delta.enableExpiredLogCleanup": "true",
    }


def _delta_type(kind: str) -> PrimitiveType | ArrayType:
    if kind.startswith("array<"):
        return ArrayType(_delta_type(kind.removeprefix("array<").removesuffix(">")))
    return PrimitiveType(_TYPES[kind])


def _marked(marks: Mapping[str, int] | None) -> CommitProperties:
    found = [Transaction(name, value) for name, value in (marks or {}).items()]
    return CommitProperties(app_transactions=found)


def _literal(value: Any) -> str:  # noqa: ANN401 - Whatever the column holds.
    return str(value) if isinstance(value, int) else f"'{value.isoformat()}'"


@contextmanager
def _plain_errors(folder: Path) -> Iterator[None]:
    """Raise an error with a remedy for a failing disk, and for a table that another process
    holds."""
    try:
        yield
    except CommitFailedError as error:
        raise StorageFailed(
            f"{folder} was changed by another {ATTEMPTS_MAX} times while it was worked on: {error}",
            hint="try again when there is less to do; nothing is lost",
        ) from error
    except (DeltaError, OSError) as error:
        raise StorageFailed(
            f"{folder}: {error}", hint="look at the disk's space and rights; nothing is lost"
        ) from error
