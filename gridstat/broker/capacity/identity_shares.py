"""Shares of channels that identities use: who has reserved how many bytes a second, and where.

Each contract is charged to its first identity (`AllocationRequest.payers`) when the allocator holds
it, and released when the allocator gives it up, so that the books always equal a recount of the
held contracts. Further identities are publishers of what a pattern has caught: they have an account
of their own for it (`caught_account.py`), beside that of their own contracts. Paths that a change
has replaced, and that retire, are not charged: the change is not to be refused because of its own
overlap. The law is in `model/quota.py`.

An account counts events a second by the size class of a variable. The bytes follow from the
channel's present headers, so a channel that changes its address family changes no account.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.broker.capacity.admission import Limit, Obstacle
from gridstat.broker.capacity.allocation import everys
from gridstat.broker.capacity.caught_account import CaughtAccount
from gridstat.broker.capacity.charges import NOTHING, ModalSum
from gridstat.broker.capacity.stream_costs import StreamCost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from fractions import Fraction

    from gridstat.broker.capacity.accounts import HopAccount
    from gridstat.broker.capacity.allocation import AllocatedPath, Allocation, AllocationRequest
    from gridstat.broker.capacity.charges import Amount, Divisors
    from gridstat.broker.capacity.negotiation import Quality
    from gridstat.broker.capacity.resources import Resources
    from gridstat.model.quota import Quota
    from gridstat.model.status import StatusVariable

_SURELY: Final = 0.999
"""Share of a limit below which a rounded estimate surely does not exceed the limit."""


class ShareAccount:
    """Events a second of one identity on one channel, by a variable's number of options.

    `costs` has one variable of each number of options, whose bytes on the channel are those of all.
    """

    __slots__ = ("costs", "sums")

    def __init__(self) -> None:
        self.sums: dict[int, ModalSum] = {}
        self.costs: dict[int, StreamCost] = {}

    def add(
        self, cost: StreamCost, amounts: Mapping[int, Amount], sets: tuple[frozenset[int], ...]
    ) -> None:
        options = cost.variable.option_count
        total = self.sums.get(options)
        if total is None:
            total = self.sums[options] = ModalSum(sets)
            self.costs[options] = cost
        for mode, amount in amounts.items():
            total.replace(mode, None, amount)

    def remove(self, cost: StreamCost, amounts: Mapping[int, Amount]) -> None:
        options = cost.variable.option_count
        total = self.sums[options]
        for mode, amount in amounts.items():
            total.replace(mode, amount, None)
        if not total:
            del self.sums[options], self.costs[options]


class Replaced(NamedTuple):
    """Contract that a request takes the place of; `is_held` is true while it is still charged."""

    contract: Allocation
    is_held: bool


class IdentityShares:
    """Books of all identities; an entry exists exactly while a held contract is charged to it."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._accounts: dict[str, dict[int, ShareAccount]] = {}
        self._contracts: dict[str, int] = {}
        self._caught: dict[str, dict[int, CaughtAccount]] = {}
        self._caught_variables: dict[str, dict[int, int]] = {}
        """Contracts by publisher and variable that patterns have made."""
        self.quota_of: Callable[[str], Quota] | None = None
        """Quota of an identity; None leaves all shares unbounded."""
        self.is_raised: Callable[[str], bool] = _never
        """Whether a rule raises an identity's share: its catches are not bounded by publishers'."""

    # Books.

    def add(self, contract: Allocation) -> None:
        """Charge a contract that the allocator holds from now on."""
        payers = contract.request.payers
        if not payers:
            return
        charges, sets = self._charges(contract), self._resources.mode_sets
        cost = self._cost(contract.request.variable)
        who = payers[0]
        self._contracts[who] = self._contracts.get(who, 0) + 1
        if charges:
            accounts = self._accounts.setdefault(who, {})
            for number, amounts in charges:
                account = accounts.get(number)
                if account is None:
                    account = accounts[number] = ShareAccount()
                account.add(cost, amounts, sets)
        for publisher in payers[1:]:
            self._add_caught(publisher, cost, charges)

    def remove(self, contract: Allocation) -> None:
        """Release a contract that was charged."""
        payers = contract.request.payers
        if not payers:
            return
        charges = self._charges(contract)
        cost = self._cost(contract.request.variable)
        who = payers[0]
        left = self._contracts[who] - 1
        if left:
            self._contracts[who] = left
        else:
            del self._contracts[who]
        accounts = self._of(who)
        for number, amounts in charges:
            accounts[number].remove(cost, amounts)
            if not accounts[number].sums:
                del accounts[number]
        if not accounts:
            self._accounts.pop(who, None)
        for publisher in payers[1:]:
            self._remove_caught(publisher, cost, charges)

    def _add_caught(
        self, who: str, cost: StreamCost, charges: list[tuple[int, Mapping[int, Amount]]]
    ) -> None:
        variables = self._caught_variables.setdefault(who, {})
        variable_id = cost.variable.variable_id
        variables[variable_id] = variables.get(variable_id, 0) + 1
        for number, amounts in charges:
            accounts = self._caught.setdefault(who, {})
            if number not in accounts:
                accounts[number] = CaughtAccount()
            accounts[number].add(cost, self._total(amounts))

    def _remove_caught(
        self, who: str, cost: StreamCost, charges: list[tuple[int, Mapping[int, Amount]]]
    ) -> None:
        variables, variable_id = self._caught_variables[who], cost.variable.variable_id
        variables[variable_id] -= 1
        if not variables[variable_id]:
            del variables[variable_id]
        if not variables:
            del self._caught_variables[who]
        for number, amounts in charges:
            accounts = self._caught[who]
            accounts[number].remove(cost, self._total(amounts))
            if not accounts[number]:
                del accounts[number]
            if not accounts:
                del self._caught[who]

    def caught_of(self, who: str) -> Mapping[int, int]:
        """Return the variables of a publisher that patterns have caught, and how often each."""
        return self._caught_variables.get(who, {})

    def caught(self, who: str, channel_id: int) -> Fraction:
        """Return the bytes a second that patterns have caught of a publisher on a channel."""
        account = self._caught.get(who, {}).get(channel_id)
        hop = self._resources.channels.get(channel_id)
        return NOTHING if account is None or hop is None else account.bytes_per_s(hop)

    def caught_books(self) -> dict[str, tuple[int, dict[int, Fraction]]]:
        """Return the caught variables and the bytes a second by channel of each publisher."""
        return {
            who: (
                len(found),
                {number: self.caught(who, number) for number in sorted(self._caught.get(who, ()))},
            )
            for who, found in sorted(self._caught_variables.items())
        }

    def used(self, who: str, channel_id: int) -> Fraction:
        """Return the bytes a second that an identity's contracts reserve on a channel."""
        account = self._accounts.get(who, {}).get(channel_id)
        hop = self._resources.channels.get(channel_id)
        if account is None or hop is None:
            return NOTHING
        return self._bytes_per_s(account, hop)

    def books(self) -> dict[str, tuple[int, dict[int, Fraction]]]:
        """Return the number of contracts and the bytes a second by channel of each identity."""
        return {
            who: (count, {number: self.used(who, number) for number in sorted(self._of(who))})
            for who, count in sorted(self._contracts.items())
        }

    def most_used(self, who: str) -> tuple[int, Fraction]:
        """Return the channel of which an identity uses the largest part, and that part; 0, 0 if
        there is none."""
        found = (0, NOTHING)
        for number in sorted(self._of(who)):
            limit = self._bandwidth(number)
            if limit and self.used(who, number) / limit > found[1]:
                found = number, self.used(who, number) / limit
        return found

    def most_used_of(self, who: str, contract: Allocation) -> Fraction:
        """Return the largest part of a channel of this contract that an identity uses."""
        numbers = {number for path in contract.paths for number in path.channel_ids}
        limits = {number: self._bandwidth(number) for number in numbers}
        parts = (self.used(who, number) / limit for number, limit in limits.items() if limit)
        return max(parts, default=NOTHING)

    # Limits.

    def obstacles(
        self,
        request: AllocationRequest,
        quality: Quality,
        paths: Sequence[AllocatedPath],
        replaced: Replaced | None,
    ) -> Iterator[Obstacle]:
        """Yield the channels on which the contract would exceed a share of its identities.

        A contract that replaces another is an obstacle only where it takes more than that one.
        """
        if self.quota_of is None or request.variable.is_replay:
            return
        for who in self._bounded(request):
            share = self.quota_of(who).share
            if share >= 1:
                continue  # The channel's own limit is as tight.
            for index, path in enumerate(paths):
                wanted = everys(quality, index)
                for number in path.channel_ids:
                    wish = _Wish(who, share, request, wanted, replaced)
                    if excess := self._excess(wish, number):
                        yield self._obstacle(wish, number, *excess)

    def _bounded(self, request: AllocationRequest) -> tuple[str, ...]:
        """Return the payers whose shares bound a request."""
        payers = request.payers
        return payers[:1] if payers[1:] and self.is_raised(payers[0]) else payers

    def is_exceeded(
        self,
        request: AllocationRequest,
        number: int,
        wanted: Mapping[int, int],
        replaced: Replaced | None,
    ) -> bool:
        """Return whether the variable at these divisors would exceed a share of this channel."""
        if self.quota_of is None or request.variable.is_replay:
            return False
        for who in self._bounded(request):
            share = self.quota_of(who).share
            if share < 1 and self._excess(_Wish(who, share, request, wanted, replaced), number):
                return True
        return False

    def _excess(self, wish: _Wish, number: int) -> tuple[Fraction, Fraction] | None:
        """Return what is reserved and what is needed beside it, if both exceed the share."""
        bandwidth = self._bandwidth(number)
        if not bandwidth or wish.share >= 1:
            return None
        if wish.who != wish.request.payers[0]:
            return self._excess_caught(wish, number)
        hop, account = self._resources.channel(number), self._of(wish.who).get(number)
        cost = self._cost(wish.request.variable)
        limit = wish.share * bandwidth
        estimate = len(wish.wanted) * float(cost.price.event_rate) * hop.event_bytes(cost)
        if account is not None:
            estimate += _upper_bound(account, hop)
        if estimate <= _SURELY * float(limit):
            return None
        used = NOTHING if account is None else self._bytes_per_s(account, hop)
        more = self._total(cost.price.events_per_s(_taken(wish.wanted))) * hop.event_bytes(cost)
        if wish.replaced is not None and wish.who in wish.replaced.contract.request.payers[:1]:
            before = self._of_contract(wish.replaced.contract, number)
            used -= before if wish.replaced.is_held else NOTHING
            if more <= before:
                return None
        return None if used + more <= limit else (used, more)

    def _excess_caught(self, wish: _Wish, number: int) -> tuple[Fraction, Fraction] | None:
        """Return the same for a publisher's share, and what patterns catch of it."""
        hop, account = self._resources.channel(number), self._caught.get(wish.who, {}).get(number)
        cost = self._cost(wish.request.variable)
        rate = self._total(cost.price.events_per_s(_taken(wish.wanted)))
        more = (rate if account is None else account.more(cost, rate)) * hop.event_bytes(cost)
        used = NOTHING if account is None else account.bytes_per_s(hop)
        if not more or used + more <= wish.share * self._bandwidth(number):
            return None
        if wish.replaced is not None and wish.who in wish.replaced.contract.request.payers[1:]:
            before = self._of_contract(wish.replaced.contract, number)
            if rate * hop.event_bytes(cost) <= before:
                return None
        return used, more

    def _obstacle(self, wish: _Wish, number: int, used: Fraction, more: Fraction) -> Obstacle:
        channel = self._resources.channel(number).channel
        assert channel is not None
        limit = wish.share * channel.bandwidth_bytes_per_s
        is_caught = wish.who != wish.request.payers[0]
        verb = "let patterns reserve" if is_caught else "reserve"
        have = "they have" if is_caught else "it has"
        return Obstacle(
            Limit.SHARE,
            number,
            f"channel {channel.label}",
            ceil(used + more - limit),
            "bytes/s",
            f"{wish.who} may {verb} {float(100 * wish.share):g} % of channel {channel.label}, "
            f"{int(limit)} of its {channel.bandwidth_bytes_per_s} bytes/s; {have} reserved "
            f"{ceil(used)}, and this needs {ceil(more)} more; an access rule with a higher "
            f"capacity_share for {wish.who} would allow it",
        )

    # Charges.

    def _charges(self, contract: Allocation) -> list[tuple[int, Mapping[int, Amount]]]:
        """Return each channel of each path with its events a second by mode."""
        request = contract.request
        if request.variable.is_replay:
            return []  # Replay uses no reserved capacity of channels.
        price = self._cost(request.variable).price
        found: list[tuple[int, Mapping[int, Amount]]] = []
        for index, path in enumerate(contract.paths):
            if path.channel_ids:
                amounts = price.events_per_s(_taken(contract.everys(index)))
                found += [(number, amounts) for number in path.channel_ids]
        return found

    def _cost(self, variable: StatusVariable) -> StreamCost:
        """Return the cost of a variable, and do not register one that is carried no longer."""
        found = self._resources.stream_costs.get(variable.variable_id)
        return found if found is not None else StreamCost(variable)

    def _of_contract(self, contract: Allocation, number: int) -> Fraction:
        size = self._resources.channel(number).event_bytes(self._cost(contract.request.variable))
        return sum(
            (
                self._total(amounts) * size
                for channel_id, amounts in self._charges(contract)
                if channel_id == number
            ),
            NOTHING,
        )

    def _bytes_per_s(self, account: ShareAccount, hop: HopAccount) -> Fraction:
        by_mode: dict[int, Fraction] = {}
        for options, total in account.sums.items():
            size = hop.event_bytes(account.costs[options])
            for mode in total.modes():
                by_mode[mode] = by_mode.get(mode, NOTHING) + size * total.of_mode(mode)
        return ModalSum(self._resources.mode_sets).total_of(by_mode)

    def _total(self, amounts: Mapping[int, Amount]) -> Fraction:
        by_mode = {mode: amount.value for mode, amount in amounts.items()}
        return ModalSum(self._resources.mode_sets).total_of(by_mode)

    def _bandwidth(self, number: int) -> int:
        hop = self._resources.channels.get(number)
        return 0 if hop is None or hop.channel is None else hop.channel.bandwidth_bytes_per_s

    def _of(self, who: str) -> dict[int, ShareAccount]:
        return self._accounts.get(who, {})


class _Wish(NamedTuple):
    """Request of one identity for a variable at these divisors, beside its share of a channel."""

    who: str
    share: Fraction
    request: AllocationRequest
    wanted: Mapping[int, int]
    replaced: Replaced | None


def _upper_bound(account: ShareAccount, hop: HopAccount) -> float:
    return sum(
        total.upper_bound() * hop.event_bytes(account.costs[options])
        for options, total in account.sums.items()
    )


def _taken(wanted: Mapping[int, int]) -> Divisors:
    return tuple((mode, (every,)) for mode, every in sorted(wanted.items()))


def _never(_: str) -> bool:
    return False
