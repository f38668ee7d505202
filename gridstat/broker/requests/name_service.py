"""Where a name can be reached: routers by what they reported (S0 §2.3.8).

The broker process answers this on a listener of its own, for any valid certificate, so that an
end-point or router that knows only its broker's address finds its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.requests.outcomes import encode_outcomes, refused
from gridstat.model.errors import (
    GridStatError,
    LinkDown,
    NoSuchRouter,
    NotAuthorised,
)
from gridstat.net.command.endpoint_messages import (
    Answer,
    ResolvedOutcome,
    ResolveName,
    Submit,
)
from gridstat.net.command.frames import decode_command
from gridstat.net.command.machine import Received, Send

if TYPE_CHECKING:
    from gridstat.broker.records.registry import Registry
    from gridstat.net.command.endpoint_messages import Outcome
    from gridstat.net.command.machine import Event, Instruction


def resolve(registry: Registry, name: str) -> ResolvedOutcome:
    """Raises `NoSuchRouter`, or `LinkDown` for one that has not told its address yet."""
    if name not in registry.routers:
        raise NoSuchRouter(f"cloud {registry.cloud} has no router {name[:80]}")
    report = registry.reports.get(name)
    if report is None or report.command_port == 0:
        raise LinkDown(f"router {name} has not said yet where it listens")
    return ResolvedOutcome(host=report.command_host or report.host, port=report.command_port)


class NameService:
    """A machine that answers names and nothing else; it changes nothing, so nothing is signed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._broker: ResolvedOutcome | None = None

    def listen_at(self, host: str, port: int) -> None:
        """Where the broker itself takes commands; its name is the cloud's."""
        self._broker = ResolvedOutcome(host=host, port=port)

    def handle(self, event: Event, now_ns: int) -> list[Instruction]:
        del now_ns  # A name is where it is, at any time.
        if isinstance(event, Received) and isinstance(event.message, Submit):
            body = encode_outcomes((self._answer(event.message.body),))
            return [Send(event.peer, Answer(request_id=event.message.request_id, body=body))]
        return []

    def _answer(self, body: bytes) -> Outcome:
        try:
            command = decode_command(body)
            if not isinstance(command, ResolveName):
                raise NotAuthorised("rule name service: only names are answered here")
            if command.name == self._registry.cloud and self._broker is not None:
                return self._broker
            return resolve(self._registry, command.name)
        except GridStatError as error:
            return refused(error)
