"""Who may send which message to whom: the table that the tests of access are generated from.

A route is a sender and a receiver. A message that no route names may be sent by nobody, and a new
message without a route fails `test_message_routes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, get_args

import msgspec

from gridstat.net.command import messages
from gridstat.net.command.operator_messages import (
    Account,
    AddChannel,
    AddChild,
    AddNamedChannel,
    AddRouter,
    Explain,
    GrantAccess,
    ListAccess,
    ListFlooding,
    OperatorCommand,
    RemoveChannel,
    RemoveChild,
    RemoveFlooding,
    RemoveNamedChannel,
    RemoveRouter,
    RevokeAccess,
    SetAccessMode,
    SetFlooding,
    Survey,
    TreeCommand,
    WhyAccess,
)
from gridstat.net.command.router_messages import (
    AttachmentChanged,
    BackPressureChanged,
    ChangeTable,
    ChannelSeed,
    ChannelStateChanged,
    DetachEndPoint,
    Forward,
    Push,
    ReportCounters,
    ReportRouter,
    Return,
    RouterAccepted,
    SeedAccepted,
    TableChanged,
    TableRefused,
)
from gridstat.net.command.segment_messages import (
    AskContract,
    Commit,
    ContractEnded,
    ContractGranted,
    ContractRefused,
    EndContract,
    LookedUp,
    Lookup,
    LowerContract,
    NotReserved,
    Release,
    Released,
    Reserve,
    Reserved,
    SegmentBroken,
    SegmentRestored,
    SegmentsHeld,
    SegmentUp,
)
from gridstat.net.command.tree_messages import (
    AbstractLinksReported,
    AskNumbers,
    BorderChannelReported,
    BorderReported,
    BorderSeed,
    BorderSeedAccepted,
    BorderSeedWanted,
    CloseBorder,
    CloudsChanged,
    CommitFlooding,
    EndWatch,
    FloodingCommitted,
    FloodingEnded,
    FloodingRefused,
    FloodingReserved,
    JoinTree,
    NamesFound,
    NumbersLeased,
    OpenBorder,
    ReleaseFlooding,
    ReserveFlooding,
    TreeJoined,
    WantBorders,
    WatchNames,
)

# Receivers, and senders as each receiver knows them.

LEAF: Final = "leaf broker"
QOS: Final = "broker above clouds"
INNER: Final = "inner router"
EDGE: Final = "edge router"
END_POINT: Final = "end-point"
OPERATOR: Final = "operator"
NAMES: Final = "name service"

ROUTER: Final = "router"
PARENT: Final = "parent"
CHILD: Final = "child"
BROKER: Final = "broker"
STRANGER: Final = "strange broker"


@dataclass(frozen=True, slots=True)
class Route:
    """A sender and a receiver."""

    sender: str
    receiver: str

    def __str__(self) -> str:
        return f"{self.sender} to {self.receiver}"


OF_SESSIONS: Final[set[Any]] = {messages.Hello, messages.Ping, messages.Pong, messages.Bye}
"""Messages that a session answers itself; a receiver's machine never gets them."""

OF_ROUTERS: Final[set[Any]] = {
    ReportRouter,
    TableChanged,
    TableRefused,
    ChannelStateChanged,
    BackPressureChanged,
    ReportCounters,
    Forward,
    AttachmentChanged,
    SeedAccepted,
}
TO_ANY_ROUTER: Final[set[Any]] = {ChangeTable, RouterAccepted, ChannelSeed}
TO_EDGES: Final[set[Any]] = {Return, Push, DetachEndPoint}
OF_END_POINTS: Final[set[Any]] = {messages.Submit, SeedAccepted, messages.ProveAddress}
TO_END_POINTS: Final[set[Any]] = {
    messages.Answer,
    messages.Notify,
    ChannelSeed,
    messages.AskAddress,
    messages.AddressProved,
    messages.AddressRefused,
}
OF_OPERATORS: Final[set[Any]] = {*get_args(OperatorCommand), *get_args(TreeCommand)}
BOTH_WAYS_IN_A_TREE: Final[set[Any]] = {WatchNames, EndWatch, NamesFound}
OF_CHILDREN: Final[set[Any]] = BOTH_WAYS_IN_A_TREE | {
    JoinTree,
    CloudsChanged,
    BorderReported,
    AbstractLinksReported,
    BorderChannelReported,
    BorderSeedWanted,
    BorderSeedAccepted,
    AskNumbers,
    FloodingReserved,
    FloodingRefused,
    FloodingCommitted,
    FloodingEnded,
    AskContract,
    EndContract,
    LookedUp,
    Reserved,
    NotReserved,
    SegmentUp,
    Released,
    SegmentBroken,
    SegmentRestored,
    SegmentsHeld,
    LowerContract,
}
OF_PARENTS: Final[set[Any]] = BOTH_WAYS_IN_A_TREE | {
    TreeJoined,
    WantBorders,
    OpenBorder,
    CloseBorder,
    BorderSeed,
    NumbersLeased,
    ReserveFlooding,
    CommitFlooding,
    ReleaseFlooding,
    ContractGranted,
    ContractRefused,
    ContractEnded,
    Lookup,
    Reserve,
    Commit,
    Release,
}

ROUTES: Final[dict[Route, set[Any]]] = {
    Route(ROUTER, LEAF): OF_ROUTERS,
    Route(PARENT, LEAF): OF_PARENTS,
    Route(OPERATOR, LEAF): OF_OPERATORS,
    Route(PARENT, QOS): OF_PARENTS,
    Route(CHILD, QOS): OF_CHILDREN,
    Route(OPERATOR, QOS): OF_OPERATORS,
    Route(BROKER, INNER): TO_ANY_ROUTER,
    Route(BROKER, EDGE): TO_ANY_ROUTER | TO_EDGES,
    Route(END_POINT, EDGE): OF_END_POINTS,
    Route(EDGE, END_POINT): TO_END_POINTS,
    Route(BROKER, OPERATOR): {messages.OperatorAnswer},
    Route(ROUTER, NAMES): {messages.Submit},
    Route(END_POINT, NAMES): {messages.Submit},
    Route(OPERATOR, NAMES): {messages.Submit},
}
"""All that may be sent; a command that a broker does not support is refused in its answer."""

COMMANDS: Final[dict[str, set[Any]]] = {
    LEAF: {
        AddRouter,
        RemoveRouter,
        AddChannel,
        RemoveChannel,
        AddNamedChannel,
        RemoveNamedChannel,
        Explain,
        Survey,
        Account,
        SetFlooding,
        RemoveFlooding,
        ListFlooding,
        GrantAccess,
        RevokeAccess,
        ListAccess,
        WhyAccess,
        SetAccessMode,
    },
    QOS: {
        AddChannel,
        RemoveChannel,
        AddNamedChannel,
        RemoveNamedChannel,
        Explain,
        Survey,
        SetFlooding,
        RemoveFlooding,
        ListFlooding,
        AddChild,
        RemoveChild,
    },
}
"""Commands of operators that a kind of broker supports."""

EVERYTHING: Final[set[Any]] = set(get_args(messages.Message))


def bare(kind: type) -> Any:
    """Return a message without content, which nobody may look at before its type.

    It has a term, which shows whether its session counts, and the number of a request.
    """
    content = dict.fromkeys(kind.__struct_fields__)  # type: ignore[attr-defined]
    return kind(**content | {name: 1 for name in ("term", "request_id") if name in content})


def plain(kind: type) -> Any:
    """Return a well-formed message with as little content as its fields allow."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType | msgspec.inspect.DataclassType)
    needed = [field for field in info.fields if field.required or field.name == "term"]
    return kind(**{field.name: _least(field.type) for field in needed})


def _least(of: msgspec.inspect.Type) -> Any:
    """Return the least value of a type that a field may have."""
    found: Any
    match of:
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            found = max(1, of.ge or 0)
        case msgspec.inspect.StrType():
            found = ""
        case msgspec.inspect.BytesType():
            found = bytes(of.min_length or 0)
        case msgspec.inspect.BoolType():
            found = False
        case msgspec.inspect.VarTupleType():
            found = tuple(_least(of.item_type) for _ in range(of.min_length or 0))
        case msgspec.inspect.DictType():
            found = {}
        case msgspec.inspect.StructType() | msgspec.inspect.DataclassType():
            found = plain(of.cls)
        case msgspec.inspect.UnionType():
            found = _least(of.types[0])
        case _:
            raise AssertionError(of)
    return found


def wrong_messages(route: Route) -> list[Any]:
    """Return the messages that this sender may not send to this receiver."""
    allowed = ROUTES.get(route, set())
    return sorted(EVERYTHING - OF_SESSIONS - allowed, key=lambda kind: kind.__name__)
