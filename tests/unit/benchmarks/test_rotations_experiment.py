"""A run of `rotations` whose capture lost frames, or that lost an event, fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from benchmarks.experiments import rotations
from benchmarks.experiments.rotations import ROTATIONS, judged
from lab.attacks.capture import RECORD, Capture, Finding
from lab.ledger import Verdict

if TYPE_CHECKING:
    from pathlib import Path

CLEAN = {
    "rotations": 2,
    "rotations_of_a_channel_without_broker": 1,
    "two_contents": 0,
    "capture_dropped": 0,
}


def missed(monkeypatch: pytest.MonkeyPatch, **facts: int) -> list[str]:
    """Return the missed bounds of a run with these figures."""
    verdict = Verdict(expected=10)
    monkeypatch.setattr(rotations, "_run", lambda *_: (verdict, CLEAN | facts))
    result = ROTATIONS.run({"rotations": 2, "absent": 1}, lambda *_: None)
    return [bound.figure for bound in result.missed]


def test_a_run_that_lost_nothing_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missed(monkeypatch) == []


@pytest.mark.parametrize("figure", ["capture_dropped", "two_contents"])
def test_a_run_whose_capture_proves_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, figure: str
) -> None:
    assert missed(monkeypatch, **{figure: 1}) == [figure]


def test_the_frames_that_captures_lost_are_added_up(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("e0", "e1")]
    for number, file in enumerate(files):
        file.write_bytes(np.array([(1, 7, 3, 10, number)], dtype=RECORD).tobytes())

    class Ended:
        def __init__(self, dropped: int) -> None:
            self._dropped = dropped

        def end(self) -> Finding:
            return Finding(dropped=self._dropped)

    captures: list[Any] = [Ended(2), Ended(3)]
    found = judged(cast("list[Capture]", captures), files)
    assert (found.dropped, found.datagrams, found.two_contents) == (5, 2, 1)
