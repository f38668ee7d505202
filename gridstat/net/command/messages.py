"""All messages of the command plane, and the union that a frame may hold."""

from __future__ import annotations

from typing import TypeAlias

from gridstat.net.command.endpoint_messages import (
    AddressProved,
    AddressRefused,
    Answer,
    AskAddress,
    Attach,
    AttachedOutcome,
    ChangePublication,
    ChangeSubscription,
    ContractChanged,
    Detach,
    DoneOutcome,
    EdgeCopies,
    EndPointCommand,
    EventsPoliced,
    FindVariables,
    FoundOutcome,
    GrantedOutcome,
    GrantedPath,
    LedgerEntry,
    Matched,
    ModesChanged,
    Notice,
    Notify,
    Outcome,
    Outcomes,
    PathEntry,
    ProveAddress,
    PublicationChanged,
    PublicationRequest,
    Publish,
    PublishedOutcome,
    RefusedOutcome,
    ReportLedger,
    ResolvedOutcome,
    ResolveName,
    Submit,
    Subscribe,
    SubscriptionRequest,
    Unpublish,
    Unpublished,
    Unsubscribe,
)
from gridstat.net.command.operator_messages import (
    Account,
    AddChannel,
    AddNamedChannel,
    AddRouter,
    Explain,
    OperatorAnswer,
    OperatorCommand,
    RemoveChannel,
    RemoveNamedChannel,
    RemoveRouter,
    Survey,
    TreeCommand,
)
from gridstat.net.command.router_messages import (
    AttachmentChanged,
    BackPressureChanged,
    ChangeTable,
    ChannelOrder,
    ChannelSeed,
    ChannelStateChanged,
    DetachEndPoint,
    Forward,
    PathOrder,
    Push,
    ReportCounters,
    ReportRouter,
    Return,
    RouterAccepted,
    SeedAccepted,
    SourceOrder,
    TableChanged,
    TableRefused,
    VariableOrder,
)
from gridstat.net.command.segment_messages import SegmentMessage
from gridstat.net.command.session_messages import (
    MANY_MAX,
    SCHEMA_VERSION,
    SCHEMA_VERSION_MIN,
    Bye,
    Hello,
    Ping,
    Pong,
    Struct,
)
from gridstat.net.command.tree_messages import TreeMessage

Message: TypeAlias = (
    Hello
    | Ping
    | Pong
    | Bye
    | ReportRouter
    | TableChanged
    | TableRefused
    | ChannelStateChanged
    | BackPressureChanged
    | ReportCounters
    | Forward
    | AttachmentChanged
    | SeedAccepted
    | ChannelSeed
    | AskAddress
    | ProveAddress
    | AddressProved
    | AddressRefused
    | ChangeTable
    | RouterAccepted
    | Return
    | Push
    | DetachEndPoint
    | Submit
    | Answer
    | Notify
    | OperatorCommand
    | OperatorAnswer
    | TreeCommand
    | TreeMessage
    | SegmentMessage
)

__all__ = [
    "MANY_MAX",
    "SCHEMA_VERSION",
    "SCHEMA_VERSION_MIN",
    "Account",
    "AddChannel",
    "AddNamedChannel",
    "AddRouter",
    "AddressProved",
    "AddressRefused",
    "Answer",
    "AskAddress",
    "Attach",
    "AttachedOutcome",
    "AttachmentChanged",
    "BackPressureChanged",
    "Bye",
    "ChangePublication",
    "ChangeSubscription",
    "ChangeTable",
    "ChannelOrder",
    "ChannelSeed",
    "ChannelStateChanged",
    "ContractChanged",
    "Detach",
    "DetachEndPoint",
    "DoneOutcome",
    "EdgeCopies",
    "EndPointCommand",
    "EventsPoliced",
    "Explain",
    "FindVariables",
    "Forward",
    "FoundOutcome",
    "GrantedOutcome",
    "GrantedPath",
    "Hello",
    "LedgerEntry",
    "Matched",
    "Message",
    "ModesChanged",
    "Notice",
    "Notify",
    "OperatorAnswer",
    "OperatorCommand",
    "Outcome",
    "Outcomes",
    "PathEntry",
    "PathOrder",
    "Ping",
    "Pong",
    "ProveAddress",
    "PublicationChanged",
    "PublicationRequest",
    "Publish",
    "PublishedOutcome",
    "Push",
    "RefusedOutcome",
    "RemoveChannel",
    "RemoveNamedChannel",
    "RemoveRouter",
    "ReportCounters",
    "ReportLedger",
    "ReportRouter",
    "ResolveName",
    "ResolvedOutcome",
    "Return",
    "RouterAccepted",
    "SeedAccepted",
    "SegmentMessage",
    "SourceOrder",
    "Struct",
    "Submit",
    "Subscribe",
    "SubscriptionRequest",
    "Survey",
    "TableChanged",
    "TableRefused",
    "TreeMessage",
    "Unpublish",
    "Unpublished",
    "Unsubscribe",
    "VariableOrder",
]
