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
- An edge router may forward what nobody has signed. A request of an end-point that is not attached
  to its edge, an Attach among them, waits in the queue of that edge router (`edge_account`), so
  that it takes no turn and no token of the end-point whose name it bears.
- A request goes on after it was served: it is written, and routers confirm. While one of an end-
  point that has nothing else waiting is under way (`served`, until `ended`), an end-point with more
  waiting has one request under way at a time, so that the first one does not share processors with
  a whole storm. This holds for `HOLD_NS` at most, and not between end-points that all have many.
- `searched` charges an end-point for the searches and splits of its request. Most take less than
  `SEARCH_FREE_NS`. One that has used more than `SEARCH_BURST_NS` leaves the round, also with its
  slices, until its part of the broker's time, one in `SEARCH_PARTS`, has made up for it.

The broker serves a few requests, then reads what has arrived meanwhile, and serves on by a timer.
After a restart the queues are empty, and end-points repeat their requests.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import QuotaReached
from gridstat.model.quota import BURST_S
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.requests.request import Rest
    from gridstat.model.quota import Quota
    from gridstat.net.command.router_messages import Forward

WAITING_MAX: Final = 1_024
"""Requests of one end-point that may wait."""
EDGE_WAITING_MAX: Final = 8_192
"""Requests of unattached end-points that may wait for one edge router: all attach after a fault."""
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
SEARCH_FREE_NS: Final = 1_000_000
"""Search time of one request that is not charged: most need no more."""
SEARCH_PARTS: Final = 20
"""Parts of the broker's time of which one identity may use one for searches beyond that."""
SEARCH_BURST_NS: Final = 200_000_000
"""Search time of an identity that may be used at once after a pause."""
BUSY_NS: Final = 1_000_000
"""Time in which one more unit may be served at once, without queueing."""
HOLD_NS: Final = 100_000_000
"""Time for which one request under way may hold others back; most are granted much sooner."""
KNOWN_MAX: Final = 65_536
"""End-points whose tokens are remembered; a forgotten one has its full burst again."""


_EDGE: Final = "edge router "
"""Begin of an edge router's account; no end-point's name has a space."""


def edge_account(edge: str) -> str:
    """Return the name under which requests of unattached end-points are queued."""
    return _EDGE + edge


@dataclass(slots=True)
class _Line:
    """Waiting requests of one end-point, its unused units of work, bytes and tokens."""

    waiting: deque[tuple[str, Forward]] = field(default_factory=deque)
    rests: deque[Rest] = field(default_factory=deque)
    deficit: int = 0
    size_bytes: int = 0
    tokens: int = 0
    """Tokens that all waiting requests want."""


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


class SearchTimes:
    """Search time of each identity, as the time at which it has all of it again."""

    def __init__(self) -> None:
        self._full_ns: OrderedDict[str, int] = OrderedDict()
        self.total_ns = 0

    def ready_ns(self, who: str, now_ns: int) -> int:
        """Return when the identity has search time left."""
        full_ns = self._full_ns.get(who, now_ns)
        return max(now_ns, full_ns - SEARCH_PARTS * SEARCH_BURST_NS)

    def use(self, who: str, took_ns: int, now_ns: int, *, is_again: bool = False) -> None:
        self.total_ns += took_ns
        charged_ns = took_ns if is_again else took_ns - SEARCH_FREE_NS
        if charged_ns <= 0:
            return
        full_ns = max(self._full_ns.pop(who, now_ns), now_ns)
        self._full_ns[who] = full_ns + SEARCH_PARTS * charged_ns
        while len(self._full_ns) > KNOWN_MAX:
            self._full_ns.popitem(last=False)


class FairQueue:
    """Requests that wait, in order for each end-point; `_round` lists those that may be served.

    An end-point with waiting requests is in one of `_round`, `_held` and `_delayed`.
    """

    def __init__(self, quota_of: Callable[[str], Quota]) -> None:
        self._buckets = TokenBuckets(quota_of)
        self._quota_of = quota_of
        self.search_times = SearchTimes()
        self._lines: dict[str, _Line] = {}
        self._round: OrderedDict[str, None] = OrderedDict()
        self._delayed: list[tuple[int, str]] = []
        self._held: OrderedDict[str, None] = OrderedDict()
        self._under_way: dict[str, int] = {}
        """End-points with requests under way, and when the last of them was served."""
        self._lone: OrderedDict[str, int] = OrderedDict()
        """Those of them with nothing else waiting, in the order of service."""
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
        if who.startswith(_EDGE):
            return
        self._buckets.use(who, tokens_of(forward), now_ns)
        self._under_way[who] = now_ns
        self._lone.pop(who, None)
        line = self._lines.get(who)
        if line is None or not (line.waiting or line.rests):
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
        size_bytes = _size_bytes(forward)
        waits_ns = self._ready_ns(who, now_ns, ahead=line.tokens) - now_ns
        if (
            len(line.waiting) >= (EDGE_WAITING_MAX if who.startswith(_EDGE) else WAITING_MAX)
            or line.size_bytes + size_bytes > WAITING_BYTES_MAX
            or waits_ns > WAIT_NS_MAX
        ):
            self.refused += 1
            return self._too_many(who, len(line.waiting), now_ns)
        if not self._make_room(line.size_bytes, size_bytes):
            self.refused += 1
            return _full(who, len(line.waiting))
        if who not in self._lines:
            self._lines[who] = line
            self._lone.pop(who, None)
            self._enter(who, now_ns)
        line.waiting.append((edge, forward))
        line.size_bytes += size_bytes
        line.tokens += tokens_of(forward)
        self._size_bytes += size_bytes
        self.count += 1
        return None

    def take_dropped(self) -> list[tuple[str, Forward, QuotaReached]]:
        """Return the waiting requests that gave way to others since the last call, to be refused;
        each with its edge."""
        found, self._dropped = self._dropped, []
        return found

    def _make_room(self, before_bytes: int, size_bytes: int) -> bool:
        """Drop the newest requests of the longest line until one more fits.

        Return false if the line of the new request, `before_bytes` long, is the longest itself.
        Half of a line is dropped, so that the longest is not looked for at every request.
        """
        while self._size_bytes + size_bytes > ALL_BYTES_MAX:
            who, line = max(self._lines.items(), key=lambda each: each[1].size_bytes)
            if line.size_bytes <= before_bytes + size_bytes:
                return False
            left_bytes = line.size_bytes // 2
            refusal = _full(who, len(line.waiting))
            while line.waiting and line.size_bytes > left_bytes:
                edge, forward = line.waiting.pop()
                line.size_bytes -= _size_bytes(forward)
                line.tokens -= tokens_of(forward)
                self._size_bytes -= _size_bytes(forward)
                self.count -= 1
                self.refused += 1
                self._dropped.append((edge, forward, refusal))
            if not line.waiting and not line.rests:
                self._leave(who)
        return True

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
                del self._round[who]
                self._held[who] = None
                continue
            cost = units_of(line.waiting[0][1])
            if line.deficit < cost:
                line.deficit += QUANTUM
                if line.deficit < cost:
                    self._round.move_to_end(who)
                    continue
            del self._round[who]
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
        for who, line in tuple(self._lines.items()):
            kept = deque(each for each in line.waiting if each[0] != edge)
            gone = len(line.waiting) - len(kept)
            if not gone:
                continue
            left_bytes = sum(_size_bytes(forward) for _, forward in kept)
            self._size_bytes -= line.size_bytes - left_bytes
            self.count -= gone
            line.waiting, line.size_bytes = kept, left_bytes
            line.tokens = sum(tokens_of(forward) for _, forward in kept)
            if not kept and not line.rests:
                self._leave(who)

    def _pop(self, who: str, line: _Line, now_ns: int) -> tuple[str, Forward]:
        edge, forward = line.waiting.popleft()
        size_bytes = _size_bytes(forward)
        line.size_bytes -= size_bytes
        line.tokens -= tokens_of(forward)
        self._size_bytes -= size_bytes
        self.count -= 1
        self.served(who, forward, now_ns)
        if not line.waiting:
            del self._lines[who]
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
        self._round[who] = None
        if is_first:
            self._round.move_to_end(who, last=False)

    def _ready_ns(self, who: str, now_ns: int, ahead: int = 0) -> int:
        """Return when an end-point has a token, after so many others, and search time."""
        if who.startswith(_EDGE):
            return now_ns
        return max(
            self._buckets.ready_ns(who, now_ns, ahead), self.search_times.ready_ns(who, now_ns)
        )

    def _held_until_ns(self, who: str) -> int:
        """Return until when a request of an end-point may hold its further ones back."""
        served_ns = self._under_way.get(who)
        return 0 if served_ns is None else served_ns + HOLD_NS

    def _release(self, now_ns: int) -> None:
        """Put end-points back into the round that nothing holds back any more."""
        while self._lone and next(iter(self._lone.values())) + HOLD_NS <= now_ns:
            self._lone.popitem(last=False)
        while self._held:
            who = next(iter(self._held))
            if self._lone and self._held_until_ns(who) > now_ns:
                break
            del self._held[who]
            self._enter(who, now_ns)

    def _wake(self, now_ns: int) -> None:
        while self._delayed and self._delayed[0][0] <= now_ns:
            _, who = heappop(self._delayed)
            if who in self._lines:
                self._round.setdefault(who)

    def _leave(self, who: str) -> None:
        del self._lines[who]
        self._round.pop(who, None)
        self._held.pop(who, None)
        self._delayed = [each for each in self._delayed if each[1] != who]
        self._delayed.sort()

    def _too_many(self, who: str, waiting: int, now_ns: int) -> QuotaReached:
        if who.startswith(_EDGE):
            return QuotaReached(
                f"{who} has forwarded {waiting} requests of end-points that are not attached "
                "to it; this one was not looked at",
                hint="attach again in a few seconds",
            )
        if self.search_times.ready_ns(who, now_ns) > now_ns:
            return QuotaReached(
                f"{who} has {waiting} requests waiting, since the path searches of its earlier "
                "ones have used up its search time; this one was not looked at",
                hint="ask again in a few seconds, with fewer paths or with more latency allowed",
            )
        per_s = self._quota_of(who).commands_per_s
        rate = f" and may send {per_s} commands a second" if per_s else ""
        return QuotaReached(
            f"{who} has {waiting} requests waiting{rate}; this one was not looked at",
            hint="send fewer requests, with several variables each, or ask an operator of the "
            f"cloud for an access rule with more commands_per_s for {who}",
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


def _size_bytes(forward: Forward) -> int:
    return len(forward.body) + len(forward.signature) + 64
