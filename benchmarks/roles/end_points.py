"""End-points of a managed cloud, by the public API: they publish, subscribe, send and measure."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import numpy as np

import gridstat
from benchmarks.roles.pacing import is_in_slot, steady
from benchmarks.samples import keep_samples
from benchmarks.statistics import NS_PER_S, NS_PER_US, WARM_UP_S, bins_of, counted, summary_of
from gridstat.console.daemons.garbage import collect_rarely
from gridstat.core.scheduling import END_POINT_PRIORITY, in_real_time
from gridstat.model.qos import preset
from gridstat.model.status import EventFlag

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    import numpy.typing as npt

    from benchmarks.roles.conversation import Answer, Question
    from gridstat.core.samples import Samples
    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.publisher import Publication
    from gridstat.endpoint.subscriber import Subscription
    from gridstat.model.errors import GridStatError

NS_PER_MS = 1_000_000
ANSWER_S_MAX = 120.0


class EndPointsRole:
    """Owner of a connection for each end-point, with its publications and subscriptions."""

    def __init__(self, plan: Question) -> None:
        self._connections: dict[str, Connection] = {
            name: gridstat.connect(
                edges, name, certificates=plan["certificates"], answer_within_s=ANSWER_S_MAX
            )
            for name, edges in plan["end_points"].items()
        }
        self._publications: dict[tuple[str, str], list[Publication]] = {}
        """Publications by end-point and prefix."""
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._held: dict[Subscription, list[Samples]] = {}
        """Events that were counted, and not yet taken."""
        self._matches = 0
        """Noted matches of all patterns, and when the newest of them came."""
        self._match_ns = 0

    @classmethod
    def from_json(cls, plan: Question) -> Self:
        return cls(plan)

    def ready(self) -> Answer:
        collect_rarely()  # As a daemon does; contracts are no garbage.
        return {"end_points": list(self._connections)}

    def answer(self, question: Question) -> Answer:
        do: Callable[[Question], Answer] = {
            "publish": self._publish,
            "unpublish": self._unpublish,
            "pulse": self._pulse,
            "tick": self._tick,
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "arrived": self._arrived,
            "take_paths": self._take_paths,
            "take": self._take,
            "each": self._each,
            "find": self._find,
            "wait": self._wait,
            "subscribe_pattern": self._subscribe_pattern,
            "matched": self._matched,
        }[question["do"]]
        return do(question)

    def _each(self, question: Question) -> Answer:
        """Answer several questions, one after another; a refusal ends none of the others."""
        refused = Counter[str]()
        done = 0
        began_ns = time.monotonic_ns()
        for one in question["questions"]:
            try:
                self.answer(one)
            except gridstat.GridStatError as error:
                refused[f"{type(error).__name__}: {error.args[0]}"] += 1
            else:
                done += 1
        ended_ns = time.monotonic_ns()
        return {"done": done, "refused": refused, "began_ns": began_ns, "ended_ns": ended_ns}

    def _find(self, question: Question) -> Answer:
        """Find the variables of a pattern again and again, for so many seconds.

        `{at}` in the pattern is another number each time.
        """
        (connection,) = self._connections.values()
        began_ns = time.monotonic_ns()
        until_ns = began_ns + int(float(question["seconds"]) * NS_PER_S)
        found: list[int] = []
        while time.monotonic_ns() < until_ns:
            pattern = str(question["pattern"]).format(at=len(found))
            found.append(len(connection.find(pattern)))
        ended_ns = time.monotonic_ns()
        return {"found": found, "began_ns": began_ns, "ended_ns": ended_ns}

    def _wait(self, question: Question) -> Answer:
        """Do nothing for a while, between two questions of `each`."""
        time.sleep(float(question["seconds"]))
        return {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    # Publishing.

    def _publish(self, question: Question) -> Answer:
        """Publish so many variables below each end-point's own name.

        Each end-point sends one request, or one for each variable if each has its own phase.
        """
        period, prefix = gridstat.Period(*question["period"]), str(question["prefix"])
        step_ns, own_ns = (int(question.get(key, 0)) for key in ("phase_step_ns", "own_step_ns"))
        names = [f"{prefix}{number}" for number in range(int(question["count"]))]
        requests = [[name] for name in names] if own_ns else [names]
        for index, (end_point, connection) in enumerate(self._connections.items()):
            self._publications[end_point, prefix] = [
                made
                for number, some in enumerate(requests)
                for made in connection.publish_many(
                    some,
                    gridstat.FLOAT64,
                    period=period,
                    phase_ns=index * step_ns + number * own_ns,
                )
            ]
        return {"published": len(names) * len(self._connections)}

    def _unpublish(self, question: Question) -> Answer:
        """Withdraw all publications with this prefix."""
        ended = [key for key in self._publications if key[1] == question["prefix"]]
        for key in ended:
            for publication in self._publications.pop(key):
                publication.unpublish()
        return {}

    def _pulse(self, question: Question) -> Answer:
        """Let all end-points send theirs in one call each period, one after another, evenly spaced.

        `is_apart`: each variable by its own `send`, evenly spaced too.
        """
        pulsing = [
            (self._connections[name], made)
            for (name, prefix), made in self._publications.items()
            if prefix == question["prefix"]
        ]
        parties: list[Callable[[], int]] = [
            partial(connection.send_many, made, np.zeros(len(made))) for connection, made in pulsing
        ]
        if question.get("is_apart"):
            parties = [partial(each.send, 0.0) for _, made in pulsing for each in made]

        def send(tick: int) -> int:
            return int(parties[tick % len(parties)]())

        tick_s = float(question["period_s"]) / len(parties)
        seconds = float(question["seconds"])
        # A publisher's machine has no other end-point or daemon that could delay it.
        with in_real_time(None, END_POINT_PRIORITY):
            return asdict(steady(send, tick_s=tick_s, seconds=seconds, is_aligned=True))

    def _tick(self, question: Question) -> Answer:
        """Send one event at whole multiples of a time, of one variable after another."""
        tick_s, seconds = float(question["tick_s"]), float(question["seconds"])
        made = [
            each
            for (_, prefix), some in self._publications.items()
            if prefix == question["prefix"]
            for each in some
        ]

        def send(tick: int) -> int:
            created_ns = time.time_ns()  # Stamped here, so that no stall comes between.
            if not is_in_slot(created_ns / NS_PER_S, tick, tick_s):
                return 0  # Too late: it would be the second event of the slot after its own.
            return int(made[tick % len(made)].send(0.0, created_ns=created_ns))

        # A publisher's machine has no other end-point or daemon that could delay it.
        with in_real_time(None, END_POINT_PRIORITY):
            return asdict(steady(send, tick_s=tick_s, seconds=seconds, is_aligned=True))

    # Subscribing.

    def _subscribe(self, question: Question) -> Answer:
        """Subscribe to all names of each end-point, with so many pending requests each."""
        qos = (
            preset(question["preset"]) if "preset" in question else gridstat.qos(**question["qos"])
        )
        asking = [
            _Asking(self._connections[name], names, question, qos)
            for name, names in question["names"].items()
        ]
        cpu_s, began_ns = time.process_time(), time.monotonic_ns()
        for one in asking:
            one.begin(int(question["outstanding"]))
        for one in asking:
            one.done.wait()
        ended_ns, cpu_s = time.monotonic_ns(), time.process_time() - cpu_s
        for one in asking:
            self._subscriptions.setdefault(one.end_point, []).extend(one.granted)
        return {
            "granted": sum(len(one.granted) for one in asking),
            "refused": sum((one.refused for one in asking), Counter()),
            "began_ns": began_ns,
            "ended_ns": ended_ns,
            "cpu_s": cpu_s,
            "took_ms": [round(ms, 3) for one in asking for ms in one.took_ms],
            "latency_us": max(
                (each.contract.latency_us for one in asking for each in one.granted), default=0
            ),
        }

    def _subscribe_pattern(self, question: Question) -> Answer:
        """Let each end-point subscribe to a pattern; the matches of `noted` names are noted."""
        qos, noted = gridstat.qos(**question["qos"]), str(question.get("noted", ""))
        for connection in self._connections.values():
            connection.subscribe_pattern(
                question["pattern"], partial(self._note_match, noted), qos=qos
            )
        return {}

    def _note_match(self, noted: str, match: Subscription) -> None:
        if match.name.startswith(noted):
            self._matches += 1
            self._match_ns = time.monotonic_ns()

    def _matched(self, _: Question) -> Answer:
        """Return how many noted matches the patterns have, and when the newest one came."""
        return {"matched": self._matches, "newest_ns": self._match_ns}

    def _unsubscribe(self, _: Question) -> Answer:
        began_s = time.monotonic()
        count = sum(len(held) for held in self._subscriptions.values())
        for connection in self._connections.values():
            connection.unsubscribe_all()
        self._subscriptions.clear()
        self._held.clear()
        return {"ended": count, "seconds": time.monotonic() - began_s}

    # Received events.

    def _arrived(self, _: Question) -> Answer:
        """Return the number of events that can be taken, of all subscriptions."""
        for some in self._subscriptions.values():
            for each in some:
                self._held.setdefault(each, []).append(_live(each.read()))
        return {"arrived": sum(len(part) for parts in self._held.values() for part in parts)}

    def _read(self, subscription: Subscription) -> Samples:
        """Return all events since the last call."""
        parts = [*self._held.pop(subscription, ()), _live(subscription.read())]
        return np.concatenate(parts)

    def _take_paths(self, _: Question) -> Answer:
        """Return the latencies of all events since the last call, by publisher and subscriber."""
        seen: dict[tuple[str, str], list[npt.NDArray[np.int64]]] = {}
        for name, held in self._subscriptions.items():
            for subscription in held:
                ends = (subscription.name.rpartition("/")[0], name)
                seen.setdefault(ends, []).append(_latencies_ns(self._read(subscription)))
        paths = []
        for (publisher, subscriber), parts in sorted(seen.items()):
            latencies_ns = np.concatenate(parts)
            if len(latencies_ns) == 0:
                continue
            summary = asdict(summary_of(latencies_ns))
            paths.append({"publisher": publisher, "subscriber": subscriber, "summary": summary})
        return {"paths": paths}

    def _take(self, question: Question) -> Answer:
        """Return the latencies of the counted events since the last call.

        They are of all subscriptions, or of one end-point, or of one name; after the warm-up, or
        within the windows.
        """
        held = [
            each
            for end_point, some in self._subscriptions.items()
            for each in some
            if question.get("end_point") in (None, end_point)
            and question.get("name") in (None, each.name)
        ]
        samples = np.concatenate([self._read(each) for each in held])
        samples = samples[np.argsort(samples["created_ns"], kind="stable")]
        created_ns = samples["created_ns"].astype(np.int64)
        latencies_ns = _latencies_ns(samples)
        warm_up_s = float(question.get("warm_up_s", WARM_UP_S))
        places = counted(created_ns, warm_up_s=warm_up_s, windows_ns=question.get("windows_ns", ()))
        kept = latencies_ns[places]
        keep_samples(question, created_ns[places], kept)
        return {
            "taken": len(latencies_ns),
            "summary": asdict(summary_of(kept)),
            "bins": [asdict(part) for part in bins_of(kept, width_us=float(question["bin_us"]))],
            "late": int((kept > float(question.get("bound_us", math.inf)) * NS_PER_US).sum()),
            "predicted_us": [each.contract.latency_us for each in held],
        }


def _live(samples: Samples) -> Samples:
    """Leave out events that an edge had cached for a new subscriber, which are no measurement."""
    live: Samples = samples[samples["flags"] & int(EventFlag.CACHED) == 0]
    return live


def _latencies_ns(samples: Samples) -> npt.NDArray[np.int64]:
    """Return the latencies from stamp to arrival."""
    latencies: npt.NDArray[np.int64] = np.subtract(
        samples["received_ns"], samples["created_ns"], dtype=np.int64, casting="unsafe"
    )
    return latencies


class _Asking:
    """Requests of one end-point; each answer releases the next request.

    All but the first few are sent on the session's thread, so there is nothing to lock.
    """

    def __init__(
        self,
        connection: Connection,
        names: Sequence[str],
        question: Mapping[str, Any],
        qos: gridstat.QosRequest,
    ) -> None:
        per_request = int(question["per_request"])
        self.end_point = connection.name
        self.granted: list[Subscription] = []
        self.refused: Counter[str] = Counter()
        self.took_ms: list[float] = []
        self.done = threading.Event()
        self._connection = connection
        self._keep_events = int(question.get("keep_events", 0))
        self._qos = qos
        self._unanswered = -(-len(names) // per_request)
        self._left = iter(
            [names[at : at + per_request] for at in range(0, len(names), per_request)]
        )

    def begin(self, outstanding: int) -> None:
        if not self._unanswered:
            self.done.set()
        for names in list(islice(self._left, outstanding)):
            self._ask(names)

    def _ask(self, names: Sequence[str]) -> None:
        began_ns = time.monotonic_ns()
        waiting = self._connection.subscribe_later(
            names, qos=self._qos, keep_events=self._keep_events
        )
        waiting.add_done_callback(partial(self._answered, names, began_ns))

    def _answered(
        self,
        names: Sequence[str],
        began_ns: int,
        waiting: Future[list[Subscription | GridStatError]],
    ) -> None:
        self.took_ms.append((time.monotonic_ns() - began_ns) / NS_PER_MS)
        error = waiting.exception()
        for each in waiting.result() if error is None else [error] * len(names):
            if isinstance(each, BaseException):
                self.refused[f"{type(each).__name__}: {each.args[0]}"] += 1
            else:
                self.granted.append(each)
        following = next(self._left, None)
        if following is not None:
            self._ask(following)
        self._unanswered -= 1
        if not self._unanswered:
            self.done.set()
