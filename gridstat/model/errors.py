"""Everything that can go wrong, in one picture. Codes are stable, words and hints may improve.

GridStatError
├── Refused                    the grid works, and says no              1xxx
│   ├── LatencyNotSatisfiable  no path is fast enough                   1036
│   ├── IntervalNotSatisfiable published more slowly than asked         1037
│   ├── ChannelFull            a channel on the path has no room        1039
│   └── NoCommonVersion        two ends share no datagram version       1101
├── LinkDown                   a peer cannot be reached                 2xxx
├── Malformed                  bytes that are not ours                  3xxx
│   ├── MalformedShort         not even a header                        3001
│   ├── MalformedVersion       a version that was not agreed            3002
│   ├── MalformedEpoch         encrypted on a channel without keys      3003
│   ├── MalformedLength        a length that the bytes cannot hold      3004
│   └── MalformedOption        an event that runs past the datagram     3005
└── Misuse                     a call or a file that asks for nonsense  4xxx
    ├── InvalidPeriod          not a positive rational                  4001
    ├── LayoutError            values that do not fit their layout      4002
    ├── LimitReached           a bound fixed at the start is full       4003
    ├── UnknownName            no such variable, channel, code          4004
    └── ConfigurationError     a settings file that cannot be used      4100

The digits behind 1xxx are those of the thesis' negative code where it has one (-36 is 1036).
"""
# ruff: noqa: N818
# A name says what happened (`Refused`, `LinkDown`); an ending `Error` would add only noise.

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class GridStatError(Exception):
    """Anything that gridstat raises on purpose.

    `remedy` is the hint of last resort; whoever raises usually knows a better one.
    """

    code: ClassVar[int] = 0
    remedy: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint or self.remedy

    def __str__(self) -> str:
        text = f"{self.args[0]} ({self.code})"
        return f"{text}\nhint: {self.hint}" if self.hint else text


class Refused(GridStatError):
    """The grid works, and says no."""

    code = 1000
    remedy = "ask for less, or for another time, path or mode"


class LatencyNotSatisfiable(Refused):
    """No path is fast enough."""

    code = 1036
    remedy = "allow a longer latency, or fewer disjoint paths"


class IntervalNotSatisfiable(Refused):
    """The variable is published more slowly than it was asked for."""

    code = 1037
    remedy = "ask for the publishing period or a multiple of it"


class ChannelFull(Refused):
    """A channel on the path has no room for the stream."""

    code = 1039
    remedy = "take fewer slots (a larger `every`), or give the channel more bandwidth"


class NoCommonVersion(Refused):
    """Two ends of a channel speak no common version of the datagram."""

    code = 1101
    remedy = "upgrade the older end; neighbouring releases always share a version"


class LinkDown(GridStatError):
    """A peer cannot be reached."""

    code = 2000
    remedy = "check address, port and whether the peer runs"


class Malformed(GridStatError):
    """Bytes that are not ours; the whole datagram is dropped and counted under `reason`."""

    code = 3000
    reason: ClassVar[str] = ""
    remedy = "find the sender by the counters of the channel that it came on"


class MalformedShort(Malformed):
    """The bytes end before the header or the field does."""

    code = 3001
    reason = "short"


class MalformedVersion(Malformed):
    """The datagram speaks a version that was not agreed at channel set-up."""

    code = 3002
    reason = "version"
    remedy = "let the sender speak the version that the receiver announced"


class MalformedEpoch(Malformed):
    """The datagram claims encryption on a channel without keys."""

    code = 3003
    reason = "epoch"
    remedy = "give both ends of the channel the same security setting"


class MalformedLength(Malformed):
    """The announced length holds no event, or more than arrived."""

    code = 3004
    reason = "length"


class MalformedOption(Malformed):
    """An event's option count runs past the end of its datagram."""

    code = 3005
    reason = "option"


class Misuse(GridStatError):
    """A call or a file that asks for what cannot be."""

    code = 4000


class InvalidPeriod(Misuse):
    """A period that is not a positive rational of two 32-bit numbers."""

    code = 4001
    remedy = "thirty a second is Period(1, 30); 29.97 a second is Period(1001, 30_000)"


class LayoutError(Misuse):
    """Values that do not fit the layout they are meant for."""

    code = 4002
    remedy = "compare the values with the declared fields and limits"


class LimitReached(Misuse):
    """A bound that was fixed at the start is full."""

    code = 4003
    remedy = "start with a higher limit, or remove what is no longer used"


class UnknownName(Misuse):
    """There is no such variable, channel or code."""

    code = 4004
    remedy = "check the spelling against what is registered or open"


class ConfigurationError(Misuse):
    """A settings file that cannot be used; the message names file and key."""

    code = 4100


_THESIS_WORDS: Final[Mapping[int, tuple[str, type[GridStatError]]]] = MappingProxyType(
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
        -15: ("security violation", Refused),
        -16: ("wrong cloud", Refused),
        -17: ("status router not registered", Refused),
        -18: ("link not registered", Refused),
        -19: ("link not registered", Refused),
        -20: ("publisher already registered", Refused),
        -21: ("publisher not registered", Refused),
        -22: ("variable already registered", Refused),
        -23: ("variable not registered", Refused),
        -24: ("bad publishing interval", InvalidPeriod),
        -25: ("publisher still has publications", Refused),
        -26: ("publications must be registered again", Refused),
        -30: ("subscriber already registered", Refused),
        -31: ("subscriber not registered", Refused),
        -32: ("subscription not registered", Refused),
        -33: ("subscription not registered", Refused),
        -34: ("variable does not exist", Refused),
        -36: ("latency not satisfiable", LatencyNotSatisfiable),
        -37: ("interval not satisfiable", IntervalNotSatisfiable),
        -41: ("no publisher", Refused),
        -42: ("no publisher cloud", Refused),
        -46: ("unknown publisher name", Refused),
        -50: ("name is not hierarchical", LayoutError),
        -51: ("not implemented", Misuse),
        -53: ("group error", Refused),
        -54: ("group error", Refused),
        -55: ("group error", Refused),
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
"""The source's codes as far as they are legible (S0 §3.11), each with the nearest of ours."""


def all_errors() -> list[type[GridStatError]]:
    """Every class of the tree, by code; the reference page and `explain` are made from it."""
    return sorted(_descendants(GridStatError), key=lambda found: found.code)


def thesis_codes(error: type[GridStatError]) -> list[int]:
    """The thesis' negative codes that mean this error, nearest zero first."""
    return [code for code, (_, ours) in _THESIS_WORDS.items() if ours is error]


def explain(code: int) -> str:
    """What a code means and what to do, in a few lines; the thesis' negative codes work too."""
    if code in _THESIS_WORDS:
        words, ours = _THESIS_WORDS[code]
        return f"{code} in the thesis: {words}.\nHere it is:\n{explain(ours.code)}"
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
