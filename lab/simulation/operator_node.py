"""A simulated operator: changes the cloud at run time, and repeats commands until answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gridstat.net.command.machine import Connected, Received, Send
from gridstat.net.command.operator_messages import OperatorAnswer
from lab.simulation.node import Node
from lab.simulation.topology import CLOUD

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.net.command.operator_messages import OperatorCommand, TreeCommand
    from lab.simulation.network import Network, Session

    AnyCommand: TypeAlias = OperatorCommand | TreeCommand


class OperatorNode(Node):
    """Operator with one command at a time, sent again on every new session until it is answered."""

    role = "operator"

    def __init__(
        self, network: Network, number: int, broker: str = CLOUD, person: str = "alice"
    ) -> None:
        super().__init__(network, f"{broker}/{person}", number)
        self._broker = f"broker/{broker}"
        self._waiting: list[tuple[AnyCommand, Callable[[OperatorAnswer], None]]] = []
        self._request_id = 0
        self.was_repeated = False
        """Whether the waiting or last answered command may have been received before."""

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    @property
    def session(self) -> Session | None:
        """The session with the broker, or None."""
        return self.sessions.get(self._broker)

    @property
    def is_at_present_broker(self) -> bool:
        """True if the session leads to the broker of now, and not to one that it has replaced."""
        session = self.session
        return session is not None and session.server is self.network.nodes[self._broker]

    def start(self) -> None:
        self.begin(self)
        self.network.connect(self, self._broker)

    def next_id(self) -> int:
        self._request_id += 1
        return self._request_id

    def ask(self, command: AnyCommand, then: Callable[[OperatorAnswer], None]) -> None:
        self._waiting.append((command, then))
        if len(self._waiting) == 1:
            self.was_repeated = False
            self._send(Send(self._broker, command))

    def handle(self, event: object, now_ns: int) -> list[object]:
        """Handle an event as the simplest kind of machine."""
        del now_ns
        if isinstance(event, Connected):
            self.was_repeated = True
            return [Send(self._broker, self._waiting[0][0])] if self._waiting else []
        if isinstance(event, Received) and isinstance(event.message, OperatorAnswer):
            return self._answered(event.message)
        return []

    def _answered(self, answer: OperatorAnswer) -> list[object]:
        if not self._waiting or self._waiting[0][0].request_id != answer.request_id:
            return []
        _, then = self._waiting.pop(0)
        then(answer)
        self.was_repeated = False
        return [Send(self._broker, self._waiting[0][0])] if self._waiting else []
