"""Clean-up of connections that the application does not close.

At the end of the program they say Bye. A connection without references and with nothing in use is
closed at once; while it has publications or subscriptions, the application may hold these, so it
goes on.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from weakref import WeakSet, finalize

log = logging.getLogger(__name__)


class Link(Protocol):
    """The parts behind a connection; alive as long as its threads are."""

    name: str

    @property
    def is_over(self) -> bool:
        """True if it is closed."""
        ...

    @property
    def is_unused(self) -> bool:
        """True if the application can hold nothing of it."""
        ...

    def close(self) -> None:
        """Detach from the cloud; a second call after an interrupt finishes the work."""
        ...


_open: Final[WeakSet[Link]] = weakref.WeakSet()


def close_at_exit(connection: object, link: Link) -> finalize[[Link], object]:
    """Close the link at the latest when the program ends, or the connection is freed unused."""
    _open.add(link)
    finalizer = weakref.finalize(connection, _forgotten, link)
    finalizer.atexit = False  # `close_all` closes what is left at exit.
    return finalizer


def is_used_here(name: str) -> bool:
    """Return whether this process has a connection of this name."""
    return any(link.name == name and not link.is_over for link in tuple(_open))


def close_all() -> None:
    """Close all connections; the program ends."""
    for link in tuple(_open):
        _close(link)


def _forgotten(link: Link) -> None:
    # Any thread may drop the last reference, also the session's own: this must not block.
    if link.is_unused and not link.is_over:
        threading.Thread(target=_close, args=(link,), name="gs-close", daemon=True).start()


def _close(link: Link) -> None:
    try:
        link.close()
    except Exception:
        log.exception("not_left name=%s", link.name)


atexit.register(close_all)
# A forked child has the connections of its parent without their threads.
os.register_at_fork(after_in_child=_open.clear)
