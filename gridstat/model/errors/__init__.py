"""The tree of all errors. Codes are stable; texts and hints may change.

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
│   ├── QuotaReached           more than one end-point may hold         1105
│   ├── PathTooLong            a path would cross too many routers      1106
│   ├── ModeNotDefined         a mode is named that nobody has defined  1107
│   ├── SecurityNotSatisfiable a channel is not sealed as it must be    1108
│   ├── SkewNotSatisfiable     copies by a slow path come too late      1110
│   ├── Preempted              a higher priority needed the room        1111
│   └── SearchUndecided        a path search reached its time limit     1112
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
    ├── WrongCall              an option that the call does not have    4005
    ├── NotReadOnly            a statement that does more than read     4006
    └── ConfigurationError     a settings file that cannot be used      4100

The digits behind 1xxx are those of the thesis' negative code where it has one (-36 is 1036).
"""

from __future__ import annotations

from gridstat.model.errors.failures import (
    CertificateRefused,
    DamagedLog,
    DeadlinePassed,
    LinkDown,
    LogFull,
    RecordsGone,
    StorageFailed,
)
from gridstat.model.errors.malformed import (
    FrameTooLarge,
    Malformed,
    MalformedEpoch,
    MalformedFrame,
    MalformedLength,
    MalformedOption,
    MalformedShort,
    MalformedVersion,
)
from gridstat.model.errors.misuse import (
    ConfigurationError,
    InvalidPeriod,
    LayoutError,
    LimitReached,
    Misuse,
    NotReadOnly,
    UnknownName,
    WrongCall,
)
from gridstat.model.errors.refusals import (
    BackPressured,
    BurstTooLarge,
    ChannelFull,
    EndPointExists,
    GroupMismatch,
    IntervalNotSatisfiable,
    LatencyNotSatisfiable,
    ModeNotDefined,
    NoCommonSchema,
    NoCommonVersion,
    NoSuchChannel,
    NoSuchRouter,
    NoSuchSubscription,
    NoSuchVariable,
    NotAttached,
    NotAuthorised,
    NotPublished,
    PathTooLong,
    Preempted,
    QuotaReached,
    RedundancyNotSatisfiable,
    Refused,
    RouterFull,
    SearchUndecided,
    SecurityNotSatisfiable,
    ShuttingDown,
    SkewNotSatisfiable,
    StaleTerm,
    StillInUse,
    TypeMismatch,
    VariableExists,
    WrongCloud,
)
from gridstat.model.errors.root import (
    GridStatError,
)

__all__ = [
    "BackPressured",
    "BurstTooLarge",
    "CertificateRefused",
    "ChannelFull",
    "ConfigurationError",
    "DamagedLog",
    "DeadlinePassed",
    "EndPointExists",
    "FrameTooLarge",
    "GridStatError",
    "GroupMismatch",
    "IntervalNotSatisfiable",
    "InvalidPeriod",
    "LatencyNotSatisfiable",
    "LayoutError",
    "LimitReached",
    "LinkDown",
    "LogFull",
    "Malformed",
    "MalformedEpoch",
    "MalformedFrame",
    "MalformedLength",
    "MalformedOption",
    "MalformedShort",
    "MalformedVersion",
    "Misuse",
    "ModeNotDefined",
    "NoCommonSchema",
    "NoCommonVersion",
    "NoSuchChannel",
    "NoSuchRouter",
    "NoSuchSubscription",
    "NoSuchVariable",
    "NotAttached",
    "NotAuthorised",
    "NotPublished",
    "NotReadOnly",
    "PathTooLong",
    "Preempted",
    "QuotaReached",
    "RecordsGone",
    "RedundancyNotSatisfiable",
    "Refused",
    "RouterFull",
    "SearchUndecided",
    "SecurityNotSatisfiable",
    "ShuttingDown",
    "SkewNotSatisfiable",
    "StaleTerm",
    "StillInUse",
    "StorageFailed",
    "TypeMismatch",
    "UnknownName",
    "VariableExists",
    "WrongCall",
    "WrongCloud",
]
