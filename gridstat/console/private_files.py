"""Files that only the user who runs gridstat may read: keys, journals, logs and tables."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

UMASK: Final = 0o077


@contextmanager
def private_files() -> Iterator[None]:
    """Make every new file of this process and of its children private, whatever the caller's umask.

    Modes of files that exist already stay as they are.
    """
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)
