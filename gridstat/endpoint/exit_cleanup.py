"""Connections that the application does not close: they leave the cloud all the same.

When the program ends they say Bye. One that was forgotten with nothing left of it is closed at
once; as long as it has publications or subscriptions, somebody may hold these, so it goes on.
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
    """What runs behind a connection; it is alive as long as its threads are."""

    name: str

    @property
    def is_over(self) -> bool:
        """Whether it is closed."""
        ...

    @property
    def is_unused(self) -> bool:
        """Whether nothing of it can be held by the application."""
        ...

    def close(self) -> None:
        """Leave the cloud; once more after an interrupt finishes the work."""
        ...


_open: Final[WeakSet[Link]] = weakref.WeakSet()


def promise(connection: object, link: Link) -> finalize[[Link], object]:
    """Whatever becomes of the connection, its link will be closed."""
    _open.add(link)
    finalizer = weakref.finalize(connection, _forgotten, link)
    finalizer.atexit = False  # At the end nothing is held by anybody; see `leave_all`.
    return finalizer


def is_used_here(name: str) -> bool:
    """Whether this process has a connection of this name."""
    return any(link.name == name and not link.is_over for link in tuple(_open))


def leave_all() -> None:
    """The program ends."""
    for link in tuple(_open):
        _leave(link)


def _forgotten(link: Link) -> None:
    # On whichever thread the last reference went, perhaps the session's own: it must not wait.
    if link.is_unused and not link.is_over:
        threading.Thread(target=_leave, args=(link,), name="gs-farewell", daemon=True).start()


def _leave(link: Link) -> None:
    try:
        link.close()
    except Exception:
        log.exception("not_left name=%s", link.name)


atexit.register(leave_all)
# A forked child has the connections of its parent without their threads.
os.register_at_fork(after_in_child=_open.clear)
