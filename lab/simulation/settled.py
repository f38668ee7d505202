"""Clouds whose routers are all up: made once for each topology, recorded, and copied for each seed.

Starting twenty routers takes as long as all the rest of a seed. Copies share immutable values; the
settings of the recorded cloud are replaced by those of the seed.
"""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO
from pickle import HIGHEST_PROTOCOL, Pickler, Unpickler
from typing import TYPE_CHECKING, Final

from gridstat.broker.records.operations import RouterReported
from gridstat.broker.settings import BrokerSettings
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.latency_model import LatencyModel
from gridstat.net.command.router_messages import ChannelOrder, ChannelStateChanged, SourceOrder
from gridstat.net.command.session_messages import Hello
from gridstat.router.edge_attachments import AttachmentBounds
from gridstat.router.pending_requests import RequestBounds
from gridstat.router.router_agent import RouterFacts
from lab.simulation.cloud import Cloud
from lab.simulation.model_keys import SIMULATED_KEYS
from lab.simulation.swarm import Swarm
from lab.simulation.topology import CLOUD, Topology, topology
from lab.simulation.world import NS_PER_MS
from lab.tree_plan import TreePlan

if TYPE_CHECKING:
    from lab.simulation.topology import Outline

SETTLED_NS: Final = 800 * NS_PER_MS
SHARED: Final = frozenset(
    {
        AttachmentBounds,
        BrokerSettings,
        ChannelOrder,
        ChannelStateChanged,
        EventChannel,
        Hello,
        LatencyModel,
        RequestBounds,
        Router,
        RouterFacts,
        RouterReported,
        SourceOrder,
        Swarm,
        Topology,
        TreePlan,
    }
)
"""Types of immutable values."""
LEFT_OUT: Final = SHARED | {BrokerSettings, TreeSettings}
"""Those, and the types of the settings that each seed has for itself."""
RECORDS_MAX: Final = 512


def settled_cloud(swarm: Swarm, *, bug: str) -> Cloud | None:
    """Return a copy for this seed, or None if such a cloud does not start."""
    found = _record(swarm.topology.outline, bug)
    if found is None:
        return None
    written, shared = found
    cloud = copied(written, {**shared, CLOUD: swarm.settings})
    assert isinstance(cloud, Cloud)
    return cloud


@lru_cache(maxsize=RECORDS_MAX)
def _record(outline: Outline, bug: str) -> tuple[bytes, dict[object, object]] | None:
    """Record a settled cloud; `bug` is only a key of the cache."""
    del bug
    cloud = Cloud(_calm(outline))
    try:
        cloud.start()
        cloud.world.run_until(SETTLED_NS)
    except Exception:  # The seed will meet the same failure and report it.
        return None
    return recorded(cloud)


def _calm(outline: Outline) -> Swarm:
    """Return a swarm in which nothing happens but the start."""
    return Swarm(
        seed=0,
        topology=topology(outline),
        endpoints=(),
        settings=BrokerSettings(CLOUD, keys=SIMULATED_KEYS),
        faults=(),
        work=(),
        chaos_ns=0,
        delay_ns_max=NS_PER_MS,
        commit_ns_max=NS_PER_MS,
        clock_offset_ns_max=0,
        is_all_encoded=False,
        is_cold=False,
    )


def recorded(found: object) -> tuple[bytes, dict[object, object]]:
    """Return the parts of a copy: its own values as bytes, and the shared values by key.

    Settings of brokers are left out; their names are the keys.
    """
    into = BytesIO()
    writer = _Writer(into)
    writer.dump(found)
    return into.getvalue(), writer.shared


def copied(written: bytes, shared: dict[object, object]) -> object:
    return _Reader(written, shared).load()


class _Writer(Pickler):
    """Pickler that leaves out `shared` values and writes their keys."""

    def __init__(self, into: BytesIO) -> None:
        super().__init__(into, HIGHEST_PROTOCOL)
        self.shared: dict[object, object] = {}
        self._keys: dict[int, int] = {}

    def persistent_id(self, found: object) -> object:
        if type(found) not in LEFT_OUT:
            return None
        if isinstance(found, BrokerSettings):
            return found.cloud
        if isinstance(found, TreeSettings):
            return found.name
        key = self._keys.setdefault(id(found), len(self._keys))
        self.shared[key] = found
        return key


class _Reader(Unpickler):
    def __init__(self, written: bytes, shared: dict[object, object]) -> None:
        super().__init__(BytesIO(written))
        self.persistent_load = shared.__getitem__  # type: ignore[method-assign]
