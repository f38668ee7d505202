"""Our own errors out of Spark's: what failed in a task, without the traces around it."""

from __future__ import annotations

import re
from typing import Final

from gridstat.model import errors
from gridstat.model.errors import GridStatError, StorageFailed

_OWN: Final = re.compile(
    r"^gridstat\.model\.errors\.\w+\.(\w+): (.*?) \(\d{4}\)(?:\nhint: ([^\n]*))?",
    re.MULTILINE | re.DOTALL,
)


_DISK: Final = re.compile(
    r"(No space left on device|File too large|Disk quota exceeded|Read-only file system)"
)


def plain_error(error: BaseException) -> GridStatError | None:
    """Return the cause on which a user can act, an error of gridstat or a full disk; else None."""
    own = own_error(error)
    found = _DISK.search(str(error))
    if own is None and found is not None:
        return StorageFailed(found[1], hint="make room and start again; nothing is lost")
    return own


def own_error(error: BaseException) -> GridStatError | None:
    """Return the last error of gridstat that Spark's exception contains, if any."""
    if isinstance(error, GridStatError):
        return error
    found = _OWN.findall(str(error))
    if not found:
        return None
    name, message, hint = found[-1]
    kind = getattr(errors, name, GridStatError)
    own = kind(message, hint=hint)
    assert isinstance(own, GridStatError)
    return own
