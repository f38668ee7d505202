"""Virtual time: one heap of future actions, ties broken by the seed, and a trace of the run.

Neither this module nor a node reads a clock or draws a number except from `World.random`, so a seed
replays to the last event.
"""

from __future__ import annotations

from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
WALL_NS: Final = 1_800_000_000 * NS_PER_S
"""Time of the clocks on the wall when virtual time begins."""
STEPS_MAX: Final = 20_000
"""Most steps of a seed; no seed of one cloud needs half of them, so more mean a loop."""
NOT_COPIED: Final = frozenset({"random", "draw", "_trace", "add_to_trace"})
_HEAD: Final = Struct("<QQI")


class PropertyBroken(Exception):  # noqa: N818 — it is a finding, not an error of the simulator.
    """Failure of a property that must always hold; `rule` names it, the rest says where."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


class World:
    """Clock and agenda; `now_ns` only grows, and the seed orders actions of the same time."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self.random = Random()
        self.now_ns = 0
        self.begin(seed, is_traced=is_traced)
        self.heap: list[tuple[int, float, Callable[..., None], tuple[Any, ...]]] = []
        self.draw = self.random.random

    def begin(self, seed: int, *, is_traced: bool) -> None:
        """Begin a seed: draw from it, and count and trace from now on."""
        self.random.seed(seed)
        self.steps = 0
        self.steps_max = STEPS_MAX
        self.messages = 0
        self.is_traced = is_traced
        self.trace_lines: list[str] = []
        self._trace = blake2b(digest_size=8)
        self.add_to_trace = self._trace.update

    def __getstate__(self) -> dict[str, object]:
        """Leave out the random state and the trace, since a copy begins its own."""
        return {name: held for name, held in vars(self).items() if name not in NOT_COPIED}

    def __setstate__(self, held: dict[str, object]) -> None:
        vars(self).update(held)
        self.random = Random(0)
        self.draw = self.random.random
        self._trace = blake2b(digest_size=8)
        self.add_to_trace = self._trace.update

    def after(self, delay_ns: int, action: Callable[..., None], *arguments: object) -> None:
        """Call `action(*arguments)` so much later."""
        heappush(self.heap, (self.now_ns + delay_ns, self.draw(), action, arguments))

    def at(self, at_ns: int, action: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401
        heappush(self.heap, (at_ns, self.draw(), action, arguments))

    def run_until(self, end_ns: int) -> None:
        """Run every action that is due by then."""
        heap = self.heap
        while heap and heap[0][0] <= end_ns:
            self.now_ns, _, action, arguments = heappop(heap)
            action(*arguments)
            self.steps += 1
            if self.steps > self.steps_max:
                raise PropertyBroken("talk ends", f"{self.steps} steps and no rest")
        self.now_ns = end_ns

    def between(self, low: int, high: int) -> int:
        """Return a uniform random number of this range; faster than `randint`."""
        return low + int(self.draw() * (high - low + 1))

    def random_bytes(self, count: int) -> bytes:
        """Return bytes of the seed, in place of secret ones."""
        return self.random.randbytes(count)

    def chance(self, share: float) -> bool:
        return self.draw() < share

    # The trace.

    def mark(self, number: int, body: bytes = b"") -> None:
        """Add bytes, their time and their receiver to the hash of the trace.

        The length stands before them, so that no two traces are the same bytes by chance.
        """
        self.add_to_trace(_HEAD.pack(self.now_ns, number, len(body)) + body)

    def tell(self, who: str, what: str) -> None:
        """Add a line to the readable trace; only if `is_traced`, since formatting is slow."""
        self.trace_lines.append(f"{self.now_ns / NS_PER_S:10.6f}  {who:<22} {what}")

    def digest(self) -> str:
        """Return the hash of all marks; equal for equal seeds, whatever Python's own hashes."""
        return self._trace.hexdigest()
