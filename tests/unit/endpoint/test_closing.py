"""End of connections: interrupted, forgotten, or with the program."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, cast

import pytest

from gridstat.endpoint import exit_cleanup
from gridstat.endpoint.change_notifier import ChangeNotifier
from gridstat.endpoint.cloud_link import CloudLink
from gridstat.endpoint.connection import Connection
from gridstat.model.errors import LinkDown
from gridstat.net.clock import SystemClock

if TYPE_CHECKING:
    from gridstat.endpoint.session_thread import SessionThread

WITHIN_S = 60.0
UNCLOSED = """
from gridstat.endpoint import exit_cleanup

class Link:
    name, is_over, is_unused = "c1/a", False, False

    def close(self):
        print("left")

held = Link(), set()
exit_cleanup.close_at_exit(held[1], held[0])
"""


class Part:
    """A part of a link; Ctrl-C comes at its first end on request."""

    def __init__(self, *, is_interrupted: bool = False) -> None:
        self.closed = 0
        self._is_interrupted = is_interrupted

    def end(self) -> None:
        """Ended or closed, it is the same."""
        self.close()

    def close(self) -> None:
        self.closed += 1
        if self._is_interrupted:
            self._is_interrupted = False
            raise KeyboardInterrupt


class Asked(Part):
    """A session that is asked to detach, while Ctrl-C comes."""

    def ask(self, *_: object) -> Future[None]:
        future: Future[None] = Future()
        future.set_exception(LinkDown("closed") if self.closed else KeyboardInterrupt())
        return future


def link_of(**parts: Part) -> CloudLink:
    link = CloudLink.__new__(CloudLink)
    names = ("subscriptions", "publications", "deliverer", "_receiver", "_channels", "_flooded")
    for name in names:
        setattr(link, name, parts.get(name) or Part())
    link._session = cast("SessionThread", Asked())
    link.notifier = ChangeNotifier(lambda work: work(), SystemClock())
    link._attached = {"c1/e0"}
    link._closing = threading.Lock()
    link.is_over = False
    return link


@pytest.mark.parametrize("interrupted", ["subscriptions", "deliverer", "_receiver", "_channels"])
def test_an_interrupted_close_closes_all_and_a_second_one_finishes(interrupted: str) -> None:
    link = link_of(**{interrupted: Part(is_interrupted=True)})
    grid = Connection(link)
    with pytest.raises(KeyboardInterrupt):
        grid.close()
    parts = (link._session, link.deliverer, link._receiver, link._channels)
    assert [cast("Part", each).closed for each in parts] == [1, 1, 1, 1]
    grid.close()
    assert link.is_over
    assert [cast("Part", each).closed for each in parts] == [2, 2, 2, 2]
    grid.close()
    assert [cast("Part", each).closed for each in parts] == [2, 2, 2, 2]


def test_a_callback_that_closes_what_is_being_closed_does_not_wait_for_itself() -> None:
    link = link_of()
    inner: list[bool] = []

    class Closing(Part):
        def close(self) -> None:
            link.close()
            inner.append(link.is_over)

    link.deliverer = Closing()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        link.close()
    assert inner == [False]


class Link:
    """Notes that it was closed, and where."""

    name = "c1/a"

    def __init__(self, *, is_unused: bool) -> None:
        self.is_unused = is_unused
        self.is_over = False
        self.closed_by: list[str] = []
        self.is_closed = threading.Event()

    def close(self) -> None:
        self.is_over = True
        self.closed_by.append(threading.current_thread().name)
        self.is_closed.set()


class Forgotten:
    """A connection without a reference."""


def test_a_forgotten_connection_is_closed_without_making_anybody_wait() -> None:
    link = Link(is_unused=True)
    connection = Forgotten()
    exit_cleanup.close_at_exit(connection, link)
    assert exit_cleanup.is_used_here("c1/a")
    del connection
    gc.collect()
    assert link.is_closed.wait(WITHIN_S)
    assert link.closed_by == ["gs-close"]
    assert not exit_cleanup.is_used_here("c1/a")


def test_a_forgotten_connection_goes_on_as_long_as_it_has_subscriptions() -> None:
    link = Link(is_unused=False)
    exit_cleanup.close_at_exit(Forgotten(), link)
    gc.collect()
    assert exit_cleanup.is_used_here("c1/a")
    assert not any(each.name == "gs-close" for each in threading.enumerate())
    link.close()


def test_a_program_that_ends_without_closing_leaves_the_cloud() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", UNCLOSED], capture_output=True, text=True, timeout=60.0, check=True
    )
    assert ran.stdout == "left\n"
