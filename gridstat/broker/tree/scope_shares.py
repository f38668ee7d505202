"""Shares of channels between clouds that identities use: who has reserved how much, and where.

Every charge of a channel names its payers: the subscriber, and the publisher too if a pattern has
made the contract. What patterns catch of a publisher has an account of its own, in which a variable
counts once on each channel (`capacity/caught_account.py`). The books are changed together with the
charges of `owned_channels.py`, so they always equal a recount of the holdings and of the plans that
are being tried. Each payer has the share of a channel that the rules of its own cloud grant; the
share travels with the request, since this broker has no rules. It is bounded by `share_max` of this
broker, which owns the channels: a cloud must not grant its own all of what others use too. The law
is in `model/quota.py`.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gridstat.broker.capacity.admission import Limit, Obstacle
from gridstat.broker.capacity.caught_account import CaughtAccount
from gridstat.broker.capacity.charges import MODE_SETS_DEFAULT, NOTHING, ModalSum
from gridstat.broker.capacity.identity_shares import ShareAccount
from gridstat.broker.capacity.stream_costs import StreamCost
from gridstat.model.quota import SHARE_PPM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gridstat.broker.capacity.accounts import HopAccount
    from gridstat.broker.tree.tree_operations import ScopePath
    from gridstat.model.cloud import EventChannel
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.segment_messages import Payer


class SharedChannel(Protocol):
    """Channel of this broker, with its account of bytes (`owned_channels.py`)."""

    @property
    def channel(self) -> EventChannel: ...

    @property
    def carriage(self) -> HopAccount: ...


class Charge(NamedTuple):
    """What one generation of a contract takes of this broker's channels, and who pays."""

    variable: StatusVariable
    everys: Mapping[int, int]
    paths: tuple[ScopePath, ...]
    payers: tuple[Payer, ...] = ()


class ScopeShares:
    """Books of all identities; an entry exists exactly while something is charged to it."""

    def __init__(self, accounts: Mapping[int, SharedChannel]) -> None:
        self._channels = accounts
        self._accounts: dict[str, dict[int, ShareAccount]] = {}
        self._caught: dict[str, dict[int, CaughtAccount]] = {}
        self.share_max = Fraction(1)
        """Part of a channel that one identity may reserve, whatever its own cloud grants."""

    # Books.

    def add(self, charge: Charge) -> None:
        """Charge the payers of a contract."""
        if not charge.payers or charge.variable.is_replay:
            return  # Replay uses no reserved capacity of channels.
        cost = StreamCost(charge.variable)
        amounts = cost.price.events_per_s(_taken(charge.everys))
        for payer in charge.payers[1:]:
            for number in _numbers(charge.paths):
                found = self._caught.setdefault(payer.name, {})
                found.setdefault(number, CaughtAccount()).add(cost, _rate(charge))
        for payer in charge.payers[:1]:
            accounts = self._accounts.setdefault(payer.name, {})
            for number in _numbers(charge.paths):
                account = accounts.get(number)
                if account is None:
                    account = accounts[number] = ShareAccount()
                account.add(cost, amounts, MODE_SETS_DEFAULT)
            if not accounts:
                del self._accounts[payer.name]

    def remove(self, charge: Charge) -> None:
        """Undo `add` with the same charge."""
        if not charge.payers or charge.variable.is_replay:
            return
        cost = StreamCost(charge.variable)
        amounts = cost.price.events_per_s(_taken(charge.everys))
        for payer in charge.payers[1:]:
            for number in _numbers(charge.paths):
                found = self._caught[payer.name]
                found[number].remove(cost, _rate(charge))
                if not found[number]:
                    del found[number]
                if not found:
                    del self._caught[payer.name]
        for payer in charge.payers[:1]:
            accounts = self._accounts.get(payer.name, {})
            for number in _numbers(charge.paths):
                accounts[number].remove(cost, amounts)
                if not accounts[number].sums:
                    del accounts[number]
            if not accounts:
                self._accounts.pop(payer.name, None)

    def used(self, who: str, channel_id: int) -> Fraction:
        """Return the bytes a second that an identity's contracts reserve on a channel."""
        account = self._accounts.get(who, {}).get(channel_id)
        return NOTHING if account is None else _bytes_per_s(account, self._hop(channel_id))

    def caught(self, who: str, channel_id: int) -> Fraction:
        """Return the bytes a second that patterns have caught of a publisher on a channel."""
        account = self._caught.get(who, {}).get(channel_id)
        return NOTHING if account is None else account.bytes_per_s(self._hop(channel_id))

    def books(self) -> dict[str, dict[int, Fraction]]:
        """Return the bytes a second by channel of each identity."""
        return {
            who: {number: self.used(who, number) for number in sorted(found)}
            for who, found in sorted(self._accounts.items())
        }

    # Limits.

    def obstacles(self, charge: Charge, beside: Iterable[Charge]) -> Iterator[Obstacle]:
        """Yield the channels on which a contract, charged already, exceeds a share of a payer.

        `beside` are other generations of the same contract that are charged too. They are not
        counted, and the contract is an obstacle only where it takes more than each of them.
        """
        if charge.variable.is_replay:
            return
        others = list(beside)
        yield from self._obstacles_caught(charge, others)
        for payer in charge.payers[:1]:
            share = self._share(payer)
            for number in _numbers(charge.paths) if share < 1 else ():
                bandwidth = self._channels[number].channel.bandwidth_bytes_per_s
                limit = share * bandwidth
                before = [self._of(found, payer.name, number) for found in others]
                used = self.used(payer.name, number) - sum(before, NOTHING)
                more = self._of(charge, payer.name, number)
                if bandwidth and used > limit and more > max(before, default=NOTHING):
                    yield self._obstacle(payer, number, used - more, more)

    def _obstacles_caught(self, charge: Charge, others: list[Charge]) -> Iterator[Obstacle]:
        """Yield the channels on which patterns catch more than a publisher's share.

        A subscriber with a higher share than the publisher is bounded by its own alone. A variable
        that others catch at the same rate needs nothing more.
        """
        for payer in charge.payers[1:]:
            share = self._share(payer)
            is_bounded = share < 1 and charge.payers[0].share_ppm <= payer.share_ppm
            for number in _numbers(charge.paths) if is_bounded else ():
                bandwidth = self._channels[number].channel.bandwidth_bytes_per_s
                if any(_rate(charge) <= _rate(found) for found in others):
                    continue
                account, cost = self._caught[payer.name][number], StreamCost(charge.variable)
                account.remove(cost, _rate(charge))
                hop = self._hop(number)
                used = account.bytes_per_s(hop)
                more = account.more(cost, _rate(charge)) * hop.event_bytes(cost)
                account.add(cost, _rate(charge))
                if bandwidth and more and used + more > share * bandwidth:
                    yield self._obstacle(payer, number, used, more, is_caught=True)

    def _obstacle(
        self, payer: Payer, number: int, used: Fraction, more: Fraction, *, is_caught: bool = False
    ) -> Obstacle:
        channel = self._channels[number].channel
        share = self._share(payer)
        limit = share * channel.bandwidth_bytes_per_s
        cloud = payer.name.partition("/")[0]
        remedy = f"an access rule of cloud {cloud} with a higher capacity_share for {payer.name}"
        if share == self.share_max:
            remedy = "a higher capacity_share_max in [quota] of the broker that owns the channel"
        verb = "let patterns reserve" if is_caught else "reserve"
        have = "they have" if is_caught else "it has"
        return Obstacle(
            Limit.SHARE,
            number,
            f"channel {channel.label}",
            ceil(used + more - limit),
            "bytes/s",
            f"{payer.name} may {verb} {float(100 * share):g} % of channel {channel.label}, "
            f"{int(limit)} of its {channel.bandwidth_bytes_per_s} bytes/s; {have} reserved "
            f"{ceil(used)}, and this needs {ceil(more)} more; {remedy} would allow it",
        )

    def _of(self, charge: Charge, who: str, number: int) -> Fraction:
        """Return what one charge takes of a channel for one of its payers."""
        times = sum(found == number for found in _numbers(charge.paths))
        if not times or all(payer.name != who for payer in charge.payers[:1]):
            return NOTHING
        cost = StreamCost(charge.variable)
        amounts = cost.price.events_per_s(_taken(charge.everys))
        by_mode = {mode: amount.value for mode, amount in amounts.items()}
        size = self._hop(number).event_bytes(cost)
        return times * size * ModalSum(MODE_SETS_DEFAULT).total_of(by_mode)

    def _share(self, payer: Payer) -> Fraction:
        """Return the part of a channel of this broker that a payer may reserve."""
        return min(self.share_max, Fraction(payer.share_ppm, SHARE_PPM))

    def _hop(self, number: int) -> HopAccount:
        return self._channels[number].carriage


def _numbers(paths: Iterable[ScopePath]) -> list[int]:
    return [number for path in paths for number in path.channel_ids]


def _rate(charge: Charge) -> Fraction:
    """Return the events a second of a charge in the mode that needs most."""
    amounts = StreamCost(charge.variable).price.events_per_s(_taken(charge.everys))
    by_mode = {mode: amount.value for mode, amount in amounts.items()}
    return ModalSum(MODE_SETS_DEFAULT).total_of(by_mode)


def _bytes_per_s(account: ShareAccount, hop: HopAccount) -> Fraction:
    by_mode: dict[int, Fraction] = {}
    for options, total in account.sums.items():
        size = hop.event_bytes(account.costs[options])
        for mode in total.modes():
            by_mode[mode] = by_mode.get(mode, NOTHING) + size * total.of_mode(mode)
    return ModalSum(MODE_SETS_DEFAULT).total_of(by_mode)


def _taken(everys: Mapping[int, int]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    return tuple((mode, (every,)) for mode, every in sorted(everys.items()))
