"""Keys of simulated channels: the real ratchets over a model of a core, and what must hold of them.

No datagram is simulated. A receiver authenticates what its sender would send at this moment. Every
key that a sender installs is remembered for the whole run: none may ever be installed a second
time, and each must have been accepted by a receiver before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gridstat.model.keys.channel_keys import ChannelKeys
from gridstat.model.keys.key_settings import KeySettings
from lab.simulation.world import NS_PER_MS, PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gridstat.model.keys.channel_keys import SeedInstalled
    from gridstat.net.command.router_messages import ChannelSeed
    from lab.simulation.world import World

SIMULATED_KEYS: Final = KeySettings(epoch_ms=4_000, reseed_ms=16_000)
"""Times short enough for several epochs and seeds in one run."""
STEP_NS: Final = 2_000 * NS_PER_MS
Channel = tuple[str, int]
"""The owner of a channel, and its number in the owner's scope."""


class KeyBoard:
    """Keys in use by all senders now, and all that were ever accepted or used."""

    def __init__(self) -> None:
        self.sending: dict[Channel, tuple[int, bytes, bytes]] = {}
        self._accepted: set[bytes] = set()
        self._used: dict[bytes, str] = {}

    def accept(self, keys: Iterable[tuple[int, bytes, bytes]]) -> None:
        self._accepted.update(key for _, key, _ in keys)

    def use(
        self, channel: Channel, who: str, key: tuple[int, bytes, bytes], *, is_first: bool
    ) -> None:
        """Note a key in use; `is_first` if it is the first of its seed."""
        before = self._used.get(key[1])
        if before is not None:
            raise PropertyBroken(
                "no key is used twice", f"{who} seals {channel} with a key of {before}"
            )
        if is_first and key[1] not in self._accepted:
            raise PropertyBroken(
                "a receiver holds a key before its first use", f"{who} on {channel}"
            )
        self._used[key[1]] = who
        self.sending[channel] = key


class ModelKeys:
    """Keys of one simulated process, in place of its core's."""

    def __init__(
        self, board: KeyBoard, world: World, who: str, owner_of: Callable[[int], str]
    ) -> None:
        self._board = board
        self._world = world
        self._who = who
        self._owner_of = owner_of
        self.accepted: dict[int, dict[int, tuple[bytes, bytes]]] = {}
        self._sending: set[int] = set()
        self._is_stepping = False
        """True while epochs follow one another; then a receiver may be down or behind."""
        self._goes_on = False
        """True while a channel is opened again, which may go on with its own key."""
        self.keys = ChannelKeys(self, world.random_bytes)

    def take(self, message: ChannelSeed) -> list[SeedInstalled]:
        """Take a seed as a router or an end-point does."""
        if message.first_epoch >= 0:
            self.keys.use(message.seed, message.first_epoch, self._world.now_ns)
            return []
        return self.keys.accept(message.seed, self._world.now_ns)

    def open_channel(self, channel_id: int) -> None:
        """Open a channel, or open it again: then its counter goes on, as in a real core."""
        goes_on = self._is_stepping = self._goes_on = channel_id in self._sending
        self.keys.channel_interrupted(channel_id)
        self.keys.channel_opened(channel_id, self._world.now_ns, goes_on=goes_on)
        self._is_stepping = self._goes_on = False

    def close_channel(self, channel_id: int) -> None:
        self.keys.channel_closed(channel_id)
        self._stop(channel_id)

    def open_source(self, channel_id: int) -> list[SeedInstalled]:
        self.accepted.setdefault(channel_id, {})
        return self.keys.source_opened(channel_id, self._world.now_ns)

    def close_source(self, channel_id: int) -> None:
        self.keys.source_closed(channel_id)
        self.accepted.pop(channel_id, None)

    def step(self) -> None:
        self._is_stepping = True
        self.keys.step(self._world.now_ns)
        self._is_stepping = False

    def crash(self) -> None:
        """Forget what this process sends: nothing any more."""
        for channel_id in tuple(self._sending):
            self._stop(channel_id)

    def disagreement(self) -> str | None:
        """Return a source whose sender has no key that is accepted here, if there is one."""
        for channel_id, accepted in self.accepted.items():
            sent = self._board.sending.get(self._channel(channel_id))
            if sent is None or accepted.get(sent[0]) != sent[1:]:
                return f"{self._who} accepts no key of the sender of channel {channel_id}"
        return None

    def _channel(self, channel_id: int) -> Channel:
        return self._owner_of(channel_id), channel_id

    def _stop(self, channel_id: int) -> None:
        self._sending.discard(channel_id)
        self._board.sending.pop(self._channel(channel_id), None)

    # What `ChannelKeys` asks of a core.

    def set_sending_key(self, channel_id: int, epoch: int, key: bytes, salt: bytes) -> None:
        is_first = not self._is_stepping
        self._sending.add(channel_id)
        channel = self._channel(channel_id)
        if self._goes_on and self._board.sending.get(channel) == (epoch, key, salt):
            return
        self._board.use(channel, self._who, (epoch, key, salt), is_first=is_first)

    def clear_sending_key(self, channel_id: int) -> None:
        self._stop(channel_id)

    def sending_state(self, channel_id: int) -> Mapping[str, Any]:
        del channel_id
        return {"datagrams": 0}

    def set_receiving_keys(self, channel_id: int, keys: Sequence[tuple[int, bytes, bytes]]) -> None:
        self.accepted[channel_id] = {epoch: (key, salt) for epoch, key, salt in keys}
        self._board.accept(keys)

    def receiving_state(self, channel_id: int) -> Mapping[str, Any]:
        sent = self._board.sending.get(self._channel(channel_id))
        seen: dict[str, tuple[int, ...]] = {
            "epochs": (),
            "dropped_epochs": (),
            "unknown_epochs": (),
        }
        if sent is not None:
            is_accepted = self.accepted[channel_id].get(sent[0]) == sent[1:]
            seen["epochs" if is_accepted else "unknown_epochs"] = (sent[0],)
        return seen


def unrest_of_keys(processes: Iterable[ModelKeys]) -> str | None:
    """Return a channel whose ends do not agree on a key, if there is one."""
    return next(filter(None, (each.disagreement() for each in processes)), None)
