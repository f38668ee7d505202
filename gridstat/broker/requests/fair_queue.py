"""Fair service of requests: a queue for each end-point, served in turn, within its commands/s.

A request is served at once while nothing waits and the broker is not busy. Otherwise it waits in
the queue of its end-point:

- `put` refuses a request, in words, if its end-point has too many waiting, or if its commands a
  second mean that it would wait longer than `WAIT_NS_MAX`.
- If the requests of all end-points take too many bytes, those of the longest queue give way to
  others, and are refused in words.
- `put_rest` lets the next slice of a request wait that is decided in slices. It is served before
  the other requests of its end-point, one slice in each round, and wants no tokens: the request
  has used them.
- `take` returns the next request. The end-points with waiting requests are served in turn, by
  deficit round robin: a turn serves requests up to `QUANTUM` units of work, where a long request
  counts as several. So the time of a request depends on how many end-points wait, and not on how
  many requests one of them has sent.
- An end-point without tokens for its commands a second leaves the round until it has one.
- An edge router may forward what nobody has signed. An Attach or Detach of an end-point that is
  not attached to its edge waits in a queue of this edge router and this name (`edge_account`), so
  that it takes no turn and no token of the end-point whose name it bears. Each such queue has a
  bound and tokens of its own, and those of one edge have a bound together. At most
  `EDGE_TURNS_MAX` of them are in the round at a time, and the others of the edge follow in turn.
- A request goes on after it was served: it is written, and routers confirm. While one of an end-
  point that has nothing else waiting is under way (`served`, until `ended`), an end-point with more
  waiting has one request under way at a time, so that the first one does not share processors with
  a whole storm. This holds for `HOLD_NS` after a request that was served within `HOLD_NS` of the
  first one under way, and not between end-points that all have many. One that has held others back
  for all that time does not again for `HOLD_PAUSE_NS`.
- `searched` charges an end-point for the searches and splits of its request, for those that other
  clouds, and brokers above, have made for its contracts, and for the rules and names at which its
  patterns made the broker look. Most take less than `SEARCH_FREE_NS`. One that has used more than
  `SEARCH_BURST_NS` leaves the round, also with its slices, until its part of the broker's time, one
  in `SEARCH_PARTS`, has made up for it.

The broker serves a few requests, then reads what has arrived meanwhile, and serves on by a timer.
After a restart the queues are empty, and end-points repeat their requests.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from gridstat.broker.requests.search_times import SearchTimes
from gridstat.model.errors import QuotaReached
from gridstat.model.quota import BURST_S, Quota
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.broker.requests.request import Rest
    from gridstat.net.command.router_messages import Forward

WAITING_MAX: Final = 1_024
"""Requests of one end-point that may wait."""
UNATTACHED_WAITING_MAX: Final = 8
"""Requests that may wait for one edge router and one name that is not attached to it."""
UNATTACHED_BYTES_MAX: Final = 24 * 2**10
"""Bytes of such requests, and of each: an Attach has a certificate of up to 16 KiB."""
UNATTACHED_PER_S: Final = 20
"""Such commands a second; an end-point repeats an Attach about once a second."""
EDGE_NAMES: Final = 1_024
"""End-points of one edge router, which may all attach after a fault."""
EDGE_WAITING_MAX: Final = EDGE_NAMES * UNATTACHED_WAITING_MAX
EDGE_BYTES_MAX: Final = EDGE_NAMES * UNATTACHED_BYTES_MAX
"""Bounds of the requests of unattached end-points that wait for one edge router."""
EDGE_TURNS_MAX: Final = 16
"""Unattached end-points of one edge router that have a turn in the same round."""
WAITING_BYTES_MAX: Final = 4 * 2**20
"""Bytes of one end-point's waiting requests."""
ALL_BYTES_MAX: Final = 64 * 2**20
"""Bytes of all waiting requests."""
WAIT_NS_MAX: Final = 5 * NS_PER_S
"""Longest wait for tokens; an end-point gives a request up after a few seconds."""
QUANTUM: Final = 2
"""Units of work of an end-point in one round."""
UNIT_BYTES: Final = 512
"""Bytes of a request that count as one unit of work."""
COMMAND_BYTES: Final = 1_024
"""Bytes of a request that count as one command: about ten variables."""
AT_ONCE: Final = 8
"""Units of work that are served without queueing, after a pause."""
IN_A_TURN: Final = 2
"""Units of work from the queues after which the broker reads what has arrived meanwhile."""
BUSY_NS: Final = 1_000_000
"""Time in which one more unit may be served at once, without queueing."""
HOLD_NS: Final = 100_000_000
"""Time for which one request under way may hold others back; most are granted much sooner."""
HOLD_PAUSE_NS: Final = 5 * HOLD_NS
"""Time after that in which requests of the same end-point hold nobody back."""
KNOWN_MAX: Final = 65_536
"""End-points whose tokens are remembered; a forgotten one has its full burst again."""


_UNATTACHED_QUOTA: Final = Quota(commands_per_s=UNATTACHED_PER_S)
_EDGE: Final = "edge router "
"""Begin of an edge router's account; no end-point's name has a space."""


def edge_account(edge: str, name: str) -> str:
    """Return the name under which requests of an unattached end-point are queued."""
    return f"{_EDGE}{edge}: {name}"


def _unattached_quota(_: str) -> Quota:
    return _UNATTACHED_QUOTA


def _edge_of(account: str) -> str:
    """Return the edge router of an unattached end-point's account, and "" for other accounts."""
    return account[len(_EDGE) :].partition(": ")[0] if account.startswith(_EDGE) else ""


@dataclass(slots=True)
class _Line:
    """Waiting requests of one end-point, its unused units of work, bytes and tokens."""

    waiting: deque[tuple[str, Forward]] = field(default_factory=deque)
    rests: deque[Rest] = field(default_factory=deque)
    deficit: int = 0
    size_bytes: int = 0
    tokens: int = 0
    """Tokens that all waiting requests want."""


@dataclass(slots=True)
class _EdgeLines:
    """Accounts of the unattached end-points of one edge router that have requests waiting."""

    accounts: dict[str, None] = field(default_factory=dict)
    in_round: int = 0
    aside: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """Those that wait until fewer of them are in the round, in turn."""
    count: int = 0
    size_bytes: int = 0


class TokenBuckets:
    """Tokens of each identity, as the time at which its bucket is full again.

    An identity may send while that time lies less than a burst ahead of now.
    """

    def __init__(self, quota_of: Callable[[str], Quota]) -> None:
        self._quota_of = quota_of
        self._full_ns: OrderedDict[str, int] = OrderedDict()

    def ready_ns(self, who: str, now_ns: int, ahead: int = 0) -> int:
        """Return when the identity has a token, after so many tokens that are wanted before."""
        per_s = self._quota_of(who).commands_per_s
        if not per_s:
            return now_ns
        full_ns = max(self._full_ns.get(who, now_ns), now_ns)
        return max(now_ns, full_ns + (ahead + 1) * NS_PER_S // per_s - BURST_S * NS_PER_S)

    def use(self, who: str, tokens: int, now_ns: int) -> None:
        per_s = self._quota_of(who).commands_per_s
        if not per_s:
            return
        full_ns = max(self._full_ns.pop(who, now_ns), now_ns)
        self._full_ns[who] = full_ns + tokens * NS_PER_S // per_s
        while len(self._full_ns) > KNOWN_MAX:
            self._full_ns.popitem(last=False)


class FairQueue:
    """Requests that wait, in order for each end-point; `_round` lists those that may be served.

    An end-point with waiting requests is in one of `_round`, `_held` and `_delayed`. One that is
    not attached is in one of `_round`, `_delayed` and `_EdgeLines.aside`.
    """

    def __init__(self, quota_of: Callable[[str], Quota]) -> None:
        self._buckets = TokenBuckets(quota_of)
        self._quota_of = quota_of
        self.search_times = SearchTimes()
        self._lines: dict[str, _Line] = {}
        self._edges: dict[str, _EdgeLines] = {}
        self._unattached_buckets = TokenBuckets(_unattached_quota)
        self._round: OrderedDict[str, None] = OrderedDict()
        self._delayed: list[tuple[int, str]] = []
        self._held: OrderedDict[str, None] = OrderedDict()
        self._under_way: dict[str, tuple[int, int]] = {}
        """End-points with requests under way, and when the first and last of them were served."""
        self._lone: OrderedDict[str, int] = OrderedDict()
        """Those of them that hold others back, with nothing else waiting, in the order of service.
        """
        self._pausing: OrderedDict[str, int] = OrderedDict()
        """End-points that may not hold others back, and until when, in this order."""
        self._size_bytes = 0
        self._idle_from_ns = 0
        self._dropped: list[tuple[str, Forward, QuotaReached]] = []
        self.count = 0
        """Requests that wait."""
        self.refused = 0
        """Requests that were refused because their end-point sends too many."""
        self.delayed = 0
        """Requests that waited for a token of their end-point."""

    def is_free(self, who: str, now_ns: int) -> bool:
        """Return whether a request of an end-point may be served at once."""
        is_idle = self._idle_from_ns <= now_ns + AT_ONCE * BUSY_NS
        return not self.count and is_idle and self._ready_ns(who, now_ns) <= now_ns

    def served(self, who: str, forward: Forward, now_ns: int) -> None:
        """Note that a request is served, at once or from the queue."""
        self._idle_from_ns = max(self._idle_from_ns, now_ns) + units_of(forward) * BUSY_NS
        if _edge_of(who):
            self._unattached_buckets.use(who, tokens_of(forward), now_ns)
            return
        self._buckets.use(who, tokens_of(forward), now_ns)
        first_ns = self._under_way.get(who, (now_ns, now_ns))[0]
        self._under_way[who] = first_ns, now_ns
        self._lone.pop(who, None)
        line = self._lines.get(who)
        has_more = line is not None and (line.waiting or line.rests)
        is_early = now_ns < first_ns + HOLD_NS and self._pausing.get(who, 0) <= now_ns
        if is_early and not has_more:
            self._lone[who] = now_ns

    def ended(self, who: str, now_ns: int) -> None:
        """Note that an end-point has no request under way any more."""
        self._under_way.pop(who, None)
        self._lone.pop(who, None)
        if who in self._held:
            del self._held[who]
            self._enter(who, now_ns)

    def searched(self, who: str, took_ns: int, now_ns: int, *, is_again: bool = False) -> None:
        """Note how long the path searches of a request took.

        With `is_again` it is a later slice of the request, or it was decided again: all is charged.
        """
        self.search_times.use(who, took_ns, now_ns, is_again=is_again)

    def put(
        self, edge: str, forward: Forward, now_ns: int, *, account: str = ""
    ) -> QuotaReached | None:
        """Let a request wait, or return why its end-point may not send it now.

        It waits in the queue of its end-point if no account is given.
        """
        who = account or forward.endpoint
        line = self._lines.get(who) or _Line()
        refusal = self._refusal(who, line, _size_bytes(forward), now_ns)
        if refusal is not None:
            self.refused += 1
            return refusal
        if who not in self._lines:
            self._lines[who] = line
            if _edge_of(who):
                self._edges.setdefault(_edge_of(who), _EdgeLines()).accounts[who] = None
            self._lone.pop(who, None)
            self._enter(who, now_ns)
        line.waiting.append((edge, forward))
        self._count(who, forward, 1)
        return None

    def _refusal(self, who: str, line: _Line, size_bytes: int, now_ns: int) -> QuotaReached | None:
        """Return why one more request may not wait; make room for it if it may."""
        waiting = all_waiting = len(line.waiting)
        payer, payer_bytes = who, line.size_bytes
        waiting_max, bytes_max = WAITING_MAX, WAITING_BYTES_MAX
        if edge := _edge_of(who):
            waiting_max, bytes_max = UNATTACHED_WAITING_MAX, UNATTACHED_BYTES_MAX
            of_edge = self._edges.get(edge, _EdgeLines())
            payer, payer_bytes, all_waiting = _EDGE + edge, of_edge.size_bytes, of_edge.count
            if (
                of_edge.count >= EDGE_WAITING_MAX
                or of_edge.size_bytes + size_bytes > EDGE_BYTES_MAX
            ):
                return _too_many_unattached(payer, all_waiting)
        waits_ns = self._ready_ns(who, now_ns, ahead=line.tokens) - now_ns
        if (
            waiting >= waiting_max
            or line.size_bytes + size_bytes > bytes_max
            or waits_ns > WAIT_NS_MAX
        ):
            return self._too_many(who, waiting, now_ns)
        if not self._make_room(payer_bytes, size_bytes):
            return _full(payer, all_waiting)
        return None

    def take_dropped(self) -> list[tuple[str, Forward, QuotaReached]]:
        """Return the waiting requests that gave way to others since the last call, to be refused;
        each with its edge."""
        found, self._dropped = self._dropped, []
        return found

    def _make_room(self, before_bytes: int, size_bytes: int) -> bool:
        """Drop the newest requests of the longest line until one more fits.

        The lines of one edge router's unattached end-points count as one, of which the longest give
        way first. Return false if the line of the new request, `before_bytes` long, is the longest
        itself. Half of a line is dropped, so that the longest is not looked for at every request.
        """
        while self._size_bytes + size_bytes > ALL_BYTES_MAX:
            sizes = {who: line.size_bytes for who, line in self._lines.items() if not _edge_of(who)}
            sizes |= {_EDGE + edge: lines.size_bytes for edge, lines in self._edges.items()}
            longest = max(sizes, key=sizes.__getitem__)
            if sizes[longest] <= before_bytes + size_bytes:
                return False
            self._drop_half(longest, sizes[longest] // 2)
        return True

    def _drop_half(self, account: str, bytes_of_half: int) -> None:
        """Drop the newest requests of an end-point, or of an edge router, until half are left."""
        accounts = [account]
        if account.startswith(_EDGE):
            accounts = [*reversed(self._edges[account.removeprefix(_EDGE)].accounts)]
        accounts.sort(key=lambda who: self._lines[who].size_bytes, reverse=True)
        waiting = sum(len(self._lines[who].waiting) for who in accounts)
        refusal = _full(account, waiting)
        dropped_bytes = 0
        for who in accounts:
            line = self._lines[who]
            while line.waiting and dropped_bytes < bytes_of_half:
                edge, forward = line.waiting.pop()
                self._count(who, forward, -1)
                dropped_bytes += _size_bytes(forward)
                self.refused += 1
                self._dropped.append((edge, forward, refusal))
        self._leave(who for who in accounts if self._is_empty(who))

    def _is_empty(self, who: str) -> bool:
        line = self._lines[who]
        return not line.waiting and not line.rests

    def _count(self, who: str, forward: Forward, change: int) -> None:
        """Note that a request waits, or that it waits no more (a change of -1)."""
        line, size_bytes = self._lines[who], change * _size_bytes(forward)
        line.size_bytes += size_bytes
        line.tokens += change * tokens_of(forward)
        self._size_bytes += size_bytes
        self.count += change
        if edge := _edge_of(who):
            self._edges[edge].size_bytes += size_bytes
            self._edges[edge].count += change

    def put_rest(self, rest: Rest, now_ns: int) -> None:
        """Let the next slice of a request wait, before the other requests of its end-point."""
        who = rest.request.endpoint
        self._lone.pop(who, None)
        self._held.pop(who, None)
        if who in self._lines and who not in self._round:
            self._delayed = [each for each in self._delayed if each[1] != who]
            self._delayed.sort()
        line = self._lines.setdefault(who, _Line())
        line.rests.append(rest)
        self.count += 1
        if who not in self._round:
            self._enter(who, now_ns)

    def take(self, now_ns: int) -> tuple[str, Forward] | Rest | None:
        """Return the next request with the edge that has sent it, or the next slice of one; None if
        all have to wait."""
        self._wake(now_ns)
        self._release(now_ns)
        while self._round:
            who = next(iter(self._round))
            line = self._lines[who]
            if line.rests:
                return self._pop_rest(who, line, now_ns)
            if self._lone and self._held_until_ns(who) > now_ns:
                self._leave_round(who)
                self._held[who] = None
                continue
            cost = units_of(line.waiting[0][1])
            if line.deficit < cost:
                line.deficit += QUANTUM
                if line.deficit < cost:
                    self._round.move_to_end(who)
                    continue
            self._leave_round(who)
            if self._ready_ns(who, now_ns) > now_ns:
                self._enter(who, now_ns)
                continue
            line.deficit -= cost
            return self._pop(who, line, now_ns)
        return None

    def next_ns(self, now_ns: int) -> int | None:
        """Return when a request can be served; None if nothing waits."""
        if self._round:
            return now_ns
        times = [self._delayed[0][0]] if self._delayed else []
        if self._held:
            lone_ns = next(iter(self._lone.values()), now_ns - HOLD_NS)
            times += [lone_ns + HOLD_NS, self._held_until_ns(next(iter(self._held)))]
        return max(now_ns, min(times)) if times else None

    def forget_edge(self, edge: str) -> None:
        """Drop the requests of an edge whose session is lost: it sends them again."""
        for who, line in self._lines.items():
            gone = [forward for by, forward in line.waiting if by == edge]
            if not gone:
                continue
            line.waiting = deque(each for each in line.waiting if each[0] != edge)
            for forward in gone:
                self._count(who, forward, -1)
        self._leave(who for who in tuple(self._lines) if self._is_empty(who))

    def _pop(self, who: str, line: _Line, now_ns: int) -> tuple[str, Forward]:
        edge, forward = line.waiting.popleft()
        self._count(who, forward, -1)
        self.served(who, forward, now_ns)
        if not line.waiting:
            self._close_line(who)
        else:
            self._enter(who, now_ns, is_first=line.deficit > 0)
        return edge, forward

    def _pop_rest(self, who: str, line: _Line, now_ns: int) -> Rest:
        del self._round[who]
        rest = line.rests.popleft()
        self.count -= 1
        self._idle_from_ns = max(self._idle_from_ns, now_ns) + QUANTUM * BUSY_NS
        if line.rests or line.waiting:
            self._enter(who, now_ns)
        else:
            del self._lines[who]
        return rest

    def _enter(self, who: str, now_ns: int, *, is_first: bool = False) -> None:
        """Put an end-point into the round, or aside until it has a token."""
        if self._lines[who].rests:
            ready_ns = self.search_times.ready_ns(who, now_ns)
        else:
            ready_ns = self._ready_ns(who, now_ns)
        if ready_ns > now_ns:
            self.delayed += 1
            heappush(self._delayed, (ready_ns, who))
            return
        self._join_round(who, is_first=is_first)

    def _join_round(self, who: str, *, is_first: bool = False) -> None:
        """Put an end-point into the round, or aside while its edge has all its turns."""
        if edge := _edge_of(who):
            of_edge = self._edges[edge]
            if of_edge.in_round >= EDGE_TURNS_MAX:
                of_edge.aside[who] = None
                return
            of_edge.in_round += 1
        self._round[who] = None
        if is_first:
            self._round.move_to_end(who, last=False)

    def _leave_round(self, who: str) -> None:
        """Take an end-point out of the round, where the next one of its edge takes its turns."""
        del self._round[who]
        if edge := _edge_of(who):
            of_edge = self._edges[edge]
            of_edge.in_round -= 1
            if of_edge.aside:
                self._join_round(of_edge.aside.popitem(last=False)[0])

    def _ready_ns(self, who: str, now_ns: int, ahead: int = 0) -> int:
        """Return when an end-point has a token, after so many others, and search time."""
        if _edge_of(who):
            return self._unattached_buckets.ready_ns(who, now_ns, ahead)
        return max(
            self._buckets.ready_ns(who, now_ns, ahead), self.search_times.ready_ns(who, now_ns)
        )

    def _held_until_ns(self, who: str) -> int:
        """Return until when a request of an end-point may hold its further ones back."""
        served = self._under_way.get(who)
        return 0 if served is None else served[1] + HOLD_NS

    def _release(self, now_ns: int) -> None:
        """Put end-points back into the round that nothing holds back any more."""
        while self._pausing and next(iter(self._pausing.values())) <= now_ns:
            self._pausing.popitem(last=False)
        while self._lone and next(iter(self._lone.values())) + HOLD_NS <= now_ns:
            who, _ = self._lone.popitem(last=False)
            self._pausing[who] = now_ns + HOLD_PAUSE_NS
        while self._held:
            who = next(iter(self._held))
            if self._lone and self._held_until_ns(who) > now_ns:
                break
            del self._held[who]
            self._enter(who, now_ns)

    def _wake(self, now_ns: int) -> None:
        while self._delayed and self._delayed[0][0] <= now_ns:
            _, who = heappop(self._delayed)
            if who in self._lines and who not in self._round:
                self._join_round(who)

    def _leave(self, gone: Iterable[str]) -> None:
        """Forget end-points with nothing waiting."""
        left = dict.fromkeys(gone)
        if not left:
            return
        for who in left:
            if who in self._round:
                self._leave_round(who)
            elif edge := _edge_of(who):
                self._edges[edge].aside.pop(who, None)
            self._held.pop(who, None)
            self._close_line(who)
        self._delayed = [each for each in self._delayed if each[1] not in left]
        self._delayed.sort()

    def _close_line(self, who: str) -> None:
        del self._lines[who]
        if edge := _edge_of(who):
            accounts = self._edges[edge].accounts
            del accounts[who]
            if not accounts:
                del self._edges[edge]

    def _too_many(self, who: str, waiting: int, now_ns: int) -> QuotaReached:
        if _edge_of(who):
            return QuotaReached(
                f"{who}, which is not attached to it, has {waiting} requests waiting; this one was "
                "not looked at",
                hint="attach again in a few seconds",
            )
        if self.search_times.ready_ns(who, now_ns) > now_ns:
            return QuotaReached(
                f"{who} has {waiting} requests waiting, since the searches of its earlier ones, of "
                "paths or of what patterns match, have used up its search time; this one was not "
                "looked at",
                hint="ask again in a few seconds, with fewer paths, with more latency allowed, or "
                "with narrower patterns",
            )
        per_s = self._quota_of(who).commands_per_s
        rate = f" and may send {per_s} commands a second" if per_s else ""
        return QuotaReached(
            f"{who} has {waiting} requests waiting{rate}; this one was not looked at",
            hint="send fewer requests, with several variables each, or ask an operator of the "
            f"cloud for an access rule with more commands_per_s for {who}",
        )


def _too_many_unattached(edge: str, waiting: int) -> QuotaReached:
    return QuotaReached(
        f"{edge} has forwarded {waiting} requests of end-points that are not attached to it; this "
        "one was not looked at",
        hint="attach again in a few seconds",
    )


def _full(who: str, waiting: int) -> QuotaReached:
    return QuotaReached(
        f"the requests that wait at the broker take {ALL_BYTES_MAX} bytes already, and {who} has "
        f"the most of them, {waiting} requests; this one was not looked at",
        hint="ask again in a few seconds, with fewer requests at a time",
    )


def units_of(forward: Forward) -> int:
    """Return the units of work that a request counts as."""
    return 1 + len(forward.body) // UNIT_BYTES


def tokens_of(forward: Forward) -> int:
    """Return the commands that a request counts as: a long one names many variables."""
    return 1 + len(forward.body) // COMMAND_BYTES


def is_long(forward: Forward) -> bool:
    """Return whether a request is too long to wait for an end-point that is not attached."""
    return _size_bytes(forward) > UNATTACHED_BYTES_MAX


def _size_bytes(forward: Forward) -> int:
    return len(forward.endpoint) + len(forward.body) + len(forward.signature) + 64
