"""Bytes that are not in the format of gridstat."""
# ruff: noqa: N818
# A name says what happened (`Refused`, `LinkDown`); an ending `Error` would add only noise.

from __future__ import annotations

from typing import ClassVar

from gridstat.model.errors.root import GridStatError


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


class MalformedFrame(Malformed):
    """A command frame that cannot be read; the session ends and is set up anew."""

    code = 3010
    reason = "frame"
    remedy = "compare the versions of both ends"


class FrameTooLarge(Malformed):
    """A command frame that announces more than the bound."""

    code = 3011
    reason = "frame_length"
    remedy = "split the request: one may carry many variables, but not all of them"
