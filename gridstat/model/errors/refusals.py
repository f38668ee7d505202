"""Refusals: the grid works, and the answer to a request is no."""
# ruff: noqa: N818
# A name says what happened (`Refused`, `LinkDown`); an ending `Error` would add only noise.

from __future__ import annotations

from gridstat.model.errors.root import GridStatError


class Refused(GridStatError):
    """The grid works, and says no.

    Where something was too small, `bottleneck` names it (a channel, a router, a rule) and
    `shortfall` says by how much, in its own unit.
    """

    code = 1000
    bottleneck: str = ""
    shortfall: str = ""
    remedy = "ask for less, or for another time or path"


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
    """An identity uses as much of a cloud as it may: contracts, variables, sessions, commands a
    second, or its share of a channel."""

    code = 1105
    remedy = "end some, or ask an operator of the cloud for an access rule that raises the quota"


class PathTooLong(Refused):
    """A path would cross more routers than a contract may name."""

    code = 1106
    remedy = "add channels that make the path shorter, or ask for fewer disjoint paths"


class ModeNotDefined(Refused):
    """A request names an operating mode that the grid does not define."""

    code = 1107
    remedy = "leave `modes` out: only the baseline can be used yet, and it is always active"


class SecurityNotSatisfiable(Refused):
    """A channel is not sealed as a contract demands, or its two ends do not agree on sealing."""

    code = 1108
    remedy = 'mark the channels `security = "hop"`, or ask for less'


class SkewNotSatisfiable(Refused):
    """A path is so much slower than another may be that its copies would come too late to replace
    what that one loses."""

    code = 1110
    remedy = (
        "ask for fewer paths, for a slower publication, or shorten the slow channels: routers "
        "recognise copies for 0.75 s, and for less above 5,000 events/s"
    )


class Preempted(Refused):
    """A contract was ended for one of a higher priority that needed its room."""

    code = 1111
    remedy = "subscribe again later, with a wider band or a higher priority"


class SearchUndecided(Refused):
    """A path search reached its time limit, so that nobody knows whether there are such paths."""

    code = 1112
    remedy = "ask for fewer paths, or allow more latency"
