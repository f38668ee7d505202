"""Waits for states, not for time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def eventually(condition: Callable[[], str | None], *, within_s: float = 40.0) -> None:
    """Poll until `condition` has no complaint left; fail with the last complaint."""
    deadline = time.monotonic() + within_s
    is_late = False
    while (complaint := condition()) is not None:
        assert not is_late, complaint
        is_late = time.monotonic() >= deadline  # Then it is looked once more.
        time.sleep(0.05)
