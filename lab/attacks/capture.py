"""Capture of every datagram that passes a namespace, and the search for a counter used twice.

A counter that seals two different datagrams with one key gives both of them away. So no channel may
send two contents under one epoch and counter, whatever is killed and started again meanwhile.
A process begins to count at a random number, so that a repeated key hardly shows as a repeated
counter. It shows as a counter that begins anew while the epoch stays.
"""

from __future__ import annotations

import hashlib
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec
import numpy as np

from lab.attacks.attacker import Ear
from lab.attacks.forgery import SEALED, TAG_BYTES, heading_of
from lab.errors import LabError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lab.netns import Namespace

RECORD: Final = np.dtype(
    [("channel", "<u4"), ("epoch", "u1"), ("version", "u1"), ("counter", "<u8"), ("digest", "<u8")]
)
DIGEST_BYTES: Final = 8
SAME_PROCESS_MAX: Final = 2**24
"""Largest step of a counter from one captured datagram to the next of the same process."""
POLL_S: Final = 0.2
ENDING_S_MAX: Final = 60.0


class Captured(msgspec.Struct, frozen=True):
    """Counts of one capture; `dropped` are frames that it was too slow for."""

    datagrams: int
    dropped: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Verdict on a capture."""

    datagrams: int = 0
    channels: int = 0
    keys: int = 0
    """Pairs of a channel and an epoch."""
    plain: int = 0
    """Datagrams that were not sealed."""
    repeated: int = 0
    """Datagrams that passed twice with the same content, as on the loopback device."""
    two_contents: int = 0
    """Counters of a channel and an epoch that had two contents."""
    dropped: int = 0
    starts: int = 0
    """Places where a channel began to count anew, as a sender does that was started again."""
    starts_in_epoch: int = 0
    """Those of them at which the epoch stayed: two processes have had the same key."""

    def __add__(self, other: Finding) -> Finding:
        return Finding(*(getattr(self, name) + getattr(other, name) for name in Finding.__slots__))


class Capture:
    """The capture's process in a namespace, from the beginning of the `with` block to `end`."""

    def __init__(self, namespace: Namespace, file: Path) -> None:
        self._file = file
        self._process = namespace.start(
            [sys.executable, "-m", "lab.attacks.capture", file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise LabError("the capture did not begin")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait(ENDING_S_MAX)
        self._process.stdout.close()

    def end(self) -> Finding:
        """End the capture and judge what it has seen."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        captured = msgspec.json.decode(self._process.stdout.read(), type=Captured)
        return judge(np.fromfile(self._file, dtype=RECORD), dropped=captured.dropped)


def judge(records: npt.NDArray[np.void], *, dropped: int = 0) -> Finding:
    """Look for a counter of a channel and an epoch that had two contents."""
    sealed = np.sort(records[records["version"] == SEALED], order=["channel", "epoch", "counter"])
    keys = np.unique(sealed[["channel", "epoch"]])
    before, after = sealed[:-1], sealed[1:]
    is_same = np.ones(len(after), dtype=bool)
    for name in ("channel", "epoch", "counter"):
        is_same &= before[name] == after[name]
    is_other = is_same & (before["digest"] != after["digest"])
    starts, starts_in_epoch = _starts_in(records[records["version"] == SEALED])
    return Finding(
        datagrams=len(records),
        channels=len(np.unique(keys["channel"])),
        keys=len(keys),
        plain=len(records) - len(sealed),
        repeated=int(is_same.sum() - is_other.sum()),
        two_contents=int(is_other.sum()),
        dropped=dropped,
        starts=starts,
        starts_in_epoch=starts_in_epoch,
    )


def _starts_in(sealed: npt.NDArray[np.void]) -> tuple[int, int]:
    """Count where channels begin to count anew, in the order of the capture, and in one epoch."""
    starts = starts_in_epoch = 0
    for channel_id in np.unique(sealed["channel"]):
        of = sealed[sealed["channel"] == channel_id]
        steps = np.diff(of["counter"].astype(np.int64))  # Counters begin below 2^48.
        is_start = np.abs(steps) > SAME_PROCESS_MAX
        starts += int(is_start.sum())
        starts_in_epoch += int((is_start & (of["epoch"][1:] == of["epoch"][:-1])).sum())
    return starts, starts_in_epoch


def rotations_in(records: npt.NDArray[np.void]) -> dict[int, int]:
    """Return how often the epoch of each channel changed, in the order of the capture."""
    sealed = records[records["version"] == SEALED]
    return {
        int(channel_id): int(np.count_nonzero(np.diff(sealed["epoch"][of].astype(np.int16))))
        for channel_id in np.unique(sealed["channel"])
        if (of := sealed["channel"] == channel_id).any()
    }


def main(file: Path) -> None:
    """Write a record of every datagram until the input closes."""
    ear, count = Ear(), 0
    with file.open("wb") as out:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not select.select([sys.stdin], [], [], 0)[0]:
            for seen in ear.listen(POLL_S):
                heading = heading_of(seen.payload)
                if heading is None:
                    continue
                end = heading.length + (TAG_BYTES if heading.version == SEALED else 0)
                found = hashlib.blake2b(seen.payload[:end], digest_size=DIGEST_BYTES).digest()
                fields = (heading.channel_id, heading.epoch, heading.version, heading.counter)
                row = (*fields, int.from_bytes(found, "little"))
                out.write(np.array(row, dtype=RECORD).tobytes())
                count += 1
    sys.stdout.buffer.write(msgspec.json.encode(Captured(count, ear.dropped())))
    sys.stdout.flush()
    ear.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
