"""Proofs that end-points receive at the addresses that they name.

The sealed channel to an end-point is opened held, from a random counter: the core sends probes on
it and no events. The edge router asks the end-point over its session for a counter that it received
there (`AskAddress`), and the core compares the answer (`ProveAddress`) with the counters that it
has sent. Whoever knows one receives at the address, so nobody can aim events at the address of
others.

A channel is waiting (asked, until a deadline), proved, or stopped (nothing is sent, not even
probes): after the deadline, after too many wrong counters, or when the session ends before the
proof. While there is a session, a stopped channel is asked for again, in growing intervals: an
outage of the network must not stop it for good. A new session, or another address, begins anew. A
proved channel stays so while its order stays the same, whether or not there is a session.

Pure: `edge_router.py` calls it and returns its instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from gridstat.model.channel_security import SEALED_VERSION
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import (
    AddressProved,
    AddressRefused,
    AskAddress,
    ProveAddress,
)
from gridstat.net.command.machine import Note, Send, SetTimer
from gridstat.router.agent_events import CheckAddress, HoldChannel

if TYPE_CHECKING:
    from collections.abc import Container

    from gridstat.net.command.router_messages import ChangeTable, ChannelOrder
    from gridstat.router.agent_events import AddressChecked

    ProofInstruction: TypeAlias = Send | SetTimer | Note | CheckAddress | HoldChannel

ADDRESSES_TIMER: Final = "edge/addresses"
STEP_NS: Final = NS_PER_S // 2
PROOF_NS: Final = 5 * NS_PER_S
"""Time within which an end-point must prove its address."""
AGAIN_NS: Final = 30 * NS_PER_S
AGAIN_NS_MAX: Final = 600 * NS_PER_S
"""Time from a refusal until the proof begins again: the first, doubled each time up to the
longest."""
WRONG_MAX: Final = 64
"""Wrong counters of one wait; an honest end-point may answer with an old one, once or twice."""


@dataclass(slots=True)
class _Proof:
    order: ChannelOrder
    until_ns: int | None = None
    """End of the wait; None: proved, stopped, or without a session."""
    again_ns: int | None = None
    """When a stopped proof begins again; None: it is not stopped, or there is no session."""
    pause_ns: int = AGAIN_NS
    is_proved: bool = False
    wrong: int = 0


class AddressProofs:
    """Proofs of all sealed channels to end-points that the table names."""

    def __init__(self) -> None:
        self._proofs: dict[int, _Proof] = {}
        self._is_timed = False
        self.refused = 0
        """Addresses that were not proved in time, since the start."""

    def is_proved(self, channel_id: int) -> bool:
        proof = self._proofs.get(channel_id)
        return proof is not None and proof.is_proved

    def table_changed(
        self, change: ChangeTable, attached: Container[str], now_ns: int
    ) -> list[ProofInstruction]:
        """Ask for proofs of the channels that a change opens; forget those that it closes."""
        named = {order.channel_id for order in change.channels}
        gone = self._proofs.keys() - named if change.begins_anew else ()
        for channel_id in (*gone, *change.closed_channels):
            self._proofs.pop(channel_id, None)
        found: list[ProofInstruction] = []
        for order in change.channels:
            if not (order.is_endpoint and order.datagram_version == SEALED_VERSION):
                self._proofs.pop(order.channel_id, None)
                continue
            known = self._proofs.get(order.channel_id)
            if known is not None and known.order == order:
                continue
            self._proofs[order.channel_id] = proof = _Proof(order)
            if order.to in attached:
                found += self._begin(proof, now_ns)
            else:
                found.append(HoldChannel(order.channel_id, is_probed=False))
        return [*found, *self._time()]

    def arrived(self, endpoint: str, now_ns: int) -> list[ProofInstruction]:
        """Ask an end-point with a new session for the proofs that are missing; name the others."""
        found: list[ProofInstruction] = [
            _proved(proof.order)
            for _, proof in sorted(self._proofs.items())
            if proof.order.to == endpoint and proof.is_proved
        ]
        for proof in self._missing(endpoint):
            proof.pause_ns = AGAIN_NS
            found += self._begin(proof, now_ns)
        return [*found, *self._time()]

    def departed(self, endpoint: str) -> list[ProofInstruction]:
        """Stop the probes to addresses that are not proved: nobody is there to prove them."""
        return [self._stop(proof) for proof in self._missing(endpoint)]

    def received(self, endpoint: str, message: ProveAddress) -> list[ProofInstruction]:
        """Let the core check a counter, if it was asked for."""
        proof = self._proofs.get(message.channel_id)
        if proof is None or proof.order.to != endpoint or proof.until_ns is None:
            return []  # Closed or stopped meanwhile, or not its channel.
        return [CheckAddress(message.channel_id, message.counter)]

    def checked(self, event: AddressChecked, now_ns: int) -> list[ProofInstruction]:
        """Take the core's verdict: proved, or to be asked again."""
        proof = self._proofs.get(event.channel_id)
        if proof is None or proof.until_ns is None:
            return []
        if event.is_proved:
            proof.is_proved, proof.until_ns = True, None
            return [_proved(proof.order)]
        proof.wrong += 1
        if proof.wrong >= WRONG_MAX:
            refused = self._refuse(proof, f"{WRONG_MAX} counters were wrong", now_ns)
            return [*refused, *self._time()]
        return [_ask(proof.order)]

    def step(self, now_ns: int) -> list[ProofInstruction]:
        """Stop the channels whose wait is over; begin again with those stopped long ago."""
        self._is_timed = False
        found: list[ProofInstruction] = []
        for proof in self._proofs.values():
            if proof.until_ns is not None and proof.until_ns <= now_ns:
                reason = f"no counter came within {PROOF_NS // NS_PER_S} s"
                found += self._refuse(proof, reason, now_ns)
            elif proof.again_ns is not None and proof.again_ns <= now_ns:
                found += self._begin(proof, now_ns)
        return [*found, *self._time()]

    def _missing(self, endpoint: str) -> list[_Proof]:
        return [
            proof
            for _, proof in sorted(self._proofs.items())
            if proof.order.to == endpoint and not proof.is_proved
        ]

    def _begin(self, proof: _Proof, now_ns: int) -> list[ProofInstruction]:
        proof.until_ns, proof.again_ns, proof.wrong = now_ns + PROOF_NS, None, 0
        return [HoldChannel(proof.order.channel_id, is_probed=True), _ask(proof.order)]

    def _stop(self, proof: _Proof) -> HoldChannel:
        proof.until_ns = proof.again_ns = None
        return HoldChannel(proof.order.channel_id, is_probed=False)

    def _refuse(self, proof: _Proof, why: str, now_ns: int) -> list[ProofInstruction]:
        order, pause_ns = proof.order, proof.pause_ns
        self.refused += 1
        stopped = self._stop(proof)
        proof.again_ns, proof.pause_ns = now_ns + pause_ns, min(2 * pause_ns, AGAIN_NS_MAX)
        reason = (
            f"nothing shows that {order.to} receives at {order.host} port {order.data_port}: {why}"
        )
        hint = (
            "let UDP pass from the edge router to this address; it asks again in "
            f"{pause_ns // NS_PER_S} s"
        )
        facts = (("channel_id", order.channel_id), ("to", order.to), ("reason", reason))
        return [
            stopped,
            Send(
                f"endpoint/{order.to}",
                AddressRefused(channel_id=order.channel_id, reason=reason, hint=hint),
            ),
            Note("address_refused", facts, is_warning=True),
        ]

    def _time(self) -> list[ProofInstruction]:
        is_waiting = any(
            proof.until_ns is not None or proof.again_ns is not None
            for proof in self._proofs.values()
        )
        if self._is_timed or not is_waiting:
            return []
        self._is_timed = True
        return [SetTimer(ADDRESSES_TIMER, STEP_NS)]


def _ask(order: ChannelOrder) -> Send:
    return Send(f"endpoint/{order.to}", AskAddress(channel_id=order.channel_id))


def _proved(order: ChannelOrder) -> Send:
    return Send(f"endpoint/{order.to}", AddressProved(channel_id=order.channel_id))
