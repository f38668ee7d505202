"""Search for the variables of a pattern, page by page: an answer of the broker is bounded.

Pages follow the order of names, part by part, and the next begins after the last name of the one
before; what is published or withdrawn meanwhile moves nothing else from page to page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.endpoint.options import refusal
from gridstat.model.cloud import check_stored_name, check_stored_pattern
from gridstat.model.errors import LayoutError, LimitReached
from gridstat.net.command.endpoint_messages import FindVariables, FoundOutcome, RefusedOutcome
from gridstat.net.command.session_messages import MANY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import Outcome


def find_all(
    ask: Callable[[FindVariables], FoundOutcome], pattern: str, *, after: str, limit: int
) -> list[StatusVariable]:
    """Return the variables after this name, at most `limit` of them, or all if that is 0."""
    if limit < 0:
        raise LayoutError(f"a limit of {limit}, and must not be below 0")
    check_stored_pattern(pattern)
    if after:
        check_stored_name(after)
    found: list[StatusVariable] = []
    for page in _pages(ask, pattern, after=after, limit=limit):
        found += page
    return found


def _pages(
    ask: Callable[[FindVariables], FoundOutcome], pattern: str, *, after: str, limit: int
) -> Iterator[tuple[StatusVariable, ...]]:
    left = limit
    while True:
        size = min(left, MANY_MAX) if limit else MANY_MAX
        outcome = ask(FindVariables(pattern=pattern, limit=size, after=after))
        page = outcome.variables
        if after and page and page[0].name.split("/") <= after.split("/"):
            # A broker of before there were pages starts from the first name each time.
            raise LimitReached(
                f"{pattern} matches more variables than this broker returns",
                hint="ask for less at once, say one substation: c1/hill/**",
            )
        if not page and not outcome.is_complete:
            raise LimitReached(
                f"there are more variables of {pattern} after {after or 'the start'}, and the "
                "broker returns none of them",
                hint="ask for those behind it, or for less at once",
            )
        yield page
        left -= len(page)
        if outcome.is_complete or (limit and left <= 0):
            return
        after = page[-1].name


def found_in(outcomes: tuple[Outcome, ...], _: tuple[bytes, ...]) -> FoundOutcome:
    """Return the outcome of a search; raise its refusal."""
    (outcome,) = outcomes
    if isinstance(outcome, RefusedOutcome):
        raise refusal(outcome)
    assert isinstance(outcome, FoundOutcome), "a search is answered with what was found"
    return outcome
