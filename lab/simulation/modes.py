"""The operating modes of simulated grids: those defined, and checks of requests for others.

Daemons define no mode. Simulated brokers define a few, to test requests in several modes;
end-points and operators also ask for undefined modes, which must always be refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.errors import ModeNotDefined
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    GrantedOutcome,
    RefusedOutcome,
    Subscribe,
)
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gridstat.model.qos import Qos
    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome

MODES_DEFINED: Final = frozenset({1, 2})
MODES_UNDEFINED: Final = (3, 9)
MODES: Final = (0, *sorted(MODES_DEFINED))
"""Defined modes with the baseline; beside it at most one is active at a time."""
RULE: Final = "undefined modes are refused, and no others"


def active_with(mode: int) -> int:
    """Return the mask of the modes that are active together with this one."""
    return 1 | 1 << mode


def is_undefined(modes: Iterable[int]) -> bool:
    return any(mode not in MODES for mode in modes)


def check_answer(command: EndPointCommand, outcomes: tuple[Outcome, ...]) -> None:
    """Check that requests are refused for their modes exactly if they name an undefined one."""
    for modes, outcome in _asked(command, outcomes):
        if is_undefined(modes) and isinstance(outcome, GrantedOutcome):
            raise PropertyBroken(RULE, f"modes {sorted(modes)} were granted: {outcome}")
        if isinstance(outcome, RefusedOutcome):
            check_refusal(modes, outcome)


def check_refusal(modes: Iterable[int], refused: RefusedOutcome) -> None:
    if refused.code == ModeNotDefined.code and not is_undefined(modes):
        raise PropertyBroken(RULE, f"modes {sorted(modes)} were refused: {refused.reason}")


def check_written(number: int, modes: Iterable[int]) -> None:
    """Check that a written record has no undefined mode."""
    if is_undefined(modes):
        raise PropertyBroken(RULE, f"{number} is written with the modes {sorted(modes)}")


def _asked(
    command: EndPointCommand, outcomes: tuple[Outcome, ...]
) -> Iterator[tuple[Iterable[int], Outcome]]:
    if isinstance(command, Subscribe):
        for request, outcome in zip(command.subscriptions, outcomes, strict=False):
            yield request.qos.modes, outcome
    elif isinstance(command, ChangeSubscription):
        yield command.qos.modes, outcomes[0]


def terms(granted: Mapping[int, Qos], index: int) -> list[tuple[int, int, int]]:
    """Return divisor, priority and mode mask of each quality that a path serves, in order."""
    masks: dict[tuple[int, int], int] = {}
    for mode, qos in granted.items():
        if qos.redundancy > index:
            key = qos.every, qos.priority
            masks[key] = masks.get(key, 0) + (1 << mode)
    return [(every, priority, mask) for (every, priority), mask in sorted(masks.items())]
