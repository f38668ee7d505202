"""What operators ask of a broker: changes of the cloud, and explanations."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec

from gridstat.model.cloud import EventChannel, Router
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.net.command.session_messages import NameText, Struct

Modes: TypeAlias = Annotated[tuple[int, ...], msgspec.Meta(max_length=64)]


class AddRouter(Struct, frozen=True):
    """A new router, at run time."""

    request_id: int
    router: Router


class RemoveRouter(Struct, frozen=True):
    """Refused while subscriptions depend on the router."""

    request_id: int
    name: str


class AddChannel(Struct, frozen=True):
    """`channel_id` 0 lets the broker choose."""

    request_id: int
    channel: EventChannel


class RemoveChannel(Struct, frozen=True):
    """Refused while subscriptions depend on the channel."""

    request_id: int
    from_router: str
    to_router: str


class Explain(Struct, frozen=True):
    """All that the broker knows of a variable: who publishes, who takes it, by which paths."""

    request_id: int
    name: str


class Survey(Struct, frozen=True):
    """The whole cloud at a glance: routers, channels, publications, subscriptions, figures."""

    request_id: int


class Account(Struct, frozen=True):
    """Every contract with its ledger, page by page, for whoever keeps them; and all counters.

    The first page (`after` 0) has the counters of routers and channels. `next` in the facts is
    what to ask for next, 0 after the last page.
    """

    request_id: int
    after: int = 0


class SetFlooding(Struct, frozen=True):
    """Flood a variable in the scope of the broker that is asked; without modes, in all of them.

    Modes that the broker does not define are refused; a daemon defines none yet.
    With a divisor only every n-th slot. Admitted like any stream, or refused with the bottleneck.
    """

    since: ClassVar[int] = 3

    request_id: int
    name: NameText
    modes: Modes = ()
    every: int = 1


class RemoveFlooding(Struct, frozen=True):
    """No longer flood it in these modes; without modes, in none."""

    since: ClassVar[int] = 3

    request_id: int
    name: NameText
    modes: Modes = ()


class ListFlooding(Struct, frozen=True):
    """Which variables flood, how far, in which modes, and who asked for it, page by page.

    `next` in the facts is the name after which to ask for more, empty with the last page.
    """

    since: ClassVar[int] = 3

    request_id: int
    after: str = ""


class AddChild(Struct, frozen=True):
    """A broker above clouds gets another child, which joins when it dials."""

    request_id: int
    name: NameText


class RemoveChild(Struct, frozen=True):
    """Refused while contracts cross the child, or channels lead to it."""

    request_id: int
    name: NameText


class OperatorAnswer(Struct, frozen=True):
    """`facts` is plain data for people and JSON; a refusal says why instead."""

    request_id: int
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    refused: RefusedOutcome | None = None


OperatorCommand: TypeAlias = (
    AddRouter
    | RemoveRouter
    | AddChannel
    | RemoveChannel
    | Explain
    | Survey
    | Account
    | SetFlooding
    | RemoveFlooding
    | ListFlooding
)

TreeCommand: TypeAlias = AddChild | RemoveChild
"""What only a broker above clouds is asked."""
