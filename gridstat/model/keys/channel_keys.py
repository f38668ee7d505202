"""Keys of all channels of one process, in its core: installed, moved on, and dropped in time.

A seed may come before its channel is open; it waits, and is accepted when the channel opens. The
caller says when channels open and close, calls `step` often, and passes `SeedInstalled` on to the
giver of the seed. A channel that fails in the core holds up no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from gridstat.model.errors import GridStatError
from gridstat.model.keys.receiving_keys import ReceivingKeys, SeenEpochs
from gridstat.model.keys.sending_keys import SendingKeys
from gridstat.model.keys.trial_budget import TrialBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from gridstat.model.keys.key_settings import Seed

WAITING_MAX: Final = 4_096
"""Seeds that may wait for their channels."""
STEP_S: Final = 0.25
"""Interval of steps: a receiver moves on well before the sender's next epoch."""
_RANDOM_BYTES: Final = 8


class KeyCore(Protocol):
    """Part of a core that holds keys; a channel that is not open is never named to it."""

    def set_sending_key(self, channel_id: int, epoch: int, key: bytes, salt: bytes) -> None: ...
    def clear_sending_key(self, channel_id: int) -> None: ...
    def sending_state(self, channel_id: int) -> Mapping[str, Any]: ...
    def set_receiving_keys(
        self, channel_id: int, keys: Sequence[tuple[int, bytes, bytes]]
    ) -> None: ...
    def receiving_state(self, channel_id: int) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class SeedInstalled:
    """The receiving end of a channel accepts the keys of a seed, from this epoch on."""

    channel_id: int
    number: int
    first_epoch: int


@dataclass(frozen=True, slots=True)
class SeedOver:
    """A channel has stopped: its seed is too old, and no fresh one has come."""

    channel_id: int
    is_sender: bool


@dataclass(frozen=True, slots=True)
class SeedOverdue:
    """A channel has had no fresh seed for long, and will stop; said once until one comes."""

    channel_id: int
    is_sender: bool


@dataclass(frozen=True, slots=True)
class KeysFailed:
    """The core refused the key of a channel, which is tried again; said once until it succeeds."""

    channel_id: int
    is_sender: bool
    reason: str


KeyNews: TypeAlias = SeedOver | SeedOverdue | KeysFailed
_End: TypeAlias = tuple[int, bool]
"""A channel, and whether it is its sending end."""


class ChannelKeys:
    """Keys of the channels of one core; what was given for a closed channel is forgotten."""

    def __init__(self, core: KeyCore, random_bytes: Callable[[int], bytes]) -> None:
        self._core = core
        self._random_bytes = random_bytes
        self._channels: set[int] = set()
        self._sources: set[int] = set()
        self._sending: dict[int, SendingKeys] = {}
        self._receiving: dict[int, ReceivingKeys] = {}
        self._waiting_seeds: dict[int, Seed] = {}
        self._waiting_firsts: dict[int, tuple[Seed, int, int]] = {}
        """Seeds of channels that are not open, with the first epoch and the time of receipt."""
        self._over: set[int] = set()
        self._failed: set[_End] = set()
        """Ends whose core does not have the keys that it should have."""
        self._overdue: set[_End] = set()
        self._budget = TrialBudget()
        self.trials_dropped = 0
        """Turns to try epochs without a key that found the derivations of their step used up."""

    # Channels.

    def channel_opened(self, channel_id: int, now_ns: int, *, goes_on: bool = False) -> None:
        """Install a key in a channel that was opened, or opened again.

        Epochs have passed while it was closed, and the receiver has counted them. Unless its
        counter `goes_on`, a key that was in use is followed by another one in any case.
        """
        self._channels.add(channel_id)
        waiting = self._waiting_firsts.pop(channel_id, None)
        if waiting is not None:
            keys = self._sending[channel_id] = SendingKeys(*waiting)
            key = keys.step(now_ns, 0) or keys.key()
        elif channel_id in self._sending:
            keys = self._sending[channel_id]
            anew = keys.go_on if goes_on else keys.advance
            key = keys.step(now_ns, 0) or anew(now_ns)
        else:
            return
        if not keys.is_over(now_ns):  # The next step reports one that is.
            self._core.set_sending_key(channel_id, *key)

    def channel_interrupted(self, channel_id: int) -> None:
        """Note that a channel is about to close in the core; its keys wait for it."""
        if channel_id in self._channels and channel_id in self._sending:
            self._sending[channel_id].carry(self._core.sending_state(channel_id)["datagrams"])
        self._channels.discard(channel_id)

    def channel_closed(self, channel_id: int) -> None:
        self._channels.discard(channel_id)
        self._sending.pop(channel_id, None)
        self._waiting_firsts.pop(channel_id, None)
        self._failed.discard((channel_id, True))

    def source_opened(self, channel_id: int, now_ns: int) -> list[SeedInstalled]:
        """Accept the seed that waits for this source; reinstall the keys of one opened again."""
        self._sources.add(channel_id)
        seed = self._waiting_seeds.pop(channel_id, None)
        if seed is not None:
            return self.accept(seed, now_ns)
        keys = self._receiving.get(channel_id)
        if keys is not None:
            self._core.set_receiving_keys(channel_id, keys.keys())
        return []

    def source_closed(self, channel_id: int) -> None:
        self._sources.discard(channel_id)
        self._receiving.pop(channel_id, None)
        self._waiting_seeds.pop(channel_id, None)
        self._over.discard(channel_id)
        self._failed.discard((channel_id, False))

    # Seeds.

    def accept(self, seed: Seed, now_ns: int) -> list[SeedInstalled]:
        """Accept datagrams under a seed's keys, if the source is open, or else once it is."""
        channel_id = seed.channel_id
        if channel_id not in self._sources:
            _keep(self._waiting_seeds, channel_id, seed)
            return []
        keys = self._receiving.setdefault(channel_id, ReceivingKeys())
        randomness = int.from_bytes(self._random_bytes(_RANDOM_BYTES), "big")
        first_epoch = keys.accept(seed, now_ns, randomness)
        self._core.set_receiving_keys(channel_id, keys.keys())
        self._over.discard(channel_id)
        return [SeedInstalled(channel_id, seed.number, first_epoch)]

    def use(self, seed: Seed, first_epoch: int, now_ns: int) -> None:
        """Send under a seed's keys from the next datagram on, if the channel is open."""
        channel_id = seed.channel_id
        if channel_id not in self._channels:
            _keep(self._waiting_firsts, channel_id, (seed, first_epoch, now_ns))
            return
        keys = self._sending[channel_id] = SendingKeys(seed, first_epoch, now_ns)
        self._core.set_sending_key(channel_id, *keys.key())

    def forget_waiting(self, kept: Container[int] = ()) -> None:
        """Forget seeds without a channel, when the session that brought them has ended; those of
        `kept` channels came from elsewhere."""
        for waiting in (self._waiting_seeds, self._waiting_firsts):
            for channel_id in [each for each in waiting if each not in kept]:
                del waiting[channel_id]

    # Time.

    def step(self, now_ns: int) -> list[KeyNews]:
        """Begin epochs that are due, follow those of the senders, and end old seeds."""
        self._budget = TrialBudget()
        news: list[KeyNews] = []
        for channel_id in [each for each in self._sending if each in self._channels]:
            news += self._apart(self._step_sending, (channel_id, True), now_ns)
        for channel_id in list(self._receiving):
            news += self._apart(self._step_receiving, (channel_id, False), now_ns)
        self.trials_dropped += self._budget.dropped
        return [*news, *self._newly_overdue(now_ns)]

    def _newly_overdue(self, now_ns: int) -> list[SeedOverdue]:
        before, self._overdue = self._overdue, self._overdue_ends(now_ns)
        return [SeedOverdue(*end) for end in sorted(self._overdue - before)]

    def _apart(
        self, step: Callable[[int, int], list[KeyNews]], end: _End, now_ns: int
    ) -> list[KeyNews]:
        """Step one channel; where its core fails, the others go on."""
        try:
            news = step(end[0], now_ns)
        except (GridStatError, MemoryError) as error:
            is_known = end in self._failed
            self._failed.add(end)
            reason = str(error.args[0]) if error.args else "there is no memory for its keys"
            return [] if is_known else [KeysFailed(*end, reason)]
        self._failed.discard(end)
        return news

    def _step_sending(self, channel_id: int, now_ns: int) -> list[KeyNews]:
        keys = self._sending[channel_id]
        if keys.is_over(now_ns):
            self._core.clear_sending_key(channel_id)
            del self._sending[channel_id]
            return [SeedOver(channel_id, is_sender=True)]
        datagrams = self._core.sending_state(channel_id)["datagrams"]
        key = keys.step(now_ns, datagrams)
        if key is None and (channel_id, True) in self._failed:
            key = keys.advance(now_ns)  # Nobody knows which key the core has.
        if key is not None:
            self._core.set_sending_key(channel_id, *key)
        return []

    def _step_receiving(self, channel_id: int, now_ns: int) -> list[KeyNews]:
        accepted = self._receiving[channel_id]
        state = self._core.receiving_state(channel_id)
        before = self._budget.spent
        seen = SeenEpochs(state["epochs"], state["dropped_epochs"], state["unknown_epochs"])
        has_changed = accepted.step(now_ns, seen, self._budget)
        if self._budget.spent > before:  # Whoever has spent nothing for longest comes first.
            self._receiving[channel_id] = self._receiving.pop(channel_id)
        if not has_changed and (channel_id, False) not in self._failed:
            return []
        found = accepted.keys()
        self._core.set_receiving_keys(channel_id, found)
        if found or channel_id in self._over:
            return []
        self._over.add(channel_id)
        return [SeedOver(channel_id, is_sender=False)]

    # What people see.

    def overdue(self, now_ns: int) -> list[int]:
        """Return the channels, of either direction, whose fresh seed is overdue."""
        return sorted({channel_id for channel_id, _ in self._overdue_ends(now_ns)})

    def _overdue_ends(self, now_ns: int) -> set[_End]:
        sending = {(each, True) for each, keys in self._sending.items() if keys.is_overdue(now_ns)}
        receiving = {
            (each, False) for each, keys in self._receiving.items() if keys.is_overdue(now_ns)
        }
        return sending | receiving

    def keyless(self) -> list[int]:
        """Return the open channels, of either direction, that have no key."""
        without = self._channels - self._sending.keys()
        deaf = {each for each in self._sources if not self._accepts(each)}
        return sorted(without | deaf)

    def _accepts(self, channel_id: int) -> bool:
        keys = self._receiving.get(channel_id)
        return keys is not None and keys.given_ns is not None


def _keep(waiting: dict[int, Any], channel_id: int, value: object) -> None:
    """Keep what waits for a channel; beyond the bound, drop the oldest."""
    waiting.pop(channel_id, None)
    waiting[channel_id] = value
    while len(waiting) > WAITING_MAX:
        del waiting[next(iter(waiting))]
