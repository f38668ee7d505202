"""Everything that can go wrong, in one picture. Codes are stable, words and hints may improve.

GridStatError
├── Refused                    the grid works, and says no              1xxx
│   ├── LatencyNotSatisfiable  no path is fast enough                   1036
│   └── ChannelFull            a channel on the path has no room        1039
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
"""

from __future__ import annotations

from typing import ClassVar


class GridStatError(Exception):
    """Anything that gridstat raises on purpose."""

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


class ChannelFull(Refused):
    """A channel on the path has no room for the stream."""

    code = 1039
    remedy = "take fewer slots (a larger `every`), or give the channel more bandwidth"


class LinkDown(GridStatError):
    """A peer cannot be reached."""

    code = 2000
    remedy = "check address, port and whether the peer runs; the link is retried meanwhile"


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
