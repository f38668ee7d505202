"""Keys of the sending end of one channel: from a seed on, epoch after epoch.

    no key --seed and first epoch--> sending --epoch over--> sending with the next key
    sending --seed too old--> no key: the channel sends nothing

A sender never uses a key again after its counter may have begun anew: then it goes on with the next
epoch. Where the counter of a channel that was opened again goes on, so does the key, or a second
opening would leave the receiver an epoch too far behind. A new process has no seed, and waits for
one.
"""

from __future__ import annotations

from typing import Final

from gridstat.model.key_schedule import EPOCH_DATAGRAMS, next_seed
from gridstat.model.keys.key_settings import (
    NS_PER_MS,
    STEPS_MAX,
    NumberedKey,
    Seed,
    numbered_key,
)

DATAGRAMS_MAX: Final = EPOCH_DATAGRAMS - EPOCH_DATAGRAMS // 4
"""Datagrams after which an epoch ends: a margin of two million, for those sent until the next step.
A core stops a quarter of the margin before its end."""
CARRIED_MAX: Final = EPOCH_DATAGRAMS // 16
"""Datagrams before a channel was opened again with which its key still goes on."""


class SendingKeys:
    """Present epoch of one channel; the secrets of earlier epochs are forgotten."""

    def __init__(self, seed: Seed, first_epoch: int, now_ns: int) -> None:
        self._channel_id = seed.channel_id
        self._secret = seed.secret
        self._settings = seed.settings
        self._began_ns = now_ns
        self.number = seed.number
        self.epoch = first_epoch
        self.given_ns = now_ns
        self._carried = 0
        """Datagrams under the present key before its channel was opened again."""

    def key(self) -> NumberedKey:
        """Return the key of the present epoch."""
        return numbered_key(self._secret, self._channel_id, self.epoch)

    def step(self, now_ns: int, datagrams: int) -> NumberedKey | None:
        """Return the key of the next epoch if the present one is over by time or datagrams.

        Epochs that end by time begin at exact intervals, so that a receiver which has long been
        sent nothing knows the present one by its own clock.
        """
        epoch_ns = self._settings.epoch_ms * NS_PER_MS
        passed = (now_ns - self._began_ns) // epoch_ns
        if passed > 0:
            steps = min(passed, STEPS_MAX)
            for _ in range(steps):
                self._secret = next_seed(self._secret)
            self.epoch += steps
            self._began_ns += passed * epoch_ns
            self._carried = 0
            return self.key()
        return self.advance(now_ns) if datagrams + self._carried >= DATAGRAMS_MAX else None

    def carry(self, datagrams: int) -> None:
        """Note the datagrams under the present key before its channel closes."""
        self._carried += datagrams

    def go_on(self, now_ns: int) -> NumberedKey:
        """Return the key of a channel that was opened again, whose counter goes on as well."""
        if self._carried >= CARRIED_MAX:
            return self.advance(now_ns)
        return self.step(now_ns, 0) or self.key()

    def advance(self, now_ns: int) -> NumberedKey:
        """Begin the next epoch now, and return its key."""
        self._secret = next_seed(self._secret)
        self.epoch += 1
        self._began_ns = now_ns
        self._carried = 0
        return self.key()

    def is_over(self, now_ns: int) -> bool:
        """Return whether the seed is too old to be used any longer."""
        return now_ns - self.given_ns >= self._settings.life_ms * NS_PER_MS

    def is_overdue(self, now_ns: int) -> bool:
        """Return whether a fresh seed should have come long ago."""
        return now_ns - self.given_ns > self._settings.overdue_ns
