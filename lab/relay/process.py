"""Control of the relay in a namespace: wires, faults, cuts, counters."""

from __future__ import annotations

import contextlib
import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import msgspec

from lab.errors import LabError
from lab.relay.law import Direction, LinkFaults
from lab.relay.program import relay_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ENDING_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class WireCounters:
    """Counters of one direction; `in_ + duplicated = out + lost + cut + full + unsent + waiting`.

    `kernel_dropped` never reached the relay. How late frames left is measured against their due
    time, in steps of a quarter of a doubling.
    """

    in_: int
    out: int
    lost: int
    cut: int
    full: int
    unsent: int
    kernel_dropped: int
    duplicated: int
    corrupted: int
    reordered: int
    waiting: int
    late_us_p50: float
    late_us_p99: float

    @property
    def is_reconciled(self) -> bool:
        gone = self.out + self.lost + self.cut + self.full + self.unsent + self.waiting
        return self.in_ + self.duplicated == gone


class Relay:
    """Relay that carries frames between pairs of devices while the `with` block lasts.

    `prefix` is the command that enters the namespace. The program ends with its input, so it
    never outlives this process.
    """

    def __init__(self, prefix: Sequence[str] = (), *, binary: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [*prefix, str(binary or relay_path())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_wire(self, name: str, near_device: str, far_device: str) -> None:
        self._order("wire", name, near_device, far_device)

    def set_faults(
        self, wire: str, faults: LinkFaults, *, direction: Direction = Direction.BOTH
    ) -> None:
        """Replace all settings; the fates begin again with the seed's first."""
        self._order("set", wire, direction.value, *faults.arguments())

    def clear(self, wire: str, *, direction: Direction = Direction.BOTH) -> None:
        self.set_faults(wire, LinkFaults(), direction=direction)

    def cut(self, wire: str, *, direction: Direction = Direction.BOTH) -> None:
        """Let no frame pass, and drop the frames in transit."""
        self._order("cut", wire, direction.value)

    def heal(self, wire: str, *, direction: Direction = Direction.BOTH) -> None:
        self._order("heal", wire, direction.value)

    def counters(self, wire: str) -> dict[Direction, WireCounters]:
        report: dict[str, dict[str, float]] = json.loads(self._order("counters", wire))
        return {
            Direction(name): msgspec.convert(
                {_field(key): value for key, value in counted.items()}, WireCounters
            )
            for name, counted in report.items()
        }

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(ENDING_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _order(self, *command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(" ".join(command) + "\n")
        answer = self._process.stdout.readline().strip()
        if not answer or answer.startswith("error"):
            raise LabError(f"relay: {' '.join(command)}: {answer.removeprefix('error ') or 'gone'}")
        return answer


def _field(key: str) -> str:
    return "in_" if key == "in" else key
