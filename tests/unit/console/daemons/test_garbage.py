"""A daemon's garbage is collected rarely, but it is collected."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from gridstat.console.daemons.garbage import THRESHOLDS, collect_rarely

if TYPE_CHECKING:
    from collections.abc import Iterator


class Ring:
    """Refers to itself, so that only the collector can end it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def usual_collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_what_a_daemon_holds_at_its_start_is_not_looked_at_again() -> None:
    collect_rarely()
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == THRESHOLDS


def test_rings_that_nobody_holds_are_still_found() -> None:
    collect_rarely()
    lost = weakref.ref(Ring())
    kept = [[] for _ in range(2 * THRESHOLDS[0])]  # type: ignore[var-annotated]
    assert lost() is None
    assert kept
