"""Everything that can go wrong, in one picture. Codes are stable, words and hints may improve.

GridStatError
├── Refused                    the grid works, and says no              1xxx
│   ├── NotAuthorised          the certificate does not permit it       1015
│   ├── WrongCloud             the end-point belongs elsewhere          1016
│   ├── NoSuchRouter           the broker knows no such router          1017
│   ├── NoSuchChannel          the broker knows no such channel         1018
│   ├── EndPointExists         another process uses this name           1020
│   ├── NotAttached            the end-point has not attached           1021
│   ├── VariableExists         the name is published already            1022
│   ├── NotPublished           this end-point does not publish it       1023
│   ├── NoSuchSubscription     there is no such subscription            1032
│   ├── NoSuchVariable         nobody publishes it                      1034
│   ├── LatencyNotSatisfiable  no path is fast enough                   1036
│   ├── IntervalNotSatisfiable published more slowly than asked         1037
│   ├── RedundancyNotSatisfiable  too few disjoint paths                1038
│   ├── ChannelFull            a channel on the path has no room        1039
│   ├── TypeMismatch           the variable has another type            1040
│   ├── RouterFull             a router on the path has no capacity     1043
│   ├── BurstTooLarge          a synchronised burst overflows a queue   1044
│   ├── BackPressured          a channel on the path is congested       1045
│   ├── GroupMismatch          members that form no common set          1054
│   ├── StillInUse             subscriptions depend on it               1076
│   ├── NoCommonVersion        two ends share no datagram version       1101
│   ├── NoCommonSchema         two ends share no command schema         1102
│   ├── StaleTerm              a command of a broker that was replaced  1103
│   ├── ShuttingDown           the peer is draining                     1104
│   └── QuotaReached           more than one end-point may hold         1105
├── LinkDown                   a peer cannot be reached                 2xxx
│   ├── DeadlinePassed         no answer in time                        2001
│   └── CertificateRefused     the peer does not trust the certificate  2015
├── Malformed                  bytes that are not ours                  3xxx
│   ├── MalformedShort         not even a header                        3001
│   ├── MalformedVersion       a version that was not agreed            3002
│   ├── MalformedEpoch         encrypted on a channel without keys      3003
│   ├── MalformedLength        a length that the bytes cannot hold      3004
│   ├── MalformedOption        an event that runs past the datagram     3005
│   ├── MalformedFrame         a command frame that cannot be read      3010
│   └── FrameTooLarge          a command frame beyond the bound         3011
├── StorageFailed              a journal or a log cannot be written     5001
│   ├── DamagedLog             recorded bytes are not what they were    5002
│   ├── LogFull                a log has reached its bound              5003
│   └── RecordsGone            records were released before             5004
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

from typing import ClassVar


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
    """The grid works, and says no.

    Where something was too small, `bottleneck` names it (a channel, a router, a rule) and
    `shortfall` says by how much, in its own unit.
    """

    code = 1000
    bottleneck: str = ""
    shortfall: str = ""
    remedy = "ask for less, or for another time, path or mode"


class NotAuthorised(Refused):
    """The certificate does not permit this; the message names the rule."""

    code = 1015
    remedy = "use a certificate of the right role and scope: `gridstat certificates --help`"


class WrongCloud(Refused):
    """The end-point belongs to another cloud."""

    code = 1016
    remedy = "attach to an edge router of your own cloud"


class NoSuchRouter(Refused):
    """The broker knows no such router."""

    code = 1017
    remedy = "add it to the broker's file, or at run time"


class NoSuchChannel(Refused):
    """The broker knows no such event channel."""

    code = 1018
    remedy = "add it to the broker's file, or at run time"


class EndPointExists(Refused):
    """Another process uses this end-point's name."""

    code = 1020
    remedy = "end the other process, or take another name"


class NotAttached(Refused):
    """The end-point has not attached to this edge router."""

    code = 1021
    remedy = "connect before publishing or subscribing"


class VariableExists(Refused):
    """The name is published already."""

    code = 1022
    remedy = "publish under another name, or unpublish the first"


class NotPublished(Refused):
    """This end-point does not publish such a variable."""

    code = 1023
    remedy = "publish it first; names are compared exactly"


class NoSuchSubscription(Refused):
    """There is no such subscription."""

    code = 1032
    remedy = "it may have ended; subscribe again"


class NoSuchVariable(Refused):
    """Nobody publishes such a variable."""

    code = 1034
    remedy = "check the name, or subscribe by a pattern that waits for it"


class LatencyNotSatisfiable(Refused):
    """No path is fast enough."""

    code = 1036
    remedy = "allow a longer latency, or fewer disjoint paths"


class IntervalNotSatisfiable(Refused):
    """The variable is published more slowly than it was asked for."""

    code = 1037
    remedy = "ask for the publishing period or a multiple of it"


class RedundancyNotSatisfiable(Refused):
    """There are too few disjoint paths."""

    code = 1038
    remedy = "ask for fewer paths, attach to a second edge router, or add channels"


class ChannelFull(Refused):
    """A channel on the path has no room for the stream."""

    code = 1039
    remedy = "take fewer slots (a larger `every`), or give the channel more bandwidth"


class TypeMismatch(Refused):
    """The variable is published with another type."""

    code = 1040
    remedy = "subscribe with the registered type, or leave the type out"


class RouterFull(Refused):
    """A router on the path has no capacity left for the stream."""

    code = 1043
    remedy = "take fewer slots, or give the router more capacity"


class BurstTooLarge(Refused):
    """Synchronised publishers would overflow a channel's queue."""

    code = 1044
    remedy = "shift the phase of some publishers, or give the channel a longer queue"


class BackPressured(Refused):
    """A channel on the path is congested and admits nothing for now."""

    code = 1045
    remedy = "try again later; `gridstat top` shows the channel"


class GroupMismatch(Refused):
    """The members of a group form no common set."""

    code = 1054
    remedy = "choose an interval that is a common multiple of the members' periods"


class StillInUse(Refused):
    """Subscriptions depend on it."""

    code = 1076
    remedy = "end them first, or let them be drained"


class NoCommonVersion(Refused):
    """Two ends of a channel speak no common version of the datagram."""

    code = 1101
    remedy = "upgrade the older end; neighbouring releases always share a version"


class NoCommonSchema(Refused):
    """Two ends of a session speak no common version of the commands."""

    code = 1102
    remedy = "upgrade the older end; neighbouring releases always share a version"


class StaleTerm(Refused):
    """The command comes from a broker that has been replaced."""

    code = 1103
    remedy = (
        "nothing: the broker of the newer term is in charge; if that one is lost with its journal, "
        "start this one with --begin-at-term above the newer term"
    )


class ShuttingDown(Refused):
    """The peer is shutting down and takes nothing new."""

    code = 1104
    remedy = "try again when it is back"


class QuotaReached(Refused):
    """An end-point holds as many publications or subscriptions as it may."""

    code = 1105
    remedy = "end some, or raise the broker's quota"


class LinkDown(GridStatError):
    """A peer cannot be reached."""

    code = 2000
    remedy = "check address, port and whether the peer runs"


class DeadlinePassed(LinkDown):
    """The peer did not answer in time."""

    code = 2001
    remedy = "it may still have acted: ask again, requests are safe to repeat"


class CertificateRefused(LinkDown):
    """A certificate is missing, expired or not signed by the grid's authority."""

    code = 2015
    remedy = "`gridstat certificates show` tells role, scope and dates; renew or re-issue it"


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


class StorageFailed(GridStatError):
    """The journal cannot be written, so nothing new is promised; forwarding goes on."""

    code = 5001
    remedy = "free disk space or repair the disk; the broker tries again by itself"


class DamagedLog(StorageFailed):
    """Bytes that were recorded and are not what they were."""

    code = 5002
    remedy = "restore the file from a copy; the records before the damage can be read"


class LogFull(StorageFailed):
    """A log has reached its bound, and none of its segments may go."""

    code = 5003
    remedy = "archive and release old segments, or raise the bound of the log"


class RecordsGone(StorageFailed):
    """Records that were asked for were released from the log before."""

    code = 5004
    remedy = "read them from the archive, or begin at the oldest record that the log has"


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
