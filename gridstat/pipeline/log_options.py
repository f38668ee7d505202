"""Options of the data source, checked once before anything is read.

| Option | Default | Meaning |
|---|---|---|
| path | | the recorder's folder; what `load` is given |
| kind | events | which records: one of `gridstat.record.record_kinds` |
| names | true | whether events have a column with their variable's name |
| from | | `read` only: no rows before this instant, by the kind's own time |
| to | | `read` only: no rows from this instant on |
| variables | | only rows of these variables: names or patterns with commas between them |
| rowsPerPartition | 500,000 | at most so many rows in a task |
| rowsPerBatch | 0 | `readStream` only: at most so many rows in a batch, 0 for no bound |
| startingRecord | oldest | `readStream` only: where a new one begins: oldest, newest, or a number |
| shares | 1 | of `gridstat-slices` only: how many tasks share the streams at most |
| rowsPerShare | 20,000 | of `gridstat-slices` only: fewer rows are not worth another share |

The bounds of a batch and of a task are for whole frames, so one below the size of a frame (65,536)
is not exact; `from`, `to` and `variables` are exact for every row. An option that a reader would
not obey is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from gridstat.model.errors import ConfigurationError, UnknownName
from gridstat.pipeline.event_columns import EVENT_SCHEMA
from gridstat.pipeline.file_rows import ROWS_PER_TASK_MIN, SHARES_MAX
from gridstat.pipeline.row_choice import read_choice
from gridstat.record.record_kinds import EVENTS, KINDS, kind_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.pipeline.row_choice import RowChoice
    from gridstat.record.record_kinds import RecordKind

OLDEST: Final = "oldest"
NEWEST: Final = "newest"
VARIABLE: Final = "variable"
ROWS_PER_PARTITION: Final = 500_000


class Reading(Enum):
    """Mode of reading a log, with its name for users; each mode obeys some of the options."""

    BATCH = "`read`"
    STREAM = "`readStream`"
    SLICES = "`gridstat-slices`"


_BATCH, _STREAM, _SLICES = Reading.BATCH, Reading.STREAM, Reading.SLICES
_OBEYED: Final = {
    "path": (_BATCH, _STREAM, _SLICES),
    "kind": (_BATCH, _STREAM, _SLICES),
    "names": (_BATCH, _STREAM),
    "from": (_BATCH,),
    "to": (_BATCH,),
    "variables": (_BATCH, _STREAM),
    "rowsPerPartition": (_BATCH, _STREAM, _SLICES),
    "rowsPerBatch": (_STREAM, _SLICES),
    "startingRecord": (_STREAM, _SLICES),
    "shares": (_SLICES,),
    "rowsPerShare": (_SLICES,),
}
"""Every option, and the modes of reading that obey it."""
KNOWN: Final = tuple(_OBEYED)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Checked options of a reader; small, since Spark sends them to every task."""

    folder: Path
    kind_name: str
    has_names: bool
    rows_per_batch: int
    rows_per_partition: int
    start: str
    shares: int
    rows_per_share: int
    rows: RowChoice

    @property
    def kind(self) -> RecordKind:
        return KINDS[self.kind_name]

    @property
    def is_of_events(self) -> bool:
        return self.kind_name == EVENTS.name

    @property
    def schema(self) -> pa.Schema:
        """Columns that Spark sees unless a schema is given."""
        if not self.is_of_events:
            return self.kind.schema
        if self.has_names:
            return EVENT_SCHEMA
        return EVENT_SCHEMA.remove(EVENT_SCHEMA.get_field_index("variable"))


def read_options(options: Mapping[str, str], reading: Reading | None = None) -> LogOptions:
    """The options as values, all of them obeyed by this reading; raises with the option's name.

    Spark asks for the schema before it says how it will read: until then no reading is given.
    """
    known = {name.lower(): name for name in KNOWN}
    for name in options:
        if name.lower() not in known:
            raise UnknownName(f"no option {name!r}", hint=f"one of {', '.join(KNOWN[1:])}")
        if reading is not None:
            _check_obeyed(known[name.lower()], reading)
    kind = kind_named(options.get("kind", EVENTS.name))
    rows = read_choice(options)
    if rows.variables and kind is not EVENTS and VARIABLE not in kind.schema.names:
        with_variables = [one.name for one in KINDS.values() if VARIABLE in one.schema.names]
        raise ConfigurationError(
            f"variables: {kind.name} are not of variables",
            hint=f"leave it out, or read {EVENTS.name}, {', '.join(with_variables)}",
        )
    start = options.get("startingRecord", OLDEST)
    if start not in {OLDEST, NEWEST} and not start.isdecimal():
        raise ConfigurationError(f"startingRecord {start!r}", hint="oldest, newest, or a number")
    if "names" in {name.lower() for name in options} and kind is not EVENTS:
        raise ConfigurationError(
            f"names: {kind.name} have no column of names to leave out",
            hint=f"leave it out, or read {EVENTS.name}",
        )
    names = options.get("names", "true").lower()
    if names not in {"true", "false"}:
        raise ConfigurationError(f"names {names!r}", hint="true or false")
    shares = _whole(options, "shares", 1)
    if not 1 <= shares <= SHARES_MAX:
        raise ConfigurationError(f"shares {shares}", hint=f"from 1 to {SHARES_MAX:,}")
    return LogOptions(
        folder=_folder(options.get("path", "")),
        kind_name=kind.name,
        has_names=names == "true",
        rows_per_batch=_whole(options, "rowsPerBatch", 0),
        rows_per_partition=_whole(options, "rowsPerPartition", ROWS_PER_PARTITION) or 1 << 62,
        start=start,
        shares=shares,
        rows_per_share=max(1, _whole(options, "rowsPerShare", ROWS_PER_TASK_MIN)),
        rows=rows,
    )


def chosen_columns(options: LogOptions, asked: pa.Schema) -> pa.Schema:
    """Return the columns of a schema that a user gave with `.schema(...)`: known ones, in any
    order."""
    ours = options.schema
    chosen = []
    for field in asked:
        if field.name not in ours.names:
            raise UnknownName(
                f"{options.kind_name} has no column {field.name!r}",
                hint=f"one of {', '.join(ours.names)}",
            )
        own = ours.field(field.name)
        if field.type != own.type:
            raise ConfigurationError(
                f"column {field.name!r} is {own.type}, not {field.type}",
                hint="give it the type it has, and cast it afterwards",
            )
        if own.nullable and not field.nullable:
            raise ConfigurationError(f"column {field.name!r} may be null", hint="say so")
        chosen.append(own.with_nullable(field.nullable))
    return pa.schema(chosen)


def _check_obeyed(option: str, reading: Reading) -> None:
    """Raise an error if this mode of reading would not obey the option."""
    obeying = _OBEYED[option]
    if reading in obeying:
        return
    hint = f"leave it out; it is an option of {' and '.join(one.value for one in obeying)}"
    if reading is Reading.STREAM and option in {"from", "to"}:
        hint = "begin a stream by startingRecord, and choose its rows by time with .filter(...)"
    raise ConfigurationError(f"{reading.value} has no option {option!r}", hint=hint)


def _folder(path: str) -> Path:
    if not path:
        raise ConfigurationError("no folder", hint='say where the log is: .load("FOLDER")')
    folder = Path(path.removeprefix("file://"))
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is no folder", hint="give a recorder's folder")
    if any(folder.iterdir()) and not any((folder / kind).is_dir() for kind in KINDS):
        raise ConfigurationError(
            f"{folder} holds no log", hint=f"a recorder's folder has {EVENTS.name}/ in it"
        )
    return folder


def _whole(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default)).replace("_", "")
    if not text.isdecimal():
        raise ConfigurationError(f"{name} {text!r}", hint="a whole number")
    return int(text)
