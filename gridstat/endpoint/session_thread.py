"""Thread that runs an end-point's session, for applications of any kind.

The application's threads submit requests and wait for futures; the whole command protocol runs on
this thread's event loop. Other outputs of the session go to a listener.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from gridstat.endpoint.request_table import give_back
from gridstat.endpoint.session_events import (
    Answered,
    Requested,
    SeedAnswered,
    SessionOutput,
    Unanswered,
)
from gridstat.model.errors import DeadlinePassed, GridStatError, LinkDown
from gridstat.model.keys.channel_keys import STEP_S
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.driver import Driver, DriverEnvironment
from gridstat.net.command.endpoint_messages import Publish, Subscribe

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gridstat.endpoint.edge_address import EdgeAddress
    from gridstat.endpoint.endpoint_session import EndPointSession
    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome, ProveAddress
    from gridstat.net.command.router_messages import SeedAccepted
    from gridstat.net.command.tls import Credentials

    _Pending: TypeAlias = tuple[EndPointCommand, Callable[[Answered | GridStatError], None], int]

Result = TypeVar("Result")
log = logging.getLogger(__name__)
UNDO_WITHIN_S: Final = 10.0


class Listener(Protocol):
    """Receives, on the session's thread, the outputs that answer no request."""

    def output_received(self, output: SessionOutput) -> None:
        """Handle an output of the session; must not block."""
        ...

    def step(self) -> None:
        """Do what is due by time; called a few times a second."""
        ...

    def connection_failed(self, edge: str, error: GridStatError) -> None:
        """Note why there is no session with this edge; the driver tries again."""
        ...


class SessionThread:
    """Answers every request: by the cloud, by its deadline, or by `close`."""

    def __init__(
        self, session: EndPointSession, credentials: Credentials, listener: Listener
    ) -> None:
        self._session = session
        self._credentials = credentials
        self._listener = listener
        self._loop = asyncio.new_event_loop()
        self._driver: Driver[Requested | SeedAnswered] | None = None
        self._pending: deque[_Pending] = deque()
        self._is_taking_scheduled = False
        self._answers: dict[int, Callable[[Answered | GridStatError], None]] = {}
        self._last_token = 0
        self._bug: BaseException | None = None
        self._is_closed = False
        self._ending: Future[None] | None = None
        # A daemon: a program that ends without `close` must not wait for it.
        self._thread = threading.Thread(target=self._run, name="gs-session", daemon=True)

    @property
    def attached_edges(self) -> tuple[str, ...]:
        """Edges that accept requests now."""
        return self._session.attached_edges

    def start(self, edges: tuple[EdgeAddress, ...]) -> None:
        """Start the thread and keep sessions with these edges from now on."""
        self._thread.start()
        self._wait(self._connect(edges))

    def ask(
        self,
        command: EndPointCommand,
        use: Callable[[tuple[Outcome, ...], tuple[bytes, ...]], Result],
        within_s: float,
    ) -> Future[Result]:
        """Send a request; `use` makes the result of the outcomes, on the session's thread.

        If the future is cancelled, whatever is granted is undone.
        """
        future: Future[Result] = Future()

        def answered(answer: Answered | GridStatError) -> None:
            if not future.set_running_or_notify_cancel():
                self._handle_unwanted_answer(command, use, answer)
                return
            # From here on the future cannot be cancelled.
            try:
                if not isinstance(answer, Answered):
                    raise answer
                future.set_result(use(answer.outcomes, answer.newest))
            except Exception as error:
                future.set_exception(error)

        if self._is_closed or self._bug is not None:
            answered(self._closed_error())
        else:
            self._pending.append((command, answered, max(1, int(within_s * NS_PER_S))))
            if not self._is_taking_scheduled:
                self._is_taking_scheduled = True
                self._schedule_taking()
        return future

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call on the session's thread after a while; only from that thread."""
        self._loop.call_later(delay_s, call)

    def answer_seed(self, edge: str, accepted: SeedAccepted | ProveAddress) -> None:
        """Send the answer to a seed, or a proof; a lost session drops it, and asks again."""
        with suppress(RuntimeError):  # The loop was closed meanwhile.
            self._loop.call_soon_threadsafe(self._inject_answer, SeedAnswered(edge, accepted))

    def _inject_answer(self, answer: SeedAnswered) -> None:
        if self._driver is not None and not self._is_closed and self._bug is None:
            self._driver.inject(answer)

    def close(self) -> None:
        """Say Bye, and end the thread; unanswered requests fail.

        A caller that was interrupted may call it again: it waits for the same end.
        """
        self._is_closed = True
        if not self._thread.is_alive():
            self._loop.close()
            return
        if self._ending is None:
            self._ending = asyncio.run_coroutine_threadsafe(self._disconnect(), self._loop)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _schedule_taking(self) -> None:
        """Schedule one run for all requests made meanwhile; requests on the loop's own thread need
        no wake-up, which would cost two system calls each."""
        try:
            if threading.current_thread() is self._thread:
                self._loop.call_soon(self._take_pending)
            else:
                self._loop.call_soon_threadsafe(self._take_pending)
        except RuntimeError:  # The loop was closed meanwhile.
            self._take_pending()

    # On the session's thread.

    def _take_pending(self) -> None:
        # Reset first: a request made from now on schedules the next run.
        self._is_taking_scheduled = False
        for _ in range(len(self._pending)):
            try:
                asked = self._pending.popleft()
            except IndexError:  # After `close`, other threads may take as well.
                return
            self._inject(*asked)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
            self._take_pending()  # Requests made during the end fail.

    def _wait(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _connect(self, edges: tuple[EdgeAddress, ...]) -> None:
        driver: Driver[Requested | SeedAnswered] = Driver(
            self._session,
            self._credentials,
            perform=self._perform,
            environment=DriverEnvironment(on_bug=self._break),
        )
        self._driver = driver
        for edge in edges:
            on_failure = partial(self._listener.connection_failed, edge.name)
            driver.connect_to(edge.identity, [(edge.host, edge.port)], on_failure=on_failure)
        self._loop.call_later(STEP_S, self._step)

    def _step(self) -> None:
        if self._is_closed or self._bug is not None:
            return
        self._loop.call_later(STEP_S, self._step)
        self._listener.step()

    async def _disconnect(self) -> None:
        try:
            if self._driver is not None:
                await self._driver.close()
        finally:
            self._fail_all()
            self._loop.call_soon(self._loop.stop)  # After the sessions have closed.

    def _inject(
        self,
        command: EndPointCommand,
        answered: Callable[[Answered | GridStatError], None],
        within_ns: int,
    ) -> None:
        if self._is_closed or self._bug is not None:
            answered(self._closed_error())
            return
        assert self._driver is not None
        self._last_token += 1
        self._answers[self._last_token] = answered
        self._driver.inject(Requested(self._last_token, command, within_ns))

    def _perform(self, output: object) -> bool:
        match output:
            case Answered(token=token):
                self._answers.pop(token)(output)
            case Unanswered(token=token):
                self._answers.pop(token)(DeadlinePassed("the cloud did not answer in time"))
            case _:
                self._listener.output_received(output)  # type: ignore[arg-type]
        return True

    def _handle_unwanted_answer(
        self,
        command: EndPointCommand,
        use: Callable[[tuple[Outcome, ...], tuple[bytes, ...]], object],
        answer: Answered | GridStatError,
    ) -> None:
        """Undo the result of a cancelled request; no contract may be without an owner."""
        if not isinstance(answer, Answered):
            return
        if isinstance(command, Publish | Subscribe):
            for undoing in give_back(answer.outcomes):
                self.ask(undoing, lambda *_: None, UNDO_WITHIN_S)
            return
        try:
            use(answer.outcomes, answer.newest)  # A change has an owner, who is notified.
        except GridStatError:
            log.info("refused_in_vain command=%s", type(command).__name__)
        except Exception:
            log.exception("answered_in_vain command=%s", type(command).__name__)

    def _break(self, error: BaseException) -> None:
        """Fail all requests after a bug in the session, instead of ending the user's process."""
        log.critical("session_failed", exc_info=error)
        self._bug = error
        self._fail_all()

    def _fail_all(self) -> None:
        answers, self._answers = self._answers, {}
        for answered in answers.values():
            answered(self._closed_error())

    def _closed_error(self) -> GridStatError:
        if self._bug is not None:
            return LinkDown(f"the session has failed: {self._bug}", hint="connect again")
        return LinkDown("the connection is closed", hint="connect again")
