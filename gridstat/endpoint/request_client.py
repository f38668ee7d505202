"""Interface of requests to the cloud: a command, and a function that uses its outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from gridstat.endpoint.options import refusal
from gridstat.net.command.endpoint_messages import RefusedOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome

Result = TypeVar("Result")


class RequestClient(Protocol):
    """Sends requests with the connection's own deadline; `use` runs on the session's thread."""

    def ask(
        self,
        command: EndPointCommand,
        use: Callable[[tuple[Outcome, ...], tuple[bytes, ...]], Result],
    ) -> Future[Result]:
        """Send a command; the future has the result of `use`, or the error."""
        ...


def awaited(future: Future[Result], give_back: Callable[[Result], object]) -> Result:
    """Return the answer. If the wait is interrupted, by Ctrl-C say, the result is undone: by the
    session if it has not come yet, else here."""
    try:
        return future.result()
    except BaseException:
        if not future.cancel():
            future.add_done_callback(lambda done: _return(done, give_back))
        raise


def _return(done: Future[Result], give_back: Callable[[Result], object]) -> None:
    if done.exception() is None:
        give_back(done.result())


def spread(outcomes: tuple[Outcome, ...], asked: Sequence[object]) -> tuple[Outcome, ...]:
    """Return one outcome for each item requested: a request refused as a whole has a single one."""
    if len(outcomes) == 1 and len(asked) != 1:
        return outcomes * len(asked)
    return outcomes


def raise_refusals(outcomes: tuple[Outcome, ...], _newest: tuple[bytes, ...]) -> None:
    """Raise the first refusal; other outcomes carry no information."""
    for outcome in outcomes:
        if isinstance(outcome, RefusedOutcome):
            raise refusal(outcome)


def ignore_outcomes(_outcomes: tuple[Outcome, ...], _newest: tuple[bytes, ...]) -> None:
    """Ignore the outcomes: the command is done whether or not the cloud agrees."""
