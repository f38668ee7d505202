"""What a parent is told of stretches, in its own words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.admission import Limit
from gridstat.broker.requests.outcomes import refused
from gridstat.net.command.stretch_messages import HeldStretch, NotReserved, StretchesHeld

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.broker.capacity.contracts import Refusal
    from gridstat.broker.records.operations import Subscribed
    from gridstat.model.errors import GridStatError
    from gridstat.net.command.stretch_messages import Reserve

PAGE_MAX: Final = 1_000
_LIMITS: Final = {limit.value.code: limit.name for limit in Limit}


def not_reserved(term: int, word: Reserve, error: GridStatError | Refusal) -> NotReserved:
    """A refusal, with the limit that was met in the way."""
    return NotReserved(
        term=term,
        contract=word.contract,
        generation=word.generation,
        refused=refused(error),
        limit=_LIMITS.get(error.code, ""),
        round=word.round,
    )


def pages_of_held(term: int, records: Sequence[Subscribed]) -> list[StretchesHeld]:
    """All that is held; one page at least, for also that nothing is has to be told."""
    held = [
        HeldStretch(
            contract=record.contract,
            generation=record.stretch_generation,
            is_committed=not record.is_reserved,
        )
        for record in records
    ]
    pages = [held[at : at + PAGE_MAX] for at in range(0, len(held), PAGE_MAX)] or [[]]
    return [StretchesHeld(term=term, held=tuple(page), is_last=page is pages[-1]) for page in pages]
