"""Index of all errors by code, with the negative codes of the thesis."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import (
    EndPointExists,
    GridStatError,
    GroupMismatch,
    IntervalNotSatisfiable,
    InvalidPeriod,
    LatencyNotSatisfiable,
    LayoutError,
    LinkDown,
    Misuse,
    NoSuchChannel,
    NoSuchRouter,
    NoSuchSubscription,
    NoSuchVariable,
    NotAttached,
    NotAuthorised,
    NotPublished,
    Refused,
    UnknownName,
    VariableExists,
    WrongCloud,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_THESIS_CODES: Final[Mapping[int, tuple[str, type[GridStatError]]]] = MappingProxyType(
    {
        -1: ("channel failure to a status router", LinkDown),
        -2: ("channel could not be opened", LinkDown),
        -4: ("remote channel could not be opened", LinkDown),
        -5: ("sending thread failed", LinkDown),
        -7: ("communication failure", LinkDown),
        -8: ("communication failure", LinkDown),
        -9: ("communication failure", LinkDown),
        -10: ("communication failure", LinkDown),
        -11: ("server could not start", LinkDown),
        -12: ("server could not start", LinkDown),
        -13: ("server shut down", LinkDown),
        -14: ("thread could not start", LinkDown),
        -15: ("security violation", NotAuthorised),
        -16: ("wrong cloud", WrongCloud),
        -17: ("status router not registered", NoSuchRouter),
        -18: ("link not registered", NoSuchChannel),
        -19: ("link not registered", NoSuchChannel),
        -20: ("publisher already registered", EndPointExists),
        -21: ("publisher not registered", NotAttached),
        -22: ("variable already registered", VariableExists),
        -23: ("variable not registered", NotPublished),
        -24: ("bad publishing interval", InvalidPeriod),
        -25: ("publisher still has publications", Refused),
        -26: ("publications must be registered again", Refused),
        -30: ("subscriber already registered", EndPointExists),
        -31: ("subscriber not registered", NotAttached),
        -32: ("subscription not registered", NoSuchSubscription),
        -33: ("subscription not registered", NoSuchSubscription),
        -34: ("variable does not exist", NoSuchVariable),
        -36: ("latency not satisfiable", LatencyNotSatisfiable),
        -37: ("interval not satisfiable", IntervalNotSatisfiable),
        -41: ("no publisher", NoSuchVariable),
        -42: ("no publisher cloud", Refused),
        -46: ("unknown publisher name", NoSuchVariable),
        -50: ("name is not hierarchical", LayoutError),
        -51: ("not implemented", Misuse),
        -53: ("group error", GroupMismatch),
        -54: ("group error", GroupMismatch),
        -55: ("group error", GroupMismatch),
        -60: ("condensation creator already registered", Refused),
        -61: ("condensation creator not registered", Refused),
        -62: ("condensation function already registered", Refused),
        -63: ("condensation function not registered", Refused),
        -64: ("condensation function not registered", Refused),
        -65: ("condensation function could not be created", Refused),
        -66: ("condensation function could not be destroyed", Refused),
        -70: ("interrupted", GridStatError),
        -71: ("exception", GridStatError),
        -72: ("unknown host", LinkDown),
        -73: ("assertion", GridStatError),
        -74: ("subscription path not present", Refused),
        -75: ("command failed", Refused),
    }
)
"""Legible codes of the thesis (S0 §3.11), each with the nearest error of gridstat."""


def all_errors() -> list[type[GridStatError]]:
    """Return every error class by code, for the reference page and for `explain`."""
    return sorted(_descendants(GridStatError), key=lambda found: found.code)


def thesis_codes(error: type[GridStatError]) -> list[int]:
    """Return the negative codes of the thesis for this error, nearest zero first."""
    return [code for code, (_, ours) in _THESIS_CODES.items() if ours is error]


def error_from(code: int, message: str, *, hint: str = "") -> GridStatError:
    """Return the error of a code that a peer sent; the nearest known class for a newer code."""
    known = {found.code: found for found in all_errors()}
    kind = known.get(code) or known.get(code // 1_000 * 1_000, GridStatError)
    return kind(message, hint=hint)


def explain(code: int) -> str:
    """Return the meaning of a code and the remedy; negative codes of the thesis work too."""
    if code in _THESIS_CODES:
        text, ours = _THESIS_CODES[code]
        return f"{code} in the thesis: {text}.\nHere it is:\n{explain(ours.code)}"
    for found in all_errors():
        if found.code == code:
            lines = [f"{code} {found.__name__}: {(found.__doc__ or '').splitlines()[0]}"]
            parent = found.__mro__[1]
            if issubclass(parent, GridStatError):
                lines.append(f"a kind of: {parent.code} {parent.__name__}")
            if found.remedy:
                lines.append(f"what to do: {found.remedy}")
            return "\n".join(lines)
    known = ", ".join(str(found.code) for found in all_errors())
    raise UnknownName(f"no error has the code {code}", hint=f"the codes are {known}")


def _descendants(error: type[GridStatError]) -> Iterator[type[GridStatError]]:
    yield error
    for child in error.__subclasses__():
        yield from _descendants(child)
