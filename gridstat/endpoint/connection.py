"""The grid as an application sees it: one connection with blocking calls, from any thread.

    with gridstat.connect(["c1/e0@127.0.0.1:7101"], name="c1/north/pmu-1") as grid:
        voltage = grid.publish("voltage", gridstat.FLOAT64, rate=60)
        voltage.send(231.4)

Behind it run three threads: the session with the cloud (asyncio), the receiver (C) and the
delivery to subscriptions, which runs the application's callbacks.
"""

from __future__ import annotations

import asyncio
import reprlib
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeVar, Unpack

from gridstat.endpoint.awaitable_call import call_in_thread
from gridstat.endpoint.change_stream import STREAM_CHANGES_MAX
from gridstat.endpoint.contract import mode_numbers
from gridstat.endpoint.group import Group, GroupOptions, group_qos, group_terms
from gridstat.endpoint.group_sets import GroupSets
from gridstat.endpoint.options import (
    PublicationOptions,
    QosOptions,
    SubscriptionOptions,
    alert_variable,
    check_callback,
    check_pattern,
    check_several,
    check_text,
    periodic_variable,
    subscription_spec,
)
from gridstat.endpoint.pattern import PatternSubscription
from gridstat.endpoint.publisher import Publication
from gridstat.endpoint.subscriber import Subscription
from gridstat.endpoint.variable_search import find_all, found_in
from gridstat.model.call_options import checked_call, checked_calls
from gridstat.model.errors import GridStatError, GroupMismatch, Misuse
from gridstat.model.exact_numbers import whole_number
from gridstat.model.short_text import short_repr
from gridstat.net.command.session_messages import MANY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from numpy.typing import ArrayLike

    from gridstat.endpoint.change import OnChange
    from gridstat.endpoint.change_stream import ChangeStream
    from gridstat.endpoint.cloud_link import CloudLink
    from gridstat.endpoint.flooded import FloodedEvent, FloodedSubscription
    from gridstat.endpoint.options import SubscriptionSpec
    from gridstat.endpoint.tap import Tap
    from gridstat.model.derived import Derivation
    from gridstat.model.qos import QosRequest
    from gridstat.model.rate_law import Period
    from gridstat.model.status import StatusVariable, ValueType
    from gridstat.net.command.endpoint_messages import FindVariables, FoundOutcome

Params = ParamSpec("Params")
Result = TypeVar("Result")
NS_PER_MS = 1_000_000
IN_QOS: Final = {"qos": QosOptions}
"""Options that belong into `qos`, although a caller may pass them beside it."""


@checked_calls(but=("run",), parts=IN_QOS)
class Connection:
    """An end-point of the grid, made by `connect`; after `close` nothing of it works any more.

    All calls that ask the cloud block until it has answered and raise what it refuses; in a
    coroutine, `await grid.run(grid.subscribe, "c1/...")` waits without blocking.
    """

    def __init__(self, link: CloudLink) -> None:
        self._link = link
        self._groups: dict[str, Group] = {}
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        if self._is_closed:
            return short_repr(self, self.name, "closed")
        edges = " and ".join(self.edges)
        return short_repr(self, self.name, f"attached to {edges}" if edges else "not attached")

    # State.

    @property
    def name(self) -> str:
        """The end-point's full name: `grid.name`."""
        return self._link.name

    @property
    def is_connected(self) -> bool:
        """True if the end-point is attached to at least one edge router: `grid.is_connected`."""
        return bool(self.edges)

    @property
    def edges(self) -> tuple[str, ...]:
        """Edge routers to which the end-point is attached now: `grid.edges`."""
        return () if self._is_closed else self._link.attached_edges

    @property
    def modes(self) -> frozenset[int]:
        """The operating modes that are active; 0 is the baseline: `grid.modes`."""
        return mode_numbers(self._link.subscriptions.modes)

    @property
    def next_modes(self) -> frozenset[int]:
        """The modes about to be active; those of now if no change is under way."""
        return mode_numbers(self._link.subscriptions.next_modes or self._link.subscriptions.modes)

    @property
    def is_mode_changing(self) -> bool:
        """True during a change of modes: `grid.is_mode_changing`."""
        return self.next_modes != self.modes

    def counters(self) -> dict[str, dict[str, int]]:
        """Return counts of sent events by edge, and of received ones:
        `grid.counters()["received"]["delivered"]`."""
        return self._link.counters()

    def sources(self) -> dict[str, dict[str, int]]:
        """Return the state of the incoming channel by edge: datagrams, silence and losses.

        `grid.sources()["c1/e0"]["lost"]` counts gaps in the channel's own numbers.
        """
        return self._link.sources()

    def changes(self, changes_max: int = STREAM_CHANGES_MAX) -> ChangeStream:
        """Return a stream of all changes from now on, of edges, subscriptions and publications.

        `for change in grid.changes(): print(change.kind, change.name, change.reason)`, or `async
        for`; of more than `changes_max` that wait to be read the oldest are dropped and counted.
        """
        return self._link.notifier.followers.stream(changes_max)

    # Publishing.

    @checked_call(options=PublicationOptions)
    def publish(
        self, name: str, value_type: ValueType, **options: Unpack[PublicationOptions]
    ) -> Publication:
        """Register a periodic variable below our own name.

        `grid.publish("voltage", gridstat.FLOAT64, rate=60, derived=[gridstat.MovingAverage(10)])`;
        an exact period instead of a rate: `period=Period(1, 60), phase_ns=0`.
        """
        check_callback("on_change", options.get("on_change"))
        options["derived"] = derived = check_several("derived", options.get("derived", ()))
        variable = periodic_variable(self.full_name(name), value_type, options)
        return self._publish([(variable, derived)], options.get("on_change"))[0]

    def publish_alert(
        self,
        name: str,
        value_type: ValueType,
        *,
        interval_s_min: float,
        is_belated: bool = False,
        on_change: OnChange | None = None,
    ) -> Publication:
        """Register an alert: `grid.publish_alert("line-sag", gridstat.BOOL, interval_s_min=0.1)`.

        It is sent whenever something happens, never faster than the minimum interval, and
        overtakes everything else. Stamps of a belated one may be older than those of others.
        """
        check_callback("on_change", on_change)
        name = self.full_name(name)
        variable = alert_variable(name, value_type, interval_s_min, is_belated=is_belated)
        return self._publish([(variable, ())], on_change)[0]

    @checked_call(options=PublicationOptions)
    def publish_many(
        self, names: Iterable[str], value_type: ValueType, **options: Unpack[PublicationOptions]
    ) -> list[Publication]:
        """Register many variables of one kind in one request; all of them, or the first refusal.

        `grid.publish_many([f"feeder-{n}/load" for n in range(500)], gridstat.FLOAT64, rate=1)`
        """
        check_callback("on_change", options.get("on_change"))
        names = check_several("names", names)
        options["derived"] = derived = check_several("derived", options.get("derived", ()))
        wanted = [
            (periodic_variable(self.full_name(name), value_type, options), derived)
            for name in names
        ]
        return self._publish(wanted, options.get("on_change"))

    def send_many(
        self,
        publications: Sequence[Publication],
        values: ArrayLike,
        created_ns: ArrayLike | None = None,
    ) -> int:
        """Send one value of each publication in as few datagrams as possible; return how many were
        sent.

        `grid.send_many(loads, np.array([...]))`; without stamps they all are of this instant.
        """
        if not isinstance(publications, list | tuple):
            publications = check_several("publications", publications)
        try:
            return self._link.publications.send_many(publications, values, created_ns)
        except AttributeError:
            # Checked only now: each call may send thousands of them.
            if all(isinstance(each, Publication) for each in publications):
                raise
            raise Misuse(
                f"publications is {reprlib.repr(publications)}, and must be publications",
                hint="send_many(grid.publish_many(names, gridstat.FLOAT64, rate=1), values)",
            ) from None

    # Subscribing.

    @checked_call(options=SubscriptionOptions, parts=IN_QOS)
    def subscribe(self, name: str, **options: Unpack[SubscriptionOptions]) -> Subscription:
        """Request a contract: `grid.subscribe("c1/north/pmu-1/voltage", preset="wide-area")`.

        Quality is `qos=gridstat.qos(rate=10, latency_ms=50, redundancy=2)`, or a `preset`. `modes`
        is for later: a broker refuses every mode but 0 (`ModeNotDefined`). `on_event` and
        `on_violation` are called on the delivering thread; `extrapolate` makes up what is missing
        instead of a violation; `keep_events` keeps them for `read`. `on_change` is called with
        every `Change` of it, on the delivering thread.
        """
        return self.subscribe_many([name], **options)[0]

    @checked_call(options=SubscriptionOptions, parts=IN_QOS)
    def subscribe_many(
        self, names: Iterable[str], **options: Unpack[SubscriptionOptions]
    ) -> list[Subscription]:
        """Request many contracts with the same options at once; all of them, or the first refusal.

        `grid.subscribe_many(["c1/a/v", "c1/b/v"], preset="control-centre")`
        """
        names = _check_names(names, options)
        found = self.subscribe_specs([subscription_spec(name, options) for name in names])
        refused = [each for each in found if isinstance(each, GridStatError)]
        granted = [each for each in found if not isinstance(each, GridStatError)]
        if refused:
            for asked in self._link.subscriptions.give_back(granted):
                asked.result()
            raise refused[0]
        return granted

    @checked_call(options=SubscriptionOptions, parts=IN_QOS)
    def subscribe_later(
        self, names: Iterable[str], **options: Unpack[SubscriptionOptions]
    ) -> Future[list[Subscription | GridStatError]]:
        """Request contracts as `subscribe_many`, without waiting: for each name a subscription, or
        an error.

        `waiting = grid.subscribe_later(["c1/a/v"])`, then `waiting.result()`; whatever is added
        with `add_done_callback` runs on the session's thread and must not block. Once cancelled,
        whatever is granted is given back.
        """
        names = _check_names(names, options)
        self._check_open()
        if len(names) > MANY_MAX:
            raise Misuse(f"{len(names)} names", hint=f"ask for at most {MANY_MAX} at once")
        return self._link.subscriptions.subscribe_later(
            [subscription_spec(name, options) for name in names]
        )

    @checked_call(options=SubscriptionOptions, parts=IN_QOS)
    def subscribe_pattern(
        self,
        pattern: str,
        on_match: Callable[[Subscription], object] | None = None,
        **options: Unpack[SubscriptionOptions],
    ) -> PatternSubscription:
        """Subscribe to all variables of a pattern, now and later, each with the same options.

        `grid.subscribe_pattern("c1/*/voltage", on_match=print)`: `*` is one part of a name, `**`
        at the end all that is below.
        """
        check_pattern(pattern, is_pattern=True)
        check_callback("on_match", on_match)
        self._check_open()
        return self._link.subscriptions.subscribe_pattern(
            subscription_spec(pattern, options), on_match
        )

    def subscribe_flooded(
        self, on_event: Callable[[FloodedEvent], object] | None = None
    ) -> FloodedSubscription:
        """Receive every flooded event at our edges, of any variable, without a contract.

        `with grid.subscribe_flooded(on_event=print): ...`; `on_event` runs on a thread of its own.
        """
        self._check_open()
        check_callback("on_event", on_event)
        return self._link.subscribe_flooded(on_event)

    def tap(self, tap: Tap) -> None:
        """Pass all events to a tap, in whole batches of all variables: `grid.tap(recorder)`.

        Before the first subscription, and once. Subscriptions are served half a second later
        from then on, or some seconds under load, so it does not go with `on_violation`.
        """
        self._check_open()
        if not self._link.is_unused:
            raise Misuse("there are subscriptions already", hint="tap before the first of them")
        self._link.tap(tap)

    def unsubscribe_all(self) -> None:
        """End all subscriptions, groups and patterns in one request: `grid.unsubscribe_all()`."""
        self._check_open()
        self._end_groups()
        self._link.subscriptions.unsubscribe_all()

    def group(
        self,
        name: str,
        *,
        interval: Period | None = None,
        latency_ms: float | None = None,
        history: int = 1,
        modes: Mapping[int, QosRequest] | None = None,
    ) -> Group:
        """Make an empty group: `grid.group("angles", interval=Period(1, 10), latency_ms=100)`.

        `history` complete sets are kept. A name that is taken raises `GroupMismatch`. `modes` is
        for later: when a member is added, a broker refuses every mode but 0 (`ModeNotDefined`).
        """
        self._check_open()
        check_text("name", name, 'a group\'s name is a str: grid.group("angles", …)')
        if name in self._groups:
            raise GroupMismatch(
                f"there is a group {name} already", hint="close it first, or choose another name"
            )
        asked = group_qos(interval, latency_ms, modes)
        sets = GroupSets(group_terms(asked), whole_number("history", history))
        options = GroupOptions(asked, lambda: self._link.subscriptions.modes)
        group = Group(self, self._link.deliverer, name, sets, options)
        self._groups[name] = group
        return group

    def find(self, pattern: str, *, after: str = "", limit: int = 0) -> list[StatusVariable]:
        """Return the published variables that match, in the order of names: `grid.find("c1/**")`.

        All of them, or at most `limit` behind the name `after`: with the last name of one list
        the next begins.
        """
        self._check_open()
        check_text("pattern", pattern, 'a pattern is a str: grid.find("c1/**")')
        check_text("after", after, "the last name of the list before, as a str")

        def ask(command: FindVariables) -> FoundOutcome:
            return self._link.ask(command, found_in).result()

        return find_all(ask, pattern, after=after, limit=whole_number("limit", limit))

    # Other calls.

    async def run(
        self, call: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Wait for a blocking call in a coroutine: `await grid.run(grid.publish, "v", FLOAT64)`.

        If the waiting is cancelled, what a method of this connection still gets is given back.
        """
        is_ours = getattr(call, "__self__", None) is self
        return await call_in_thread(
            partial(call, *args, **kwargs), _give_back if is_ours else _no_op
        )

    def close(self, *, keep: bool = False) -> None:
        """Leave the cloud: all publications and subscriptions end. `grid.close()`.

        With `keep` they end here only: the cloud keeps them for its grace time, for a program that
        is started anew under this name, and no other end-point loses a subscription meanwhile.
        Ctrl-C meanwhile cuts the waiting short; closing once more finishes what is left.
        """
        self._is_closed = True
        self._end_groups()
        self._link.close(keep=keep)

    def full_name(self, name: str) -> str:
        """Return a variable's full name; short ones are below our own:
        `grid.full_name("voltage")`."""
        check_text("name", name, "a variable's name is a str, such as 'voltage'")
        return name if name.startswith(f"{self.name}/") else f"{self.name}/{name}"

    def subscribe_specs(
        self, specs: Sequence[SubscriptionSpec]
    ) -> list[Subscription | GridStatError]:
        """Request contracts, each with its own answer; used by groups."""
        self._check_open()
        return self._link.subscriptions.subscribe(specs)

    def forget_group(self, name: str) -> None:
        """Remove a closed group; its name is free again."""
        self._groups.pop(name, None)

    def _end_groups(self) -> None:
        while self._groups:
            self._groups.popitem()[1].end()

    def _publish(
        self,
        wanted: Sequence[tuple[StatusVariable, Sequence[Derivation]]],
        on_change: OnChange | None,
    ) -> list[Publication]:
        self._check_open()
        found = self._link.publications.publish(wanted, on_change)
        refused = [each for each in found if isinstance(each, GridStatError)]
        granted = [each for each in found if not isinstance(each, GridStatError)]
        if refused:
            for asked in self._link.publications.give_back(granted):
                asked.result()
            raise refused[0]
        return granted

    def _check_open(self) -> None:
        if self._is_closed:
            raise Misuse("the connection is closed", hint="connect again")


def _check_names(names: Iterable[str], options: SubscriptionOptions) -> tuple[str, ...]:
    """Return the names of variables to subscribe to; raise if one of them is none.

    Names and the option `derived` may be generators, which can be read only once: both are kept.
    """
    if "derived" in options:
        options["derived"] = check_several("derived", options["derived"])
    names = check_several("names", names)
    for name in names:
        check_pattern(name, is_pattern=False)
    return names


def _give_back(result: object) -> None:
    """Undo the result of a cancelled call."""
    for each in result if isinstance(result, list) else [result]:
        if isinstance(each, Subscription | PatternSubscription):
            each.unsubscribe()
        elif isinstance(each, Publication):
            each.unpublish()
        elif isinstance(each, Group):
            each.close()


def _no_op(_result: object) -> None:
    """Do nothing with the result of a function that is not ours: it may have kept the result."""
