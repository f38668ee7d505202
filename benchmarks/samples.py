"""Raw samples of a run as Parquet, one file a cell and run; `gridstat.pipeline` makes the tables.

A file holds only samples that count: the warm-up has been cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.statistics import Int64s

LABELS = ("experiment", "source", "kind")
SAMPLES_SCHEMA = pa.schema(
    [
        *[pa.field(name, pa.string()) for name in LABELS],
        pa.field("run", pa.int32()),
        pa.field("created_ns", pa.int64()),
        pa.field("received_ns", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Label:
    """Experiment, cell and repetition of a sample file."""

    experiment: str
    source: str
    kind: str
    run: int

    @property
    def file_name(self) -> str:
        return f"{self.experiment}-{self.source}-{self.kind}-{self.run}.parquet"


def keep_samples(question: Mapping[str, Any], created_ns: Int64s, latencies_ns: Int64s) -> None:
    """Store the samples beside the summary, if the question asks for it."""
    if folder := question.get("samples"):
        label = Label(**question["label"])
        write_samples(Path(folder), label, created_ns, created_ns + latencies_ns)


def write_samples(folder: Path, label: Label, created_ns: Int64s, received_ns: Int64s) -> Path:
    """Write one file in the folder, which is made if it is missing."""
    count = len(created_ns)
    columns: dict[str, Any] = {
        name: pa.repeat(pa.scalar(getattr(label, name)), count).dictionary_encode()
        for name in LABELS
    }
    columns |= {"run": pa.repeat(pa.scalar(label.run, pa.int32()), count)}
    columns |= {"created_ns": created_ns, "received_ns": received_ns}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / label.file_name
    table = pa.table({name: columns[name] for name in SAMPLES_SCHEMA.names})
    pq.write_table(table.cast(SAMPLES_SCHEMA), path, compression="zstd")
    return path
