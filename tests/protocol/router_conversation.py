"""A router's agent, with a broker and end-points that the test plays message by message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.channel_security import HOP, Security
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import Submit
from gridstat.net.command.machine import Close, Connected, Disconnected, Received, Send, TimerFired
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    PathOrder,
    RouterAccepted,
    SourceOrder,
    VariableOrder,
)
from gridstat.net.command.session_messages import Hello
from gridstat.router import RouterAgent, RouterFacts
from gridstat.router.agent_events import ApplyTable, TableApplied

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.core.rows import CopyFacts
    from gridstat.net.command.messages import Message
    from gridstat.router import EdgeBounds
    from gridstat.router.agent_events import RouterEvent, RouterInstruction

BROKER = "broker/c1"
PMU = "endpoint/c1/north/pmu-1"
PMU_NAME = "c1/north/pmu-1"
EAST = ChannelOrder(channel_id=7, to="c1/e1", host="127.0.0.1", data_port=1, urgent_port=2)
WEST = SourceOrder(channel_id=3, sender="c1/w0", silent_ms_max=100)
VOLTAGE = VariableOrder(variable_id=1, period=Period(1, 60))
PATH = PathOrder(path_id=65_536, variable_id=1, channel_id=7)


class RouterConversation:
    """The agent under test, its clock, and all its messages so far."""

    def __init__(
        self,
        *,
        is_edge: bool = True,
        newest: Callable[[int], bytes | None] = lambda _: None,
        copies: Callable[[int], CopyFacts | None] = lambda _: None,
        edge_bounds: EdgeBounds | None = None,
        datagram_versions: tuple[int, ...] = (1, 2, 3),
        endpoint_security: Security = HOP,
    ) -> None:
        facts = RouterFacts(
            "c1/e0",
            "127.0.0.1",
            4_000,
            4_001,
            is_edge=is_edge,
            command_host="127.0.0.1",
            command_port=5_000,
            datagram_versions=datagram_versions,
            endpoint_security=endpoint_security,
        )
        self.agent = RouterAgent(facts, newest=newest, copies=copies, edge_bounds=edge_bounds)
        self.now_ns = 0

    def tell(self, event: RouterEvent) -> list[RouterInstruction]:
        return self.agent.handle(event, self.now_ns)

    def connect(self, peer: str, *, instance: str = "first") -> list[RouterInstruction]:
        role, _, name = peer.partition("/")
        return self.tell(Connected(peer, Hello(role=role, name=name, instance=instance)))

    def disconnect(self, peer: str) -> list[RouterInstruction]:
        return self.tell(Disconnected(peer))

    def hear(self, peer: str, message: Message) -> list[RouterInstruction]:
        return self.tell(Received(peer, message))

    def broker_says(self, message: Message) -> list[RouterInstruction]:
        return self.hear(BROKER, message)

    def submit(self, request_id: int, body: bytes = b"body") -> list[RouterInstruction]:
        return self.hear(PMU, Submit(request_id=request_id, body=body, signature=b"signed"))

    def accept(self, *, term: int = 1) -> list[RouterInstruction]:
        """Connect and accept as a broker; return all messages after the report."""
        self.connect(BROKER)
        return self.broker_says(RouterAccepted(term=term))

    def change(self, change: ChangeTable) -> list[Message]:
        """Send a change that the core applies at once; return the messages to the broker."""
        said = self.broker_says(change)
        heard = said_to(BROKER, said)
        for instruction in said:
            if isinstance(instruction, ApplyTable):
                heard += said_to(BROKER, self.tell(TableApplied(instruction.number)))
        return heard

    def fire(self, timer: str) -> list[RouterInstruction]:
        return self.tell(TimerFired(timer))


def said_to(peer: str, said: list[RouterInstruction]) -> list[Message]:
    return [each.message for each in said if isinstance(each, Send) and each.peer == peer]


def closings(said: list[RouterInstruction]) -> list[Close]:
    return [each for each in said if isinstance(each, Close)]
