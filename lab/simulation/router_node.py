"""A simulated status router: the real agent over a table that behaves like the core's.

The table is the light model of the forwarding core: a change is checked as the router checks it,
takes effect as a whole a few milliseconds later, and is lost with the process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gridstat.model.channel_security import SEALED_VERSION
from gridstat.model.errors import LimitReached, UnknownName
from gridstat.net.command.router_messages import (
    ChannelOrder,
    PathOrder,
    ReportCounters,
    SourceOrder,
    VariableOrder,
)
from gridstat.router.agent_events import (
    AddressChecked,
    ApplyTable,
    CheckAddress,
    CountersRead,
    ForgetSeeds,
    HoldChannel,
    ReadCounters,
    SeedTaken,
    SetModes,
    TableApplied,
    TableFailed,
    TakeSeed,
)
from gridstat.router.edge_router import EdgeBounds
from gridstat.router.router_agent import COUNTERS_TIMER, RouterAgent, RouterFacts
from lab.simulation.model_keys import SIMULATED_KEYS, STEP_NS, ModelKeys
from lab.simulation.node import Node
from lab.simulation.world import NS_PER_MS, PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.net.command.machine import Note, SetTimer
    from gridstat.net.command.router_messages import ChangeTable
    from lab.simulation.channels import Wires
    from lab.simulation.network import Network

COMMIT_NS_MAX: Final = 10 * NS_PER_MS
COUNTERS_SEGMENT: Final = 6
"""Factor by which counters are reported more rarely than in production, where they add nothing."""
ACCEPTED: Final = "broker_accepted"
"""Note of an agent that obeys a broker from then on."""
PORTS_FIRST: Final = 10_000
PORTS_STEP: Final = 7


@dataclass(slots=True)
class ModelTable:
    """Table of the core; every path leads to an open channel and is of a carried variable."""

    channels: dict[int, ChannelOrder] = field(default_factory=dict)
    sources: dict[int, SourceOrder] = field(default_factory=dict)
    variables: dict[int, VariableOrder] = field(default_factory=dict)
    paths: dict[int, PathOrder] = field(default_factory=dict)

    def apply(self, change: ChangeTable) -> str:
        """Apply a change; return a complaint if it makes no sense."""
        if change.begins_anew:
            self.channels = {order.channel_id: order for order in change.channels}
            self.sources = {order.channel_id: order for order in change.sources}
            self.variables = {order.variable_id: order for order in change.variables}
            self.paths = {order.path_id: order for order in change.paths}
        else:
            for path_id in change.torn_down:
                self.paths.pop(path_id, None)
            for variable_id in change.dropped:
                self.variables.pop(variable_id, None)
            for channel_id in change.closed_channels:
                self.channels.pop(channel_id, None)
            for channel_id in change.closed_sources:
                self.sources.pop(channel_id, None)
            for channel in change.channels:
                self.channels[channel.channel_id] = channel
            for source in change.sources:
                self.sources[source.channel_id] = source
            for variable in change.variables:
                self.variables[variable.variable_id] = variable
            for path in change.paths:
                self.paths[path.path_id] = path
        return self._complaint(change)

    def _complaint(self, change: ChangeTable) -> str:
        is_shrinking = bool(change.closed_channels or change.dropped)
        for path in self.paths.values() if is_shrinking else change.paths:
            if path.channel_id not in self.channels:
                return f"path {path.path_id} leads to channel {path.channel_id}, not open"
            if path.variable_id not in self.variables:
                return f"path {path.path_id} is of variable {path.variable_id}, not carried"
        return ""


class RouterNode(Node):
    """Router; `table` is the table of the core, the agent's own table has the received orders."""

    role = "router"
    doing: ClassVar[dict[type, str]] = {
        **Node.doing,
        ApplyTable: "_apply",
        SetModes: "_ignore",
        TakeSeed: "_take_seed",
        ForgetSeeds: "_forget_seeds",
        CheckAddress: "_check_address",
        HoldChannel: "_ignore",
        ReadCounters: "_read_counters",
    }

    def __init__(self, network: Network, channels: Wires, name: str, number: int) -> None:
        super().__init__(network, name, number)
        self.is_edge = False
        self.channels = channels
        self.table = ModelTable()
        self.heard: dict[int, bool] = {}
        self.agent: RouterAgent | None = None
        self.keys = self._new_keys()
        self.data_port = 0
        self.term_highest = 0
        self.is_core_full = False
        self.is_whole = False
        """Whether the core has held a table of this process's broker."""
        self.on_torn_down: Callable[[Iterable[int]], None] | None = None
        self.commits = 0
        self._number = 0
        self._is_due = False
        self._changes: list[ChangeTable] = []

    def start(self) -> None:
        """Start a new process: empty, with its own ports."""
        lives = self.process // 2
        self.data_port = PORTS_FIRST + self.number * PORTS_STEP + lives % 3 * 2
        facts = RouterFacts(
            self.name,
            host="10.0.0.1",
            data_port=self.data_port,
            urgent_port=self.data_port + 1,
            is_edge=self.is_edge,
            command_host="10.0.0.1",
            command_port=1,
            datagram_versions=(1, 2, 3),
        )
        self.agent = RouterAgent(
            facts,
            newest=_nothing_newest,
            copies=_no_copies,
            edge_bounds=EdgeBounds(keys=SIMULATED_KEYS),
            random_bytes=self.world.random_bytes,
        )
        self.table = ModelTable()
        self.heard = {}
        self.term_highest = 0
        self.is_whole = False
        self._changes = []
        self._is_due = False
        self.begin(self.agent)
        self.keys = self._new_keys()
        self.world.after(STEP_NS, self._step_keys, self.process)
        self.network.connect(self, f"broker/{self.name.split('/')[0]}")
        self.channels.look_around(self.name)

    def crash(self, *, is_sudden: bool) -> None:
        super().crash(is_sudden=is_sudden)
        self.agent = None
        self.table = ModelTable()
        self.keys.crash()
        self.heard = {}
        self.is_whole = False
        self.channels.look_around(self.name)

    def pause(self) -> None:
        super().pause()
        self.channels.look_around(self.name)

    def resume(self) -> None:
        super().resume()
        self.channels.look_around(self.name)

    # The broker.

    def note(self, instruction: Note) -> None:
        super().note(instruction)
        if instruction.word == ACCEPTED:
            self._check_term(int(dict(instruction.facts)["term"]), "accepts a broker")

    def _check_term(self, term: int, what: str) -> None:
        if term < self.term_highest:
            raise PropertyBroken(
                "terms only grow", f"{self.name} {what} of term {term} after {self.term_highest}"
            )
        self.term_highest = term

    # The core.

    def _apply(self, instruction: ApplyTable) -> None:
        change = instruction.change
        self._check_term(change.term, "takes orders")
        self._changes.append(change)
        self._number = instruction.number
        if not self._is_due:
            self._is_due = True
            took_ns = self.world.between(10_000, COMMIT_NS_MAX)
            self.world.after(took_ns, self._commit, self.process)

    def _commit(self, process: int) -> None:
        if process != self.process:
            return
        self._is_due = False
        changes, self._changes = self._changes, []
        self.commits += 1
        if self.is_core_full:
            self.tell(TableFailed(self._number, LimitReached.code, "no room in the core"))
            return
        before = self.table.paths.keys() if self.on_torn_down is not None else ()
        gone = {number for change in changes for number in change.torn_down}
        if any(change.begins_anew for change in changes):
            gone |= set(before)
        for change in changes:
            sources, channels = dict(self.table.sources), dict(self.table.channels)
            complaint = self.table.apply(change)
            self._open_in_keys(sources, channels)
            for closed in sources.keys() - self.table.sources.keys():
                self.heard.pop(closed, None)  # Opened again, it is judged from the beginning.
            self.is_whole = self.is_whole or change.begins_anew
            self._look_at_channels(change)
            if complaint:
                self.tell(TableFailed(self._number, UnknownName.code, complaint))
                raise PropertyBroken("orders make sense", f"{self.name}: {complaint}")
        if gone and self.on_torn_down is not None:
            self.on_torn_down(sorted(gone - self.table.paths.keys()))
        self.tell(TableApplied(self._number))

    # Keys.

    def _new_keys(self) -> ModelKeys:
        who = f"{self.name}#{self.process}"
        return ModelKeys(self.network.keys, self.world, who, self.channels.owner)

    def _open_in_keys(
        self, sources: dict[int, SourceOrder], channels: dict[int, ChannelOrder]
    ) -> None:
        """Open and close sealed channels and sources as a change of the table says."""
        for number in channels.keys() - self.table.channels.keys():
            self.keys.close_channel(number)
        for number, order in self.table.channels.items():
            if order.datagram_version == SEALED_VERSION and channels.get(number) != order:
                self.keys.open_channel(number)
        for number in sources.keys() - self.table.sources.keys():
            self.keys.close_source(number)
        for number, source in self.table.sources.items():
            if source.is_sealed and sources.get(number) != source:
                for each in self.keys.open_source(number):
                    self.tell(SeedTaken(each.channel_id, each.number, each.first_epoch))

    def _take_seed(self, instruction: TakeSeed) -> None:
        for each in self.keys.take(instruction.message):
            self.tell(SeedTaken(each.channel_id, each.number, each.first_epoch))

    def _check_address(self, instruction: CheckAddress) -> None:
        """Believe the counter: there are no datagrams here."""
        self.tell(AddressChecked(instruction.channel_id, is_proved=True))

    def _forget_seeds(self, instruction: ForgetSeeds) -> None:
        self.keys.keys.forget_waiting(instruction.kept)

    def _step_keys(self, process: int) -> None:
        if process == self.process:
            self.keys.step()
            self.world.after(STEP_NS, self._step_keys, process)

    def _look_at_channels(self, change: ChangeTable) -> None:
        look_later = self.channels.look_later
        for channel in change.channels:
            look_later(channel.channel_id)
        for source in change.sources:
            look_later(source.channel_id)
        for channel_id in (*change.closed_channels, *change.closed_sources):
            look_later(channel_id)

    def _read_counters(self, _: ReadCounters) -> None:
        self.tell(CountersRead(_COUNTERS))

    def _ignore(self, _: Any) -> None:  # noqa: ANN401
        """Ignore modes, since the light model has one."""

    def _set_timer(self, instruction: SetTimer) -> None:
        if instruction.name == COUNTERS_TIMER:
            instruction = type(instruction)(
                instruction.name, instruction.after_ns * COUNTERS_SEGMENT
            )
        super()._set_timer(instruction)


_COUNTERS: Final = ReportCounters(router={"in": 1})


def _nothing_newest(_: int) -> bytes | None:
    return None


def _no_copies(_: int) -> None:
    """Return nothing, since no event passes and none comes twice."""
