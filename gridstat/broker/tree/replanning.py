"""What is broken, and what is done about it: another generation beside it, as soon as there is one.

A contract that nothing leads round keeps what it has, which resumes by itself, and is tried again
whenever something comes back or room is free, and from time to time. Of a segment that is held for
the parent, the parent is told.

Where nothing worked any more, a contract may have been given less than it was promised. It gets
that back in the same way, though behind those that are broken.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.broker.requests.outcomes import few_words, refused
from gridstat.broker.tree.contract_damage import broken_paths, damage_of
from gridstat.broker.tree.tree_operations import Stage, body_of
from gridstat.model.errors import NoSuchVariable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.broker.tree.contract_damage import Damage, Impaired, Trouble, Troubles
    from gridstat.broker.tree.owned_contracts import OwnedContracts
    from gridstat.broker.tree.segment_releases import Key
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import Holding
    from gridstat.broker.tree.tree_segments import TreeSegments
    from gridstat.net.command.segment_messages import SegmentBroken, SegmentRestored

OVER: Final = "over"
PASSED_ON_MAX: Final = 10_000


class _Broken(NamedTuple):
    """What the parent was told of a segment."""

    reason: str
    gates: tuple[int, ...]
    is_over: bool = False


class Replanning:
    """`_troubles` has every contract that is not whole, with what is wrong with it.

    `_lowered` are those that have less than they were promised.
    """

    def __init__(
        self, context: TreeContext, contracts: OwnedContracts, segments: TreeSegments
    ) -> None:
        self._context = context
        self._contracts = contracts
        self._segments = segments
        self._troubles: dict[str, Troubles] = {}
        self._waiting = ReplanQueue(context, REPLAN_TIMER)
        self._lowered = ReplanQueue(context, RAISE_TIMER)
        self._passed_on: dict[Key, dict[Trouble, _Broken]] = {}
        self._room_after_ns = 0
        self._told: dict[str, Troubles] = {}
        """What the subscriber's cloud has been told of each contract that is not whole."""

    def __len__(self) -> int:
        return len(self._troubles)

    def troubles(self, contract: str) -> list[str]:
        return [
            f"broker {found}" if isinstance(found, str) else f"channel {self._label(found)}"
            for found in self._troubles.get(contract, {})
        ]

    def impairment_of(self, holding: Holding) -> Impaired:
        """What is wrong with a contract at the moment, in words, and which paths do not work."""
        is_current = self._context.state.holdings.current(holding.contract) == holding
        troubles = self._troubles.get(holding.contract) if is_current else None
        if not troubles:
            return (), ()
        down = broken_paths(self._context.state, holding, troubles)
        where = ", ".join(self.troubles(holding.contract))
        words = tuple(f"path {index + 1} is down: {where}" for index in down)
        return few_words(words or (f"not whole: {where}",)), down

    def replan_failed(self, contract: str) -> None:
        """Nothing leads round it: then its subscriber is told, once for each state."""
        now = self._troubles.get(contract, {})
        if now == self._told.get(contract, {}):
            return
        if now:
            self._told[contract] = dict(now)
        else:
            del self._told[contract]
        self._contracts.tell_state(contract)

    # What happens.

    def channel_changed(self, channel_id: int) -> None:
        """It is silent, or heard again; or congested, which keeps what is there."""
        holdings = self._context.state.holdings
        account = self._context.state.channels.accounts[channel_id]
        for contract in sorted(holdings.over_channel(channel_id)):
            for holding in holdings.of(contract):
                if holdings.stage(holding) is not Stage.COMMITTED:
                    continue
                if channel_id not in holding.channel_ids:
                    continue
                if account.down_at:
                    self._break_at(holding, channel_id)
                elif self._is_known(holding, channel_id):
                    self._mend(holding, channel_id)
        if account.is_usable:
            self.try_again(is_new=True)

    def segment_broken(self, child: str, message: SegmentBroken) -> None:
        holdings = self._context.state.holdings
        holding = holdings.find(message.contract, message.generation)
        if holding is None or holdings.stage(holding) is not Stage.COMMITTED:
            return
        if child not in holding.children:
            return
        name = body_of(holding).variable.name
        if message.is_over and self._context.state.families.child_at(name) == child:
            self._over(holding, message.reason)
            return  # Of the publisher's side: who is only crossed knows nothing of that.
        self._break(holding, child, message.broken, message.reason)

    def segment_mended(self, child: str, message: SegmentRestored) -> None:
        holding = self._context.state.holdings.find(message.contract, message.generation)
        if holding is not None and child in holding.children:
            self._mend(holding, child)

    def child_joined(self, child: str) -> None:
        """It says anew what is broken of what it holds; the rest has been mended meanwhile."""
        holdings = self._context.state.holdings
        for contract in [one for one, found in self._troubles.items() if child in found]:
            held = holdings.current(contract)
            if held is not None:
                self._mend(held, child)
        for key in [one for one, found in self._passed_on.items() if child in found]:
            segment = holdings.find(*key)
            if segment is not None:
                self._mend(segment, child)

    def segment_lost(self, child: str, holding: Holding) -> None:
        """A child does not hold what it had committed."""
        self._break(holding, child, (), f"broker {child} has lost its part of it")

    def try_again(self, *, is_new: bool = False) -> None:
        """Something is better than it was, or may be: then only a hint has changed."""
        self._waiting.add(self._troubles, is_new=is_new)
        self._lowered.add(list(self._lowered), is_new=is_new)

    def capacity_freed(self) -> None:
        """Retry others after a contract has ended, at most once an interval however many end."""
        if (self._troubles or self._lowered) and self._context.now_ns >= self._room_after_ns:
            self._room_after_ns = self._context.now_ns + self._context.settings.retry_after_ns
            self.try_again(is_new=True)

    def replan_some(self) -> None:
        room = self._context.settings.replan_at_once - len(self._contracts.replanned)
        self._replan(self._waiting.take(room))

    def raise_some(self) -> None:
        """At most half of all at a time, so that what is broken need not wait for these."""
        room = -(-self._context.settings.replan_at_once // 2) - len(self._contracts.replanned)
        self._replan(self._lowered.take(room))

    def _replan(self, contracts: list[str]) -> None:
        for contract in contracts:
            self._contracts.replan(contract)

    def resume(self) -> None:
        """After a start: of those that have less than they were promised the journal tells."""
        holdings = self._context.state.holdings
        for holding, _ in holdings.all():
            if holding.is_lowered and holdings.current(holding.contract) == holding:
                self._lowered.add_later(holding.contract)

    # What follows.

    def _break(
        self, holding: Holding, trouble: Trouble, broken: tuple[int, ...], reason: str
    ) -> None:
        if not holding.is_owned:
            self._pass_on(holding, trouble, _Broken(reason, self._gates(holding, trouble, broken)))
            return
        if self._context.state.holdings.current(holding.contract) != holding:
            return
        troubles = self._troubles.setdefault(holding.contract, {})
        is_new = trouble not in troubles
        troubles[trouble] = broken
        self._waiting.add([holding.contract], is_new=is_new)

    def contract_decided(self, holding: Holding) -> None:
        if holding.is_lowered:
            self._lowered.add_later(holding.contract)
        self.segment_committed(holding)

    def segment_committed(self, holding: Holding) -> None:
        """It counts from now on: has a channel of it died while it was only reserved?"""
        accounts = self._context.state.channels.accounts
        for number in dict.fromkeys(holding.channel_ids):
            if accounts[number].down_at:
                self._break_at(holding, number)

    def _break_at(self, holding: Holding, channel_id: int) -> None:
        self._break(holding, channel_id, (), f"channel {self._label(channel_id)}")

    def _is_known(self, holding: Holding, trouble: Trouble) -> bool:
        if holding.is_owned:
            return trouble in self._troubles.get(holding.contract, {})
        return trouble in self._passed_on.get(holding.key, {})

    def _mend(self, holding: Holding, trouble: Trouble) -> None:
        if not holding.is_owned:
            self._take_back(holding, trouble)
            return
        troubles = self._troubles.get(holding.contract)
        is_current = self._context.state.holdings.current(holding.contract) == holding
        if troubles is not None and is_current:
            troubles.pop(trouble, None)
            if not troubles:
                del self._troubles[holding.contract]
                self._waiting.forget(holding.contract)
            if holding.contract in self._told:
                self.replan_failed(holding.contract)

    def _over(self, holding: Holding, reason: str) -> None:
        if not holding.is_owned:
            self._pass_on(holding, OVER, _Broken(reason, (), is_over=True))
            return
        self.contract_settled(holding.contract)
        name = body_of(holding).variable.name
        gone = NoSuchVariable(reason or f"{name} is not published any more")
        self._contracts.end_now(holding.contract, refused(gone))

    # TreeSegments for the parent.

    def parent_joined(self) -> None:
        """Say again what is broken: the parent may have been away, or have forgotten it."""
        self._forget_released()
        for key, found in self._passed_on.items():
            for broken in found.values():
                self._say(key, broken)

    def _pass_on(self, holding: Holding, trouble: Trouble, broken: _Broken) -> None:
        if len(self._passed_on) > PASSED_ON_MAX:
            self._forget_released()
        self._passed_on.setdefault(holding.key, {})[trouble] = broken
        self._say(holding.key, broken)

    def _take_back(self, holding: Holding, trouble: Trouble) -> None:
        """It works again, if nothing else is wrong with it."""
        found = self._passed_on.get(holding.key, {})
        found.pop(trouble, None)
        if not found:
            self._passed_on.pop(holding.key, None)
            self._segments.say_mended(holding.key)

    def _forget_released(self) -> None:
        holdings = self._context.state.holdings
        for key in [key for key in self._passed_on if holdings.find(*key) is None]:
            del self._passed_on[key]

    def _say(self, key: Key, broken: _Broken) -> None:
        self._segments.say_broken(key, broken.reason, broken.gates, is_over=broken.is_over)

    def contract_settled(self, contract: str) -> None:
        """Another generation is decided."""
        self._troubles.pop(contract, None)
        self._told.pop(contract, None)
        self._waiting.forget(contract)
        self._lowered.forget(contract)

    def damage_of(self, contract: str) -> Damage:
        return damage_of(self._context.state, contract, self._troubles.get(contract, {}))

    def _gates(
        self, holding: Holding, trouble: Trouble, broken: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The parent's channels by which the ways that cannot be used come and go."""
        bad = {*broken, *((trouble,) if isinstance(trouble, int) else ())}
        found = [
            number
            for way in body_of(holding).ways
            if bad & {way.entry, way.exit, *way.channel_ids}
            for number in (way.entry, way.exit)
            if number
        ]
        return tuple(dict.fromkeys(found))

    def _label(self, channel_id: int) -> str:
        account = self._context.state.channels.accounts.get(channel_id)
        return str(channel_id) if account is None else account.channel.label


# Contracts that are to be planned anew, each in its time.
#
# Every attempt costs a look-up and rounds of reservations, whose loads make children send new
# hints. So a failed attempt is repeated less and less often, and only so many are open at a time;
# but it is repeated, for room may become free where nobody tells of it. What is really new is tried
# at once.

REPLAN_TIMER: Final = "replan"
RAISE_TIMER: Final = "raise"
DOUBLINGS_MAX: Final = 5


class ReplanQueue:
    """`take` is called when the timer has fired."""

    def __init__(self, context: TreeContext, timer: str) -> None:
        self._context = context
        self._timer = timer
        self._due_ns: dict[str, int] = {}
        self._attempts: dict[str, int] = {}
        self._not_before_ns: dict[str, int] = {}
        self._timer_ns: int | None = None
        self._is_crowded = False

    def __len__(self) -> int:
        return len(self._due_ns)

    def __iter__(self) -> Iterator[str]:
        return iter(self._due_ns)

    def add(self, contracts: Iterable[str], *, is_new: bool) -> None:
        """Without anything really new not before its last attempt is long enough ago."""
        now_ns = self._context.now_ns
        for contract in contracts:
            if is_new:
                self._attempts.pop(contract, None)
                self._not_before_ns.pop(contract, None)
            due_ns = max(now_ns, self._not_before_ns.get(contract, 0))
            due_ns = min(due_ns, self._due_ns.get(contract, due_ns))
            self._due_ns[contract] = due_ns
            self._set_timer(due_ns)

    def add_later(self, contract: str) -> None:
        """Something has just been tried for it, or nobody is there yet."""
        again_ns = self._context.now_ns + self._context.settings.retry_after_ns
        self._due_ns[contract] = self._not_before_ns[contract] = again_ns
        self._set_timer(again_ns)

    def forget(self, contract: str) -> None:
        """It is whole, or over; perhaps there is room for another one now."""
        for found in (self._due_ns, self._attempts, self._not_before_ns):
            found.pop(contract, None)
        if self._is_crowded:
            self._is_crowded = False
            self._set_timer(self._context.now_ns)

    def take(self, count_max: int) -> list[str]:
        """Those whose time has come, as many as may be; the rest waits."""
        self._timer_ns = None
        now_ns, settings = self._context.now_ns, self._context.settings
        due = (contract for contract, due_ns in self._due_ns.items() if due_ns <= now_ns)
        taken = list(islice(due, max(0, count_max)))
        self._is_crowded = next(due, None) is not None
        for contract in taken:
            del self._due_ns[contract]
            attempts = self._attempts.get(contract, 0)
            self._attempts[contract] = min(attempts + 1, DOUBLINGS_MAX)
            again_ns = now_ns + (settings.retry_after_ns << attempts)
            self._due_ns[contract] = self._not_before_ns[contract] = again_ns
        if self._is_crowded:
            self._set_timer(now_ns + settings.patience_ns)
        elif self._due_ns:
            self._set_timer(min(self._due_ns.values()))
        return taken

    def _set_timer(self, due_ns: int) -> None:
        if self._timer_ns is None or due_ns < self._timer_ns:
            self._timer_ns = due_ns
            self._context.set_timer(self._timer, due_ns - self._context.now_ns)
