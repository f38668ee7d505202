"""Sessions between simulated processes: ordered streams that take time, break, and come back.

Both ends of a broken session learn of the break at different times, by a reset or by unanswered
pings, and messages in transit are lost. A client dials again with back-off, as
`net/command/dialer.py` does; a server keeps one session a peer, as `net/command/session_table.py`
does.
"""

from __future__ import annotations

from heapq import heappush
from typing import TYPE_CHECKING, Any, Final

from gridstat.net.command.frames import decode_message, encode_body
from gridstat.net.command.machine import Connected, Disconnected, Received
from gridstat.net.command.session_messages import Ping, Pong
from gridstat.net.command.session_settings import SessionSettings
from lab.simulation.model_keys import KeyBoard
from lab.simulation.world import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.net.command.messages import Hello, Message
    from lab.simulation.node import Node
    from lab.simulation.world import World

DELAY_NS_MIN: Final = 100_000
BACK_OFF_FIRST_NS: Final = 50 * NS_PER_MS
BACK_OFF_MOST_NS: Final = 2 * NS_PER_S
SETTINGS: Final = SessionSettings()
PING_NS: Final = int(SETTINGS.ping_interval_s * NS_PER_S)
SILENT_INTERVALS_MAX: Final = SETTINGS.silent_intervals_max
RESET_NS_MAX: Final = 5 * NS_PER_MS
ENCODED_SHARE: Final = 32
"""One message in so many is encoded and decoded, and the first of each kind."""


class Session:
    """One connection; if `is_cut`, no message passes, whether or not an end has noticed.

    Each side counts the intervals in which it received nothing, as `net/command/session.py` does.
    """

    __slots__ = (
        "client",
        "has_client_heard",
        "has_server_heard",
        "instance",
        "is_at_client",
        "is_at_server",
        "is_cut",
        "link",
        "network",
        "pings",
        "server",
        "silence_at_client",
        "silence_at_server",
        "slowness_ns",
        "to_client_ns",
        "to_server_ns",
    )

    def __init__(self, network: Network, link: Link, server: Node) -> None:
        self.network = network
        self.link = link
        self.client = link.client
        self.server = server
        self.instance = link.client.instance
        self.is_at_client = False
        self.is_at_server = False
        self.is_cut = False
        self.has_client_heard = self.has_server_heard = True
        self.silence_at_client = self.silence_at_server = 0
        self.pings = 0
        self.slowness_ns = network.slowness_ns(self)
        self.to_client_ns = 0
        self.to_server_ns = 0

    def send(self, sender: Node, message: Message) -> None:
        network = self.network
        world = network.world
        world.messages += 1
        if self.is_cut:
            return
        kind = type(message)
        body = encode_body(message)
        world.mark(sender.number, body)
        if (
            kind not in network.encoded
            or not world.messages % ENCODED_SHARE
            or network.is_all_encoded
        ):
            network.encoded.add(kind)
            message = read_body(body)
        draw = world.draw
        at_ns = world.now_ns + network.delay_ns_min + int(draw() * network.delay_ns_max)
        at_ns += self.slowness_ns
        if sender is self.client:
            if at_ns <= self.to_server_ns:
                at_ns = self.to_server_ns + 1
            self.to_server_ns = at_ns
            heappush(world.heap, (at_ns, draw(), self.reach_server, (message, body)))
        else:
            if at_ns <= self.to_client_ns:
                at_ns = self.to_client_ns + 1
            self.to_client_ns = at_ns
            heappush(world.heap, (at_ns, draw(), self.reach_client, (message, body)))

    def reach_server(self, message: Message, body: bytes) -> None:
        """Deliver a message unless its session is gone; `body` is the message's bytes."""
        if self.is_at_server and not self.is_cut:
            self.network.world.mark(self.server.number, body)
            self.has_server_heard = True
            if isinstance(message, Ping):
                self._answer(self.server, message)
            elif not isinstance(message, Pong):
                self.server.tell(Received(self.client.peer, message))

    def reach_client(self, message: Message, body: bytes) -> None:
        if self.is_at_client and not self.is_cut:
            self.network.world.mark(self.client.number, body)
            self.has_client_heard = True
            if isinstance(message, Ping):
                self._answer(self.client, message)
            elif not isinstance(message, Pong):
                self.client.tell(Received(self.server.peer, message))

    # Liveness of the other side.

    def watch(self) -> None:
        """Check liveness every interval from now on, until both sides have left the session."""
        self.network.world.after(PING_NS, self._tick)

    def _tick(self) -> None:
        is_client_left = self.link.session is not self
        if is_client_left and not self.is_at_server:
            return
        if not is_client_left and not self.client.is_paused:
            if self.has_client_heard:
                self.has_client_heard = False
                self.silence_at_client = 0
            else:
                self.silence_at_client += 1
                if self.silence_at_client >= SILENT_INTERVALS_MAX:
                    self._give_up(self.client)
                else:
                    self._ping(self.client)
        if self.is_at_server and not self.server.is_paused:
            if self.has_server_heard:
                self.has_server_heard = False
                self.silence_at_server = 0
            else:
                self.silence_at_server += 1
                if self.silence_at_server >= SILENT_INTERVALS_MAX:
                    self._give_up(self.server)
                else:
                    self._ping(self.server)
        self.watch()

    def _ping(self, sender: Node) -> None:
        self.pings += 1
        self.send(sender, Ping(number=self.pings))

    def _answer(self, node: Node, ping: Ping) -> None:
        if not node.is_paused:
            self.send(node, Pong(number=ping.number))

    def _give_up(self, node: Node) -> None:
        """Close the session for a side that has received nothing for too long."""
        if not self.is_cut:
            self.close(node)
        elif node is self.client:
            self.lose_at_client()
        else:
            self.lose_at_server()

    # Ends of a session.

    def cut(self) -> None:
        """Let no message pass from now on; both ends notice sooner or later."""
        if self.is_cut:
            return
        self.is_cut = True
        world = self.network.world
        for lose in (self.lose_at_client, self.lose_at_server):
            # A reset is seen at once, a dead wire only by a ping that is not answered.
            if world.chance(0.5):
                world.after(world.between(0, RESET_NS_MAX), lose)

    def close(self, closer: Node) -> None:
        """Close one end with a Bye, which arrives after all messages that were sent before."""
        network = self.network
        delay_ns = network.delay_ns() + self.slowness_ns
        if closer is self.client:
            at_ns = max(network.world.now_ns + delay_ns, self.to_server_ns + 1)
            network.world.at(at_ns, self.lose_at_server)
            self.lose_at_client()
        else:
            at_ns = max(network.world.now_ns + delay_ns, self.to_client_ns + 1)
            network.world.at(at_ns, self.lose_at_client)
            self.lose_at_server()

    def lose_at_client(self) -> None:
        if self.is_at_client:
            self.is_at_client = False
            if self.client.sessions.get(self.server.peer) is self:
                del self.client.sessions[self.server.peer]
                self.client.tell(Disconnected(self.server.peer))
        if self.link.session is self:
            self.link.session = None
            self.link.dial_later()

    def lose_at_server(self) -> None:
        if self.is_at_server:
            self.is_at_server = False
            if self.server.sessions.get(self.client.peer) is self:
                del self.server.sessions[self.client.peer]
                self.server.tell(Disconnected(self.client.peer))


class Link:
    """A client's link to a peer: it dials until it is stopped."""

    __slots__ = ("_back_off_ns", "_is_due", "client", "is_stopped", "network", "peer", "session")

    def __init__(self, network: Network, client: Node, peer: str) -> None:
        self.network = network
        self.client = client
        self.peer = peer
        self.session: Session | None = None
        self.is_stopped = False
        self._is_due = False
        self._back_off_ns = BACK_OFF_FIRST_NS

    def dial_later(self) -> None:
        if self.is_stopped or self._is_due:
            return
        self._is_due = True
        world = self.network.world
        wait_ns = int(self._back_off_ns * (0.5 + 0.5 * world.draw()))
        self._back_off_ns = min(2 * self._back_off_ns, BACK_OFF_MOST_NS)
        world.after(wait_ns, self.dial)

    def dial(self) -> None:
        self._is_due = False
        if self.is_stopped or self.session is not None:
            return
        network = self.network
        server = network.server_for(self.client, self.peer)
        if server is None or self.client.is_paused:
            self.dial_later()
            return
        session = self.session = Session(network, self, server)
        network.world.after(network.delay_ns() * 3, self._arrive, session, server.process)

    def stop(self) -> None:
        """Stop dialing, since the client needs no session any more or has ended."""
        self.is_stopped = True
        self.session = None

    def _arrive(self, session: Session, process: int) -> None:
        """Handle the client's Hello at the server."""
        server, client = session.server, self.client
        if self.session is not session:
            return
        is_there = server.is_up and server.process == process and not server.is_paused
        older = server.sessions.get(client.peer)
        if older is not None and older.instance != session.instance and not _is_silent(older):
            is_there = False  # Another process is connected under this name.
        if not is_there or session.is_cut or server.refuses(client.peer):
            self.session = None
            self.dial_later()
            return
        if older is not None:
            older.is_cut = True
            older.lose_at_server()
        network = self.network
        network.world.messages += 2  # Both sides send Hello.
        network.world.mark(server.number, encode_body(client.hello))
        session.is_at_server = True
        session.watch()
        server.sessions[client.peer] = session
        at_ns = network.world.now_ns + network.delay_ns() + session.slowness_ns
        session.to_client_ns = at_ns
        network.world.at(at_ns, self._accepted, session, server.hello)
        server.tell(Connected(client.peer, client.hello))

    def _accepted(self, session: Session, hello: Hello) -> None:
        """Handle the server's Hello at the client."""
        if self.session is not session or session.is_cut:
            return  # The cut itself informs both ends.
        session.is_at_client = True
        self.network.world.mark(self.client.number, encode_body(hello))
        self.client.sessions[session.server.peer] = session
        self._back_off_ns = BACK_OFF_FIRST_NS
        self.client.tell(Connected(session.server.peer, hello))


def _is_silent(session: Session) -> bool:
    return session.silence_at_server > 1 and not session.has_server_heard


class Network:
    """Every process by its peer name, the delays of messages, and partitions."""

    def __init__(self, world: World, *, delay_ns_max: int, is_all_encoded: bool) -> None:
        self.world = world
        self.nodes: dict[str, Node] = {}
        self.is_all_encoded = is_all_encoded
        self.encoded: set[type[Message]] = set()
        """Kinds of messages that were encoded and decoded in this seed."""
        self.impostor: Node | None = None
        """Broker of an older term that some routers still reach."""
        self.apart: set[str] = set()
        """Peers on the far side of a partition."""
        self.away: set[str] = set()
        """Peers that nobody answers."""
        self.slow: dict[str, int] = {}
        self.keys = KeyBoard()
        self.delay_ns_min = DELAY_NS_MIN
        self.delay_ns_max = delay_ns_max

    def delay_ns(self) -> int:
        return self.delay_ns_min + int(self.world.draw() * self.delay_ns_max)

    def slowness_ns(self, session: Session) -> int:
        slow = self.slow
        if not slow:
            return 0
        return slow.get(session.client.peer, 0) + slow.get(session.server.peer, 0)

    def connect(self, client: Node, peer: str) -> Link:
        """Keep a session to a peer from now on."""
        link = Link(self, client, peer)
        client.links[peer] = link
        self.world.after(self.delay_ns(), link.dial)
        return link

    def server_for(self, client: Node, peer: str) -> Node | None:
        """Return the process that answers a call, if any does."""
        server = self.nodes.get(peer)
        if self.impostor is not None and peer == self.impostor.peer and self.world.chance(0.5):
            server = self.impostor
        if server is None or not server.is_up or server.is_paused or client.peer in self.away:
            return None
        if self.apart and (client.peer in self.apart) != (server.peer in self.apart):
            return None
        return server

    def separate(self, peers: set[str]) -> None:
        """Separate these peers from all others; sessions among them stay."""
        self.apart = peers
        for peer in sorted(peers):
            node = self.nodes.get(peer)
            for other in sorted(node.sessions) if node is not None else ():
                if other not in peers and node is not None:
                    node.sessions[other].cut()

    def separate_all(self, peer: str) -> None:
        """Cut all sessions of a client; the servers notice at once."""
        for _, session in sorted(self.nodes[peer].sessions.items()):
            session.cut()
            session.lose_at_server()

    def kill(self, node: Node, *, is_sudden: bool) -> None:
        """End the sessions of a process: without notice if sudden, else with a Bye."""
        for link in node.links.values():
            session = link.session
            link.stop()
            if session is not None:
                self._orphan(session, node, is_sudden=is_sudden)
        for _, session in sorted(node.sessions.items()):
            if session.server is node:
                self._orphan(session, node, is_sudden=is_sudden)
        node.links.clear()
        node.sessions.clear()

    def _orphan(self, session: Session, dead: Node, *, is_sudden: bool) -> None:
        is_client = session.client is dead
        if is_client:
            session.is_at_client = False
        else:
            session.is_at_server = False
        lose: Callable[[], Any] = session.lose_at_server if is_client else session.lose_at_client
        if is_sudden:
            session.is_cut = True  # The other side notices by its pings.
        else:
            sent_ns = session.to_server_ns if is_client else session.to_client_ns
            self.world.at(max(self.world.now_ns + self.delay_ns(), sent_ns + 1), lose)


def read_body(body: bytes) -> Message:
    """Decode a message as its receiver does."""
    found = decode_message(body)
    assert found is not None
    return found
