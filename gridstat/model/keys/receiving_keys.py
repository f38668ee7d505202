"""Keys of the receiving end of one channel: what it accepts, and how it follows the sender.

A seed begins a chain of epochs. A chain is *pending* from its acceptance until a datagram under one
of its keys was authenticated; then it is in use, and all older chains end. A sender may get its
seed late, so a pending chain accepts its first epoch beside those of the present time.

The sender decides when an epoch or a seed begins. The receiver moves on when a datagram of the next
epoch was authenticated, and accepts the epoch before for 10 seconds. It follows the newest epoch of
all that were opened since the last step, in whatever order their datagrams came, and one whose key
was dropped just before it opened something, too: the core still has its replay windows. So no key
that has opened anything is ever dropped and accepted again with empty windows. A channel may be
silent for hours: then the receiver moves on by its own clock, and accepts an epoch more on either
side of the one that it expects. After an interruption in which the sender ended epochs early, by
the number of its datagrams, their epochs have no key here. The core reports the bytes of such
epochs, and the receiver tries them in turn, a few at once and each for a short time, the likeliest
first. A forged datagram can cause such a trial, and nothing else: what is in use stays installed.
Every other trial is of the epochs nearest to the expected one, so that whoever sends all bytes
cannot keep those waiting for a round of all others. All channels of a process share a budget for
trials (`trial_budget.py`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.model.key_schedule import EPOCHS, OLD_EPOCH_NS, next_seed
from gridstat.model.keys.key_settings import (
    FIRST_EPOCH_MAX,
    NS_PER_MS,
    STEPS_MAX,
    NumberedKey,
    Seed,
    numbered_key,
)
from gridstat.model.keys.trial_budget import TrialBudget

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

PENDING_MAX: Final = 2
"""Chains beside the one in use: the oldest one that the sender may have, and the newest."""
OLD_MAX: Final = 3
"""Keys of ended epochs that are accepted for a while."""
KEYS_MAX: Final = 8
"""Keys that a core accepts for one channel."""


class SeenEpochs(NamedTuple):
    """Bytes of epochs in the headers that came to one channel since the last step."""

    opened: Collection[int] = ()
    """Epochs of authentic datagrams under keys that are accepted."""
    dropped: Collection[int] = ()
    """Epochs of authentic datagrams under keys that had just been dropped."""
    unknown: Collection[int] = ()
    """Epochs without a key; anybody can send them."""


class _Tier(IntEnum):
    """How far an epoch is from the expected one."""

    NEAR = 0
    MIDDLE = 1
    FAR = 2


TRIAL_NS: Final = {_Tier.NEAR: 1_250_000_000, _Tier.MIDDLE: 1_250_000_000, _Tier.FAR: 2_000_000_000}
"""Time for which epochs are tried before others are; a sender that is ahead of its time sends much.
The turns of all tiers take no round number of seconds, or slow senders might always miss theirs."""
REPORT_NS: Final = 10_000_000_000
"""Time for which a reported byte is tried; a sender that is still there is reported again."""
TURNS: Final = (_Tier.NEAR, _Tier.MIDDLE, _Tier.NEAR, _Tier.FAR)
NEAR_AHEAD: Final = 8
MIDDLE_AHEAD: Final = 32
BEHIND: Final = 4
"""Epochs before the expected one that are no farther than these."""
FAR_MAX: Final = 2
"""Far epochs that are tried at once, since each costs hundreds of derivations."""
ROUNDS: Final = 4
"""Numbers with the same byte that are tried in turn, since the header wraps at 256."""
DROPPED_NS: Final = 10_000_000_000
"""Time for which a dropped key may still turn out to have opened something: far longer than the
core's thread holds it."""
_HALF: Final = EPOCHS // 2
_LIKELIEST: Final = 2
"""Keys of a pending chain that come before those of a trial."""


class ReceivingKeys:
    """Chains of one channel, oldest first; at most `PENDING_MAX` follow the one in use."""

    def __init__(self) -> None:
        self._chains: list[_Chain] = []
        self._in_use: _Chain | None = None
        self._old: list[tuple[NumberedKey, int]] = []
        """Keys of ended epochs, each with the time until which it is accepted."""
        self._trial: tuple[_Held, ...] = ()
        """Epochs whose keys are installed for a short time, each with a byte of its own."""
        self._counted: tuple[object, ...] = ()
        self._by_byte: dict[int, _Held] = {}
        """What is accepted, by byte, and the parts from which that follows."""
        self._dropped: dict[int, tuple[_Held, int]] = {}
        """By byte, keys that were dropped but could come back, each with the time until which it
        may turn out that they have opened something."""
        self._trial_until_ns = 0
        self._turn = 0
        self._reported: dict[int, int] = {}
        """Bytes without a key, each with the time until which its epochs are tried."""
        self._tried: set[_Candidate] = set()
        """Epochs that are not tried again before the others of their tier."""

    @property
    def given_ns(self) -> int | None:
        """Time of the newest seed; None without one."""
        return self._chains[-1].given_ns if self._chains else None

    def accept(self, seed: Seed, now_ns: int, randomness: int) -> int:
        """Begin a pending chain, and return its first epoch, whose byte no held key is near.

        The sender has the oldest pending seed if the gifts of all later ones were lost, so this one
        takes the place of the newest.
        """
        before = self._accepted()
        held = {each.key.epoch_byte for each in self._held()}
        first = _far_from(held | self._dropped.keys(), randomness)
        for chain in self._pending()[PENDING_MAX - 1 :]:
            self._chains.remove(chain)
        self._chains.append(_Chain(seed, first, now_ns))
        self._forget_ended()
        self._note_dropped(before, now_ns)
        return first

    def keys(self) -> tuple[NumberedKey, ...]:
        """Return all keys that are accepted, each with a byte of its own."""
        return _keys_in(self._accepted())

    def step(self, now_ns: int, seen: SeenEpochs, budget: TrialBudget | None = None) -> bool:
        """Follow the sender; return whether the accepted keys have changed.

        `budget` is what is left for trials.
        """
        before = self._accepted()
        for held in self._newest_opened(seen):
            self._follow(held, now_ns)
        self._old = [(key, until_ns) for key, until_ns in self._old if now_ns < until_ns]
        self._end_old_seeds(now_ns)
        for chain in self._chains:
            chain.follow_clock(now_ns)
        self._try(seen.unknown, now_ns, budget or TrialBudget())
        self._note_dropped(before, now_ns)
        after = self._accepted()
        return after is not before and _keys_in(after) != _keys_in(before)

    def is_overdue(self, now_ns: int) -> bool:
        """Return whether a fresh seed should have come long ago."""
        return bool(self._chains) and self._chains[-1].is_overdue(now_ns)

    def _pending(self) -> list[_Chain]:
        return [chain for chain in self._chains if chain is not self._in_use]

    def _accepted(self) -> dict[int, _Held]:
        """Return what is accepted, by byte, as the core has it; found again if a part changes."""
        parts = (self._in_use, self._trial, *self._old, *[chain.held for chain in self._chains])
        if parts != self._counted:
            self._counted, self._by_byte = parts, self._find_accepted()
        return self._by_byte

    def _find_accepted(self) -> dict[int, _Held]:
        found: dict[int, _Held] = {}
        for held in self._held():
            found.setdefault(held.key.epoch_byte, held)
            if len(found) == KEYS_MAX:
                break
        return found

    def _held(self) -> Iterator[_Held]:
        """Yield the keys, those first that must not be left out."""
        if self._in_use is not None:
            yield from self._in_use.held
        for key, _ in self._old:
            yield _Held(None, 0, key)
        pending = self._pending()[::-1]
        for chain in pending[:1]:
            yield from chain.held[:_LIKELIEST]
        yield from self._trial[:1]
        for chain in pending[1:]:
            yield from chain.held[:_LIKELIEST]
        for chain in pending:
            yield from chain.held[_LIKELIEST:]
        yield from self._trial[1:]

    def _newest_opened(self, seen: SeenEpochs) -> list[_Held]:
        """Return the newest opened epoch of each chain, the oldest chain first.

        What only came late, out of an epoch before, says nothing about where the sender is.
        """
        accepted, newest = self._accepted(), dict[_Chain, _Held]()
        dropped = {byte: held for byte, (held, _) in self._dropped.items()}
        opened = [each for byte in seen.opened if (each := (dropped | accepted).get(byte))]
        opened += [dropped[byte] for byte in seen.dropped if byte in dropped]
        for held in opened:
            if held.chain is not None and self._may_come_back(held):
                newest[held.chain] = max(newest.get(held.chain, held), held, key=_epoch_of)
        return [newest[chain] for chain in self._chains if chain in newest]

    def _note_dropped(self, before: Mapping[int, _Held], now_ns: int) -> None:
        """Remember the keys that are accepted no more, as long as they could be again."""
        accepted = self._accepted()
        if before is accepted and not self._dropped:
            return
        for byte, held in before.items():
            if byte not in accepted or accepted[byte].key != held.key:
                self._dropped[byte] = held, now_ns + DROPPED_NS
        for byte, (held, until_ns) in list(self._dropped.items()):
            is_back = byte in accepted and accepted[byte].key == held.key
            if is_back or now_ns >= until_ns or not self._may_come_back(held):
                del self._dropped[byte]

    def _may_come_back(self, held: _Held) -> bool:
        chain = held.chain
        return chain is not None and chain in self._chains and chain.can_reach(held.epoch)

    def _follow(self, held: _Held, now_ns: int) -> None:
        """Move to the epoch of an authenticated datagram, if it is not the present one."""
        assert held.chain is not None
        chain = held.chain
        self._use(chain, now_ns)
        for earlier in chain.held:
            if chain.epoch <= earlier.epoch < held.epoch:
                self._keep_old(earlier.key, now_ns)
        chain.hear(held.epoch, now_ns)
        if held in self._trial:
            self._trial = ()
            self._reported.clear()
            self._tried.clear()

    def _use(self, chain: _Chain, now_ns: int) -> None:
        if chain is self._in_use:
            return
        at = self._chains.index(chain)
        for ended in sorted(self._chains[:at], key=self._is_in_use):
            # The sender may have begun its next epoch just before it took the new seed.
            for held in ended.held[:2]:
                self._keep_old(held.key, now_ns)
        self._chains = self._chains[at:]
        self._in_use = chain
        self._forget_ended()

    def _is_in_use(self, chain: _Chain) -> bool:
        return chain is self._in_use

    def _keep_old(self, key: NumberedKey, now_ns: int) -> None:
        self._old = [*self._old, (key, now_ns + OLD_EPOCH_NS)][-OLD_MAX:]

    def _end_old_seeds(self, now_ns: int) -> None:
        """Forget seeds whose life is over; with the last of them nothing is accepted any more."""
        if any(chain.is_over(now_ns) for chain in self._chains):
            self._chains = [chain for chain in self._chains if not chain.is_over(now_ns)]
            self._forget_ended()
        if not self._chains:
            self._old = []

    def _forget_ended(self) -> None:
        """Forget what belongs to chains that have ended."""
        if self._in_use not in self._chains:
            self._in_use = None
        self._trial = tuple(held for held in self._trial if held.chain in self._chains)
        self._tried = {each for each in self._tried if each.chain in self._chains}

    def _try(self, unknown: Collection[int], now_ns: int, budget: TrialBudget) -> None:
        """Choose epochs to try: those of unknown bytes that a sender is most likely in.

        A turn of near epochs waits for a step that has derivations left, one of far ones is passed
        over.
        """
        self._reported.update(dict.fromkeys(unknown, now_ns + REPORT_NS))
        if now_ns >= self._trial_until_ns:
            self._trial = ()
        if self._trial or not self._reported:
            return
        self._reported = {byte: until for byte, until in self._reported.items() if now_ns < until}
        for _ in TURNS:
            tier = TURNS[self._turn % len(TURNS)]
            is_far = tier is _Tier.FAR
            has_left = budget.left(is_far=is_far) > 0
            budget.dropped += not has_left
            if not has_left and not is_far:
                return
            self._turn += 1
            if has_left and self._begin_trial(tier, now_ns, budget):
                return

    def _begin_trial(self, tier: _Tier, now_ns: int, budget: TrialBudget) -> bool:
        """Try epochs of one tier; return whether there are any."""
        chosen = self._choose(self._candidates(tier, now_ns), tier, budget)
        self._trial_until_ns = now_ns + TRIAL_NS[tier]
        self._trial = tuple(_Held(*each, each.chain.key_of(each.epoch)) for each in chosen)
        return bool(chosen)

    def _choose(
        self, ranks: Mapping[_Candidate, _Rank], tier: _Tier, budget: TrialBudget
    ) -> list[_Candidate]:
        """Return those candidates of one tier whose turn it is, with a byte of its own each."""
        if not ranks:
            return []
        is_far = tier is _Tier.FAR
        budget.spend(len(ranks), is_far=is_far)  # To list one costs as much as a derivation.
        if self._tried.issuperset(ranks):
            self._tried -= ranks.keys()
        bound = max(KEYS_MAX - len(self._accepted()), 1)
        if is_far:
            bound = min(bound, FAR_MAX)
        chosen: dict[int, _Candidate] = {}
        for each in sorted(ranks.keys() - self._tried, key=lambda each: ranks[each].order()):
            byte, cost = each.epoch % EPOCHS, each.chain.derivations_to(each.epoch)
            if len(chosen) == bound or (chosen and cost > budget.left(is_far=is_far)):
                break
            if byte not in chosen:
                chosen[byte] = each
                budget.spend(cost, is_far=is_far)
        self._tried.update(chosen.values())
        return list(chosen.values())

    def _candidates(self, tier: _Tier, now_ns: int) -> dict[_Candidate, _Rank]:
        """Return the epochs of reported bytes in one tier whose keys can be derived."""
        found: dict[_Candidate, _Rank] = {}
        reported = self._reported.keys() - self._accepted().keys()
        for at, chain in enumerate(self._chains):
            expected = chain.expected(now_ns)
            for wrapped, ahead in _PLACES[tier]:
                epoch = expected + ahead + wrapped * EPOCHS
                if epoch % EPOCHS in reported and chain.can_reach(epoch):
                    found[_Candidate(chain, epoch)] = _Rank(wrapped, ahead, -at)
        return found


class _Candidate(NamedTuple):
    """An epoch of a chain that a sender may be in."""

    chain: _Chain
    epoch: int


class _Rank(NamedTuple):
    """How likely a candidate is: rounds of the header's byte, epochs ahead, place of its chain."""

    wrapped: int
    ahead: int
    place: int

    @property
    def tier(self) -> _Tier:
        """How soon it is tried again."""
        if self.wrapped == 0 and -BEHIND <= self.ahead <= MIDDLE_AHEAD:
            return _Tier.NEAR if self.ahead <= NEAR_AHEAD else _Tier.MIDDLE
        return _Tier.FAR

    def order(self) -> tuple[int, int, int, int]:
        """Return the key to sort by, the likeliest first."""
        return self.wrapped, abs(self.ahead), self.place, self.ahead


_PLACES: Final = {
    tier: tuple(
        (wrapped, ahead)
        for wrapped in range(ROUNDS)
        for ahead in range(-_HALF, _HALF)
        if _Rank(wrapped, ahead, 0).tier is tier
    )
    for tier in _Tier
}
"""Rounds and distances from the expected epoch that belong to each tier."""


class _Held(NamedTuple):
    """A key with its place in a chain; one of an ended epoch has none."""

    chain: _Chain | None
    epoch: int
    key: NumberedKey


def _keys_in(accepted: Mapping[int, _Held]) -> tuple[NumberedKey, ...]:
    return tuple(held.key for held in accepted.values())


def _epoch_of(held: _Held) -> int:
    return held.epoch


class _Chain:
    """Epochs of one seed at the receiver; the secret is that of the first accepted epoch.

    `began_ns` is the time at which that epoch began, as far as the receiver knows. A pending chain
    also has its `start`, the first epoch of the seed with its secret, until it is in use.
    """

    __slots__ = (
        "_began_ns",
        "_channel_id",
        "_epoch_ns",
        "_secret",
        "_settings",
        "_start",
        "epoch",
        "given_ns",
        "held",
    )

    def __init__(self, seed: Seed, epoch: int, now_ns: int) -> None:
        self._channel_id = seed.channel_id
        self._secret = seed.secret
        self._settings = seed.settings
        self._epoch_ns = seed.settings.epoch_ms * NS_PER_MS
        self._start: tuple[int, bytes] | None = (epoch, seed.secret)
        self._began_ns = now_ns
        self.epoch = epoch
        self.given_ns = now_ns
        self.held: tuple[_Held, ...] = ()
        """Accepted epochs, the likeliest first while the chain is pending, else in order."""
        self._hold(epoch, epoch + 1)

    def hear(self, epoch: int, now_ns: int) -> None:
        """Note that the sender is in this epoch, which was accepted or tried."""
        began_ns = self._began_ns + (epoch - self.epoch) * self._epoch_ns
        if began_ns > now_ns:
            began_ns = now_ns
        elif now_ns - began_ns >= self._epoch_ns:
            # It cannot have begun so long ago: the sender is late, by nobody knows how much.
            began_ns = now_ns - self._epoch_ns // 2
        self._secret = self._secret_of(epoch)
        self._start = None
        self._began_ns = began_ns
        self.epoch = epoch
        self._hold(epoch, epoch + 1)

    def follow_clock(self, now_ns: int) -> None:
        """Accept the expected epoch, the one before, and the one after it."""
        expected = self.expected(now_ns)
        if expected == self.epoch or expected == self.held_until - 1:
            return
        steps = min(max(expected - 1 - self.epoch, 0), STEPS_MAX)
        self._secret = self._secret_of(self.epoch + steps)
        self._began_ns += max(expected - 1 - self.epoch, 0) * self._epoch_ns
        self.epoch += steps
        if self._start is None:
            self._hold(self.epoch, self.epoch + 1, self.epoch + 2)
        else:
            self._hold(self.epoch + 1, self._start[0], self.epoch, self.epoch + 2)

    @property
    def held_until(self) -> int:
        """Newest accepted epoch."""
        return max(held.epoch for held in self.held)

    def _hold(self, *epochs: int) -> None:
        if tuple([held.epoch for held in self.held]) == epochs:
            return
        known = {held.epoch: held for held in self.held}
        self.held = tuple(
            known.get(epoch) or _Held(self, epoch, self.key_of(epoch))
            for epoch in dict.fromkeys(epochs)
        )

    def key_of(self, epoch: int) -> NumberedKey:
        return numbered_key(self._secret_of(epoch), self._channel_id, epoch)

    def _secret_of(self, epoch: int) -> bytes:
        base, secret = self._base(epoch)
        for _ in range(epoch - base):
            secret = next_seed(secret)
        return secret

    def _base(self, epoch: int) -> tuple[int, bytes]:
        """Return the newest epoch with a known secret from which this one can be derived."""
        if self._start is not None and epoch < self.epoch:
            return self._start
        return self.epoch, self._secret

    def can_reach(self, epoch: int) -> bool:
        """Return whether the key of an epoch can be derived, in a bounded number of steps."""
        return 0 <= epoch - self._base(epoch)[0] <= STEPS_MAX

    def derivations_to(self, epoch: int) -> int:
        """Return how many derivations the key of an epoch takes."""
        return epoch - self._base(epoch)[0] + 1

    def expected(self, now_ns: int) -> int:
        """Return the epoch that a sender is in if it ends its epochs by time alone."""
        return self.epoch + (now_ns - self._began_ns) // self._epoch_ns

    def is_over(self, now_ns: int) -> bool:
        return now_ns - self.given_ns >= self._settings.life_ms * NS_PER_MS

    def is_overdue(self, now_ns: int) -> bool:
        return now_ns - self.given_ns > self._settings.overdue_ns


def _far_from(held: Collection[int], randomness: int) -> int:
    """Return an epoch number whose byte lies in the middle of the longest run without held
    bytes."""
    drawn = randomness % FIRST_EPOCH_MAX
    if not held:
        return drawn
    taken = sorted(held)
    gaps = [
        ((after - before - 1) % EPOCHS, before)
        for before, after in zip(taken, [*taken[1:], taken[0]], strict=True)
    ]
    length, before = max(gaps)
    return drawn - drawn % EPOCHS + (before + 1 + length // 2) % EPOCHS
