"""A publisher on paper: its senders only note what they are to send."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gridstat.endpoint.change_notifier import ChangeNotifier
from gridstat.endpoint.options import periodic_variable
from gridstat.endpoint.outgoing_channels import OutgoingChannels
from gridstat.endpoint.publication_registry import PublicationRegistry
from gridstat.endpoint.publisher import Publication
from gridstat.model.identifiers import VariableId
from gridstat.model.status import BuiltinType
from gridstat.net.clock import SystemClock
from gridstat.net.command.endpoint_messages import AttachedOutcome, PublishedOutcome
from tests.unit.endpoint.paper_grid import PaperCloud

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.endpoint.change import Change
    from gridstat.model.derived import Derivation
    from gridstat.model.rate_law import Period
    from gridstat.model.status import StatusVariable, ValueType

NAME = "c1/a/v"


@dataclass(slots=True)
class PaperSender:
    """Notes what is sent; `takes` says whether the kernel has room."""

    channel_id: int
    address: tuple[str, int, int]
    datagram_version: int = 1
    counter_start: int = 0
    is_sealed: bool = False
    counter: int = 7
    takes: bool = True
    is_closed: bool = False
    sent: list[tuple[int, Any, dict[str, Any]]] = field(default_factory=list)
    """Events since their sequences began."""

    def send(self, variable_id: int, value: Any, **words: Any) -> bool:
        assert not self.is_closed
        self.sent.append((variable_id, value, words))
        return self.takes

    def send_many(self, ids: Any, values: Any, stamps: Any, *, flags: int) -> int:
        self.sent += [
            (int(i), v, {"created_ns": int(s), "flags": flags})
            for i, v, s in zip(ids, values, stamps, strict=True)
        ]
        return len(ids)

    def retarget(self, address: tuple[str, int, int]) -> None:
        self.address = address

    def restart_sequences(self) -> None:
        self.sent.clear()

    def counters(self) -> dict[str, int]:
        return {"events": len(self.sent)}

    def close(self) -> None:
        self.is_closed = True


class Station:
    """A simulated publisher, attached to a given number of edges."""

    def __init__(self, *edges: str) -> None:
        self.senders: list[PaperSender] = []
        self.channels = OutgoingChannels(self._make)  # type: ignore[arg-type]
        self.cloud = PaperCloud()
        self.told: list[Change] = []
        """All changes that the callback of the connection received."""
        self.notifier = ChangeNotifier(lambda work: work(), SystemClock(), self.told.append)
        self.book = PublicationRegistry(self.cloud, self.channels, self.notifier)
        for number, edge in enumerate(edges, start=1):
            self.channels.open(edge, attached(edge, number))

    def _make(self, channel_id: int, address: tuple[str, int, int], **words: Any) -> PaperSender:
        sender = PaperSender(channel_id, address, **words)
        self.senders.append(sender)
        return sender

    def publish(
        self,
        value_type: ValueType = BuiltinType.FLOAT64,
        derived: Sequence[Derivation] = (),
        replay_speed: int = 0,
    ) -> Publication:
        wishes = {"rate": 60, "derived": derived, "replay_speed": replay_speed}
        asked = periodic_variable(NAME, value_type, wishes)  # type: ignore[arg-type]
        return self.accept(asked, derived)

    def accept(self, asked: StatusVariable, derived: Sequence[Derivation] = ()) -> Publication:
        self.cloud.ready.append((PublishedOutcome(variable=numbered(asked, 5)),))
        (found,) = self.book.publish([(asked, derived)])
        assert isinstance(found, Publication), found
        return found

    @property
    def open_senders(self) -> list[PaperSender]:
        return [sender for sender in self.senders if not sender.is_closed]

    def sent(self, at: int = 0) -> list[tuple[int, Any]]:
        return [(number, value) for number, value, _ in self.open_senders[at].sent]


def attached(edge: str, channel: int, port: int = 4_000) -> AttachedOutcome:
    return AttachedOutcome(
        edge=edge,
        host="127.0.0.1",
        data_port=port,
        urgent_port=port + 1,
        up_channel_id=channel,
        down_channel_id=channel + 100,
    )


def numbered(of: StatusVariable, variable_id: int, period: Period | None = None) -> StatusVariable:
    return replace(of, variable_id=VariableId(variable_id), period=period or of.period)
