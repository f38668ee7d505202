"""The session's thread: every question is answered, and a crowd of them wakes it once."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

import pytest

from gridstat.endpoint.session_events import Answered
from gridstat.endpoint.session_thread import SessionThread
from gridstat.model.errors import LinkDown
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.endpoint_messages import (
    Detach,
    DoneOutcome,
    FindVariables,
    Publish,
    Subscribe,
    Unpublish,
    Unsubscribe,
)
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.tls import Credentials
from tests.unit.endpoint.scripted_cloud import NAME, granted, publish, published, subscribe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gridstat.endpoint.endpoint_session import EndPointSession
    from gridstat.endpoint.session_events import Requested
    from gridstat.endpoint.session_thread import Listener
    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome

WITHIN_S = 60.0
ASKERS, QUESTIONS_EACH = 4, 200


class ReadyCloud:
    """Cloud that answers every request at once, or with the next event while it is busy."""

    def __init__(self) -> None:
        self.asked: list[EndPointCommand] = []
        self.is_busy = False
        self._waiting: list[Answered] = []

    def handle(self, event: Requested, _now_ns: int) -> list[Answered]:
        self.asked.append(event.command)
        outcome: Outcome = DoneOutcome()
        if isinstance(event.command, Subscribe):
            outcome = granted("x", 5)
        elif isinstance(event.command, Publish):
            outcome = published(f"{NAME}/a")
        self._waiting.append(Answered(event.token, (outcome,)))
        if self.is_busy:
            self.is_busy = False
            return []
        answers, self._waiting = self._waiting, []
        return answers


def count(outcomes: tuple[Outcome, ...], _newest: tuple[bytes, ...]) -> int:
    return len(outcomes)


@pytest.fixture
def cloud() -> ReadyCloud:
    return ReadyCloud()


@pytest.fixture
def thread(tmp_path: Path, cloud: ReadyCloud) -> Iterator[SessionThread]:
    folder = CertificateFolder(tmp_path)
    folder.create_authority()
    credentials = Credentials(folder.ensure(Identity(Role.ENDPOINT, "c1/a")))
    nobody = cast("Listener", None)
    thread = SessionThread(cast("EndPointSession", cloud), credentials, nobody)
    thread.start(())
    yield thread
    thread.close()


def test_questions_that_answers_lead_to_do_not_wake_the_thread_that_asks_them(
    thread: SessionThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[object] = []
    wake = thread._loop.call_soon_threadsafe

    def counted(*words: Any) -> object:
        woken.append(words)
        return wake(*words)

    monkeypatch.setattr(thread._loop, "call_soon_threadsafe", counted)
    last: Future[int] = Future()

    def ask_on(answered: Future[int], left: int = 20) -> None:
        if not left:
            last.set_result(answered.result())
            return
        following = thread.ask(Detach(), count, WITHIN_S)
        following.add_done_callback(lambda done: ask_on(done, left - 1))

    def begin(outcomes: tuple[Outcome, ...], newest: tuple[bytes, ...]) -> int:
        # On the session's thread, or the first answer might be there before we look for it.
        thread.ask(Detach(), count, WITHIN_S).add_done_callback(ask_on)
        return count(outcomes, newest)

    thread.ask(Detach(), begin, WITHIN_S)
    assert last.result(WITHIN_S) == 1
    assert len(woken) == 1


def test_every_question_of_many_threads_is_answered(thread: SessionThread) -> None:
    asked: list[Future[int]] = []

    def ask() -> None:
        asked.extend(thread.ask(Detach(), count, WITHIN_S) for _ in range(QUESTIONS_EACH))

    askers = [threading.Thread(target=ask) for _ in range(ASKERS)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert sum(each.result(WITHIN_S) for each in asked) == ASKERS * QUESTIONS_EACH


def test_who_asks_a_closed_connection_is_told_so(thread: SessionThread) -> None:
    thread.close()
    with pytest.raises(LinkDown, match="closed"):
        thread.ask(Detach(), count, WITHIN_S).result(WITHIN_S)


@pytest.mark.parametrize(
    ("asked", "undone"),
    [
        (subscribe("x"), Unsubscribe(subscription_ids=(5,))),
        (publish(f"{NAME}/a"), Unpublish(names=(f"{NAME}/a",))),
    ],
)
def test_a_cancelled_question_ends_no_session_and_what_is_granted_is_given_back(
    thread: SessionThread, cloud: ReadyCloud, asked: EndPointCommand, undone: EndPointCommand
) -> None:
    cloud.is_busy = True
    used: list[object] = []
    waiting = thread.ask(asked, lambda outcomes, _: used.append(outcomes), WITHIN_S)
    assert waiting.cancel()
    assert thread.ask(Detach(), count, WITHIN_S).result(WITHIN_S) == 1  # Both are answered now.
    assert thread.ask(Detach(), count, WITHIN_S).result(WITHIN_S) == 1
    assert cloud.asked == [asked, Detach(), undone, Detach()]
    assert used == []


def test_who_cancels_is_not_spared_what_has_changed(
    thread: SessionThread, cloud: ReadyCloud
) -> None:
    cloud.is_busy = True
    used: list[object] = []

    def use(outcomes: tuple[Outcome, ...], _: tuple[bytes, ...]) -> None:
        used.append(outcomes)
        raise AssertionError("whatever it does, the session lives on")

    assert thread.ask(FindVariables(pattern="c1/**"), use, WITHIN_S).cancel()
    assert thread.ask(Detach(), count, WITHIN_S).result(WITHIN_S) == 1
    assert used == [(DoneOutcome(),)]


def test_who_was_interrupted_while_closing_can_close_again(
    thread: SessionThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(thread._thread, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            thread.close()
    thread.close()
    assert not thread._thread.is_alive()
    assert thread._loop.is_closed()


def test_closing_on_the_thread_of_the_session_does_not_wait_for_itself(
    thread: SessionThread,
) -> None:
    thread.ask(Detach(), count, WITHIN_S).add_done_callback(lambda _: thread.close())
    thread._thread.join(WITHIN_S)
    assert not thread._thread.is_alive()
