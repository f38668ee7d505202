"""Replanning of broken contracts: reserve another generation beside the broken one.

States of an owned contract:

    whole --channel down, SegmentBroken, or segment lost--> broken --timer `replan`--> being planned
    being planned --another generation is decided--> whole, or lowered
    being planned --no plan--> broken; its subscriber's cloud gets the state, once for each change
    broken --channel up, SegmentRestored, or the child joins again--> whole
    lowered --timer `raise`--> being planned, at a better quality only

"Lowered" is a contract that got less than was promised, because nothing of it worked any more.

A broken contract that cannot be planned keeps its paths, which resume by themselves. A failed
attempt is repeated after a delay that doubles each time, and at once when a channel or a child
returns or capacity is freed. Broken contracts come before lowered ones.

For a segment that is held for the parent nothing is planned here: the parent gets `SegmentBroken`
and `SegmentRestored`, and again after each join.

Restart. Only "lowered" is durable. Children report broken segments again when they join, and
channels are marked as down when their routers report it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from gridstat.broker.requests.outcomes import few_words, refused
from gridstat.broker.tree.contract_damage import broken_paths, damage_of
from gridstat.broker.tree.tree_capability import TreeCapability
from gridstat.broker.tree.tree_operations import Stage, body_of
from gridstat.model.errors import NoSuchVariable, NotAuthorised

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.broker.tree.contract_damage import Damage, Impaired, Trouble, Troubles
    from gridstat.broker.tree.owned_contracts import OwnedContracts
    from gridstat.broker.tree.segment_releases import Key
    from gridstat.broker.tree.tree_capability import Facts
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import Holding
    from gridstat.broker.tree.tree_segments import TreeSegments
    from gridstat.net.command.segment_messages import SegmentBroken, SegmentRestored

VARIABLE_ENDED: Final = "over"
"""Cause of a broken segment: nobody publishes its variable any more."""
REPORTED_MAX: Final = 10_000


class _Report(NamedTuple):
    """Report about a broken segment that the parent has received."""

    reason: str
    gates: tuple[int, ...]
    is_over: bool = False
    code: int = 0


class Replanning:
    """Owned contracts that are broken, with the causes, and those that are lowered."""

    def __init__(
        self, context: TreeContext, contracts: OwnedContracts, segments: TreeSegments
    ) -> None:
        self._context = context
        self._contracts = contracts
        self._segments = segments
        self._troubles: dict[str, Troubles] = {}
        self._waiting = ReplanQueue(context, REPLAN_TIMER)
        self._lowered = ReplanQueue(context, RAISE_TIMER)
        self._reported_above: dict[Key, dict[Trouble, _Report]] = {}
        self._capacity_retry_ns = 0
        self._sent: dict[str, Troubles] = {}
        """Causes that the subscriber's cloud has received, for each broken contract."""

    def __len__(self) -> int:
        return len(self._troubles)

    def capability(self) -> TreeCapability:
        """Return the registration of replanning; the dispatcher of segments has its messages."""
        return TreeCapability(
            name="replanning",
            survey=self._facts,
            timers={REPLAN_TIMER: self.replan_some, RAISE_TIMER: self.raise_some},
            resume=self.resume,
            child_joined=self._child_joined,
        )

    def _facts(self) -> Facts:
        return {"broken": len(self)}

    def troubles(self, contract: str) -> list[str]:
        return [
            f"broker {found}" if isinstance(found, str) else f"channel {self._label(found)}"
            for found in self._troubles.get(contract, {})
        ]

    def impairment_of(self, holding: Holding) -> Impaired:
        """Return texts about what is wrong with a contract, and the paths that do not work."""
        is_current = self._context.state.holdings.current(holding.contract) == holding
        troubles = self._troubles.get(holding.contract) if is_current else None
        if not troubles:
            return (), ()
        down = broken_paths(self._context.state, holding, troubles)
        where = ", ".join(self.troubles(holding.contract))
        texts = tuple(f"path {index + 1} is down: {where}" for index in down)
        return few_words(texts or (f"not all paths work: {where}",)), down

    def replan_failed(self, contract: str) -> None:
        """Send the state of a contract to its subscriber's cloud, if the state has changed."""
        now = self._troubles.get(contract, {})
        if now == self._sent.get(contract, {}):
            return
        if now:
            self._sent[contract] = dict(now)
        else:
            del self._sent[contract]
        self._contracts.send_state(contract)

    # Events.

    def channel_changed(self, channel_id: int) -> None:
        """Mark or unmark the contracts on a channel that has failed or returned.

        Congestion changes no contract that uses the channel already.
        """
        holdings = self._context.state.holdings
        account = self._context.state.channels.accounts[channel_id]
        for contract in sorted(holdings.over_channel(channel_id)):
            for holding in holdings.of(contract):
                if holdings.stage(holding) is not Stage.COMMITTED:
                    continue
                if channel_id not in holding.channel_ids:
                    continue
                if account.down_at or self._is_too_plain(holding, channel_id):
                    self._break_at(holding, channel_id)
                elif self._is_known(holding, channel_id):
                    self._restore(holding, channel_id)
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
            self._end(holding, message.reason, message.code)
            return  # Only the publisher's side knows that the variable has ended.
        self._break(holding, child, message.broken, message.reason)

    def segment_restored(self, child: str, message: SegmentRestored) -> None:
        holding = self._context.state.holdings.find(message.contract, message.generation)
        if holding is not None and child in holding.children:
            self._restore(holding, child)

    def child_returned(self, child: str) -> None:
        """Take a child's segments for whole: the child reports those that are still broken."""
        holdings = self._context.state.holdings
        for contract in [one for one, found in self._troubles.items() if child in found]:
            held = holdings.current(contract)
            if held is not None:
                self._restore(held, child)
        for key in [one for one, found in self._reported_above.items() if child in found]:
            segment = holdings.find(*key)
            if segment is not None:
                self._restore(segment, child)

    def _child_joined(self, child: str) -> None:
        del child
        self.try_again(is_new=True)

    def segment_lost(self, child: str, holding: Holding) -> None:
        """Mark a contract as broken because a child does not hold a committed segment."""
        self._break(holding, child, (), f"broker {child} has lost its segment")

    def try_again(self, *, is_new: bool = False) -> None:
        """Plan every broken or lowered contract again; at once if something really new happened."""
        self._waiting.add(self._troubles, is_new=is_new)
        self._lowered.add(list(self._lowered), is_new=is_new)

    def capacity_freed(self) -> None:
        """Plan again after a contract has ended, at most once in each retry interval."""
        if (self._troubles or self._lowered) and self._context.now_ns >= self._capacity_retry_ns:
            self._capacity_retry_ns = self._context.now_ns + self._context.settings.retry_after_ns
            self.try_again(is_new=True)

    def replan_some(self) -> None:
        count_max = self._context.settings.replan_at_once - len(self._contracts.being_replanned)
        self._replan(self._waiting.take(count_max))

    def raise_some(self) -> None:
        """Plan lowered contracts, with half of all attempts, so that broken ones need not wait."""
        count_max = -(-self._context.settings.replan_at_once // 2) - len(
            self._contracts.being_replanned
        )
        holds = self._contracts.holds
        self._replan(
            [contract for contract in self._lowered.take(count_max) if holds.may_rise(contract)]
        )

    def _replan(self, contracts: list[str]) -> None:
        for contract in contracts:
            self._contracts.replan(contract)

    def resume(self) -> None:
        """Queue, after a start, contracts that are lowered, or use a channel that is not in the
        file any more or not sealed any more."""
        holdings = self._context.state.holdings
        for holding, _ in holdings.all():
            if holding.is_lowered and holdings.current(holding.contract) == holding:
                self._lowered.add_later(holding.contract)
        for number in self._context.state.file_channels.missing_in_file():
            self.channel_changed(number)
        for number in sorted(self._context.state.channels.plain_channels()):
            self.channel_changed(number)  # Its file may have said otherwise before the start.

    # Marking contracts.

    def _break(
        self, holding: Holding, trouble: Trouble, broken: tuple[int, ...], reason: str
    ) -> None:
        if not holding.is_owned:
            self._report_broken(
                holding, trouble, _Report(reason, self._gates(holding, trouble, broken))
            )
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
        """Mark a holding as broken if one of its channels has failed before it was committed."""
        accounts = self._context.state.channels.accounts
        for number in dict.fromkeys(holding.channel_ids):
            if accounts[number].down_at or self._is_too_plain(holding, number):
                self._break_at(holding, number)

    def _is_too_plain(self, holding: Holding, channel_id: int) -> bool:
        """Return whether a contract that demands sealed channels uses this one, which is not."""
        plain = self._context.state.channels.plain_channels()
        return channel_id in plain and body_of(holding).is_sealed

    def _break_at(self, holding: Holding, channel_id: int) -> None:
        self._break(holding, channel_id, (), f"channel {self._label(channel_id)}")

    def _is_known(self, holding: Holding, trouble: Trouble) -> bool:
        if holding.is_owned:
            return trouble in self._troubles.get(holding.contract, {})
        return trouble in self._reported_above.get(holding.key, {})

    def _restore(self, holding: Holding, trouble: Trouble) -> None:
        if not holding.is_owned:
            self._report_restored(holding, trouble)
            return
        troubles = self._troubles.get(holding.contract)
        is_current = self._context.state.holdings.current(holding.contract) == holding
        if troubles is not None and is_current:
            troubles.pop(trouble, None)
            if not troubles:
                del self._troubles[holding.contract]
                self._waiting.forget(holding.contract)
            if holding.contract in self._sent:
                self.replan_failed(holding.contract)

    def _end(self, holding: Holding, reason: str, code: int) -> None:
        if not holding.is_owned:
            report = _Report(reason, (), is_over=True, code=code)
            self._report_broken(holding, VARIABLE_ENDED, report)
            return
        self.contract_settled(holding.contract)
        name = body_of(holding).variable.name
        is_kept_from = code == NotAuthorised.code
        kind = NotAuthorised if is_kept_from else NoSuchVariable
        gone = kind(reason or f"{name} is not published any more")
        self._contracts.end_now(holding.contract, refused(gone))

    # Segments of the parent.

    def parent_joined(self) -> None:
        """Report every broken segment again, since the parent may have missed it."""
        self._forget_released()
        for key, found in self._reported_above.items():
            for broken in found.values():
                self._send_report(key, broken)

    def _report_broken(self, holding: Holding, trouble: Trouble, broken: _Report) -> None:
        if len(self._reported_above) > REPORTED_MAX:
            self._forget_released()
        self._reported_above.setdefault(holding.key, {})[trouble] = broken
        self._send_report(holding.key, broken)

    def _report_restored(self, holding: Holding, trouble: Trouble) -> None:
        """Remove a cause, and report a segment as restored when no cause is left."""
        found = self._reported_above.get(holding.key, {})
        found.pop(trouble, None)
        if not found:
            self._reported_above.pop(holding.key, None)
            self._segments.send_restored(holding.key)

    def _forget_released(self) -> None:
        holdings = self._context.state.holdings
        for key in [key for key in self._reported_above if holdings.find(*key) is None]:
            del self._reported_above[key]

    def _send_report(self, key: Key, broken: _Report) -> None:
        self._segments.send_broken(
            key, broken.reason, broken.gates, is_over=broken.is_over, code=broken.code
        )

    def contract_settled(self, contract: str) -> None:
        """Forget the causes of a contract that has ended, or has another generation."""
        self._troubles.pop(contract, None)
        self._sent.pop(contract, None)
        self._waiting.forget(contract)
        self._lowered.forget(contract)

    def damage_of(self, contract: str) -> Damage:
        return damage_of(self._context.state, contract, self._troubles.get(contract, {}))

    def _gates(
        self, holding: Holding, trouble: Trouble, broken: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Return the parent's channels at which the broken paths enter and leave this scope."""
        bad = {*broken, *((trouble,) if isinstance(trouble, int) else ())}
        found = [
            number
            for way in body_of(holding).scope_paths
            if bad & {way.entry, way.exit, *way.channel_ids}
            for number in (way.entry, way.exit)
            if number
        ]
        return tuple(dict.fromkeys(found))

    def _label(self, channel_id: int) -> str:
        account = self._context.state.channels.accounts.get(channel_id)
        return str(channel_id) if account is None else account.channel.label


# Queue of contracts to plan again.
#
# Every attempt costs a look-up and rounds of reservations, whose load makes children send new
# hints. So a failed attempt is repeated after ever longer delays, and few attempts are open at a
# time. Attempts never stop, because capacity may be freed where no broker reports it. The delays of
# two contracts differ: attempts at the same times, each of which holds the room that the other
# lacks, would all fail.

REPLAN_TIMER: Final = "replan"
RAISE_TIMER: Final = "raise"
DOUBLINGS_MAX: Final = 5


class ReplanQueue:
    """Contracts with the time of their next attempt; `take` is called when the timer fires."""

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
        """Queue contracts now if something new happened, else after the delay of their last try."""
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
        """Queue a contract for one retry interval from now."""
        again_ns = self._context.now_ns + self._context.settings.retry_after_ns
        self._due_ns[contract] = self._not_before_ns[contract] = again_ns
        self._set_timer(again_ns)

    def forget(self, contract: str) -> None:
        """Remove a contract, and let another one take its turn."""
        for found in (self._due_ns, self._attempts, self._not_before_ns):
            found.pop(contract, None)
        if self._is_crowded:
            self._is_crowded = False
            self._set_timer(self._context.now_ns)

    def take(self, count_max: int) -> list[str]:
        """Return at most `count_max` contracts that are due; the rest waits."""
        self._timer_ns = None
        now_ns, settings = self._context.now_ns, self._context.settings
        due = (contract for contract, due_ns in self._due_ns.items() if due_ns <= now_ns)
        taken = list(islice(due, max(0, count_max)))
        self._is_crowded = next(due, None) is not None
        for contract in taken:
            del self._due_ns[contract]
            attempts = self._attempts.get(contract, 0)
            self._attempts[contract] = min(attempts + 1, DOUBLINGS_MAX)
            again_ns = now_ns + _spread(settings.retry_after_ns << attempts, contract)
            self._due_ns[contract] = self._not_before_ns[contract] = again_ns
        if self._is_crowded:
            self._set_timer(now_ns + settings.path_retry_ns)
        elif self._due_ns:
            self._set_timer(min(self._due_ns.values()))
        return taken

    def _set_timer(self, due_ns: int) -> None:
        if self._timer_ns is None or due_ns < self._timer_ns:
            self._timer_ns = due_ns
            self._context.set_timer(self._timer, due_ns - self._context.now_ns)


def _spread(delay_ns: int, contract: str) -> int:
    """Return a delay that is shorter by up to a quarter, always the same for a contract."""
    return delay_ns - delay_ns * (crc32(contract.encode()) % 256) // 1024
