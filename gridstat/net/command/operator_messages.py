"""Requests of operators to a broker: changes of the cloud, flooding, and reports.

An operator sends a request on its own session; the broker answers each with one `OperatorAnswer` of
the same `request_id`, for changes after they are durable. Nothing is repeated: a request whose
session is lost may have been carried out, and the operator looks before asking again.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, TypeAlias

import msgspec

from gridstat.model.access_rules import AccessRule
from gridstat.model.cloud import EventChannel, Router
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.net.command.session_messages import Count, NameText, ShortText, Struct

NAMED_CHANNELS_SCHEMA: Final = 4
"""First schema with several channels between two routers."""
ACCESS_SCHEMA: Final = 4

Modes: TypeAlias = Annotated[tuple[int, ...], msgspec.Meta(max_length=64)]


class AddRouter(Struct, frozen=True):
    """Add a router to the cloud at run time."""

    request_id: int
    router: Router


class RemoveRouter(Struct, frozen=True):
    """Remove a router; refused while subscriptions depend on the router."""

    request_id: int
    name: str


class AddChannel(Struct, frozen=True):
    """Add a channel; `channel_id` 0 lets the broker choose the number."""

    request_id: int
    channel: EventChannel


class RemoveChannel(Struct, frozen=True):
    """Remove the channel without a name; refused while subscriptions depend on the channel."""

    request_id: int
    from_router: str
    to_router: str


class AddNamedChannel(Struct, frozen=True):
    """Add a channel that has a name or risks, as by `AddChannel`.

    A type of its own, since an older broker would ignore both.
    """

    since: ClassVar[int] = NAMED_CHANNELS_SCHEMA

    request_id: int
    channel: EventChannel


class RemoveNamedChannel(Struct, frozen=True):
    """Remove the channel of this name between two routers, as by `RemoveChannel`."""

    since: ClassVar[int] = NAMED_CHANNELS_SCHEMA

    request_id: int
    from_router: str
    to_router: str
    name: ShortText


class Explain(Struct, frozen=True):
    """Report all that the broker knows of a variable: publisher, subscribers and paths."""

    request_id: int
    name: str


class Survey(Struct, frozen=True):
    """Report the whole cloud: routers, channels, publications, subscriptions, figures."""

    request_id: int


class Account(Struct, frozen=True):
    """Report every contract with its ledger, in pages, and all counters.

    The first page (`after` 0) has the counters of routers and channels. `next` in the facts is the
    `after` of the next page, 0 with the last page.
    """

    request_id: int
    after: int = 0


class SetFlooding(Struct, frozen=True):
    """Flood a variable in the scope of this broker; without modes, in all modes.

    Undefined modes are refused; a daemon defines none yet. With a divisor only every n-th slot
    floods. The flood is admitted like any stream, or refused with the bottleneck.
    """

    since: ClassVar[int] = 3

    request_id: int
    name: NameText
    modes: Modes = ()
    every: int = 1


class RemoveFlooding(Struct, frozen=True):
    """Stop flooding a variable in these modes; without modes, in all modes."""

    since: ClassVar[int] = 3

    request_id: int
    name: NameText
    modes: Modes = ()


class ListFlooding(Struct, frozen=True):
    """List the flooded variables with level, modes and requester, in pages.

    `next` in the facts is the name after which to continue, empty with the last page.
    """

    since: ClassVar[int] = 3

    request_id: int
    after: str = ""


class GrantAccess(Struct, frozen=True):
    """Grant an access rule at run time; it replaces the rule of its identifier, if there is one.

    What the replaced rule allowed and no other rule allows is ended, as by `RevokeAccess`.
    """

    since: ClassVar[int] = ACCESS_SCHEMA

    request_id: int
    rule: AccessRule


class RevokeAccess(Struct, frozen=True):
    """Revoke an access rule, of the broker's file too, and end all that rests on it alone."""

    since: ClassVar[int] = ACCESS_SCHEMA

    request_id: int
    identifier: ShortText


class ListAccess(Struct, frozen=True):
    """List the access rules in pages, ordered by identifier, and whether they are enforced.

    `next` in the facts is the identifier after which to continue, empty with the last page.
    """

    since: ClassVar[int] = ACCESS_SCHEMA

    request_id: int
    after: ShortText = ""


class WhyAccess(Struct, frozen=True):
    """Report which rule allows an end-point an action, or what rule it would need.

    With `is_observed` the refusals are listed, in pages from `skip` on, that a cloud would have
    made which only observes.
    """

    since: ClassVar[int] = ACCESS_SCHEMA

    request_id: int
    who: NameText = ""
    action: ShortText = ""
    what: NameText = ""
    priority: int = 0
    role: ShortText = "endpoint"
    is_observed: bool = False
    skip: Count = 0


class SetAccessMode(Struct, frozen=True):
    """Enforce the access rules, or only observe what they would refuse; durable."""

    since: ClassVar[int] = ACCESS_SCHEMA

    request_id: int
    is_enforced: bool


class AddChild(Struct, frozen=True):
    """Add a child to a broker above clouds; the child joins when it connects."""

    request_id: int
    name: NameText


class RemoveChild(Struct, frozen=True):
    """Remove a child; refused while contracts cross the child, or channels end at it."""

    request_id: int
    name: NameText


class OperatorAnswer(Struct, frozen=True):
    """Answer to any request: `facts` is plain data for people and JSON; or `refused` has the
    reason."""

    request_id: int
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    refused: RefusedOutcome | None = None


OperatorCommand: TypeAlias = (
    AddRouter
    | RemoveRouter
    | AddChannel
    | RemoveChannel
    | AddNamedChannel
    | RemoveNamedChannel
    | Explain
    | Survey
    | Account
    | SetFlooding
    | RemoveFlooding
    | ListFlooding
    | GrantAccess
    | RevokeAccess
    | ListAccess
    | WhyAccess
    | SetAccessMode
)

TreeCommand: TypeAlias = AddChild | RemoveChild
"""Requests that only a broker above clouds accepts."""
