"""A recorder as a process: a subscriber like any other, whose events go into a log.

Four threads beside each other: the receiver (C), the delivery, which hands whole batches to the
recorder's ring, the writing thread, which waits for the disk, and this one, which asks the broker
for contracts, ledgers and counters.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gridstat.console.config.metrics_tls import LOOPBACK
from gridstat.console.daemons.garbage import collect_rarely
from gridstat.console.daemons.ledger_rows import LedgerRows
from gridstat.console.daemons.logs import set_up_logging
from gridstat.console.daemons.metrics_server import MetricsServer
from gridstat.console.daemons.recorder_metrics import RecorderCollector
from gridstat.console.daemons.recorder_rows import AccountRows
from gridstat.console.daemons.service import READ_AGAIN, daemon_signals, notify
from gridstat.console.operator_session import open_operator_session
from gridstat.endpoint.connection_setup import connect_async
from gridstat.model.channel_security import HOP
from gridstat.model.cloud import is_pattern
from gridstat.model.errors import GridStatError
from gridstat.net.command.identity import Role
from gridstat.net.command.messages import Account
from gridstat.net.core_dumps import forbid_core_dumps
from gridstat.record.gap_records import GapReason
from gridstat.record.log_settings import LEDGER_S
from gridstat.record.record_kinds import CONTRACTS, COUNTERS, LEDGERS
from gridstat.record.recorder import Recorder, read_rows
from gridstat.record.status_file import write_status
from gridstat.record.writing_thread import WritingThread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gridstat.console.access import Access
    from gridstat.console.operator_session import OperatorSession
    from gridstat.core.samples import Samples
    from gridstat.endpoint.connection import Connection
    from gridstat.model.channel_security import Security
    from gridstat.model.qos import QosRequest
    from gridstat.model.status import StatusVariable
    from gridstat.record.log_settings import RecorderSettings

Line: TypeAlias = dict[str, Any]
RING_EVENTS: Final = 1 << 20
OPTION_BYTES: Final = 1 << 24
ATTACH_S_MAX: Final = 30.0
LAST_ACCOUNT_S: Final = 2.0
OPERATOR: Final = "recorder"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecorderPlan:
    """Variables to record, their contract, and the folder of the log."""

    access: Access
    into: Path
    end_point: str
    edges: tuple[str, ...]
    """Edge routers, written as for `connect`."""
    names: tuple[str, ...]
    qos: QosRequest
    settings: RecorderSettings
    account_s: float = 5.0
    ledger_s: float = LEDGER_S
    metrics_port: int | None = None
    seconds: float = 0.0
    """Time after which the recorder ends by itself; 0: never."""
    security: Security = HOP
    """Whether events to and from the edges are sealed, as `endpoint_security` of the edges."""


class RecorderTap:
    """Link between a connection and its recorder; counts the events that were lost before the
    link."""

    def __init__(self, recorder: Recorder, rows: AccountRows) -> None:
        self._recorder = recorder
        self._rows = rows
        self._before: dict[GapReason, int] = {}
        self._looked_ns = time.time_ns()

    def begin(self, variable: StatusVariable, every: int, subscription_id: int) -> None:
        self._recorder.begin(variable, every, subscription_id)

    def end(self, variable: StatusVariable, every: int, subscription_id: int) -> None:
        self._rows.end(variable, every, subscription_id, time.time_ns())

    def take(self, batch: Samples, options: bytes) -> None:
        self._recorder.take(batch, options)

    def record_ends(self) -> None:
        """Write down which contracts have ended; many may at once, so not one by one."""
        rows = self._rows.ended_rows()
        if rows:
            self._recorder.put(CONTRACTS, rows)

    def look(self, received: dict[str, int], *, is_attached: bool) -> None:
        """Record what the receiver had to drop; the kernel does not count events."""
        from_ns, self._looked_ns = self._looked_ns, time.time_ns()
        if not is_attached:
            self._recorder.miss(GapReason.DETACHED, from_ns, self._looked_ns, None)
        for reason, name in (
            (GapReason.RECEIVER_FULL, "ring_full"),
            (GapReason.KERNEL_FULL, "kernel_dropped"),
        ):
            dropped = received[name] - self._before.get(reason, 0)
            self._before[reason] = received[name]
            if dropped:
                events = dropped if reason is GapReason.RECEIVER_FULL else None
                self._recorder.miss(reason, from_ns, self._looked_ns, events)


class RecorderDaemon:
    """Records from `start` to `close`; the logs are closed in any case."""

    def __init__(self, plan: RecorderPlan) -> None:
        self._plan = plan
        plan.access.files_of(Role.ENDPOINT, plan.end_point)
        plan.access.files_of(Role.OPERATOR, f"{plan.access.cloud}/{OPERATOR}")
        self._recorder = Recorder(plan.into, now_ns=time.time_ns, settings=plan.settings)
        self._rows = AccountRows(read_rows(plan.into, CONTRACTS), end_point=plan.end_point)
        self._ledgers = LedgerRows(plan.ledger_s)
        self._tap = RecorderTap(self._recorder, self._rows)
        self._thread = WritingThread(self._recorder, plan.settings.sync_s, self._look)
        self._connection: Connection | None = None
        self._metrics = MetricsServer(
            lambda: RecorderCollector(
                self._recorder.figures(),
                plan.settings,
                self._rows.contracts,
                {"metrics": self._metrics.counters.as_facts()},
            ),
            health=lambda: self._recorder.figures().complaint,
        )

    async def start(self) -> Line:
        """Attach, subscribe, and return the record from which on it records."""
        plan = self._plan
        self._connection = await connect_async(
            plan.edges,
            plan.end_point,
            certificates=plan.access.certificates.path,
            timeout_s=ATTACH_S_MAX,
            ring_events=RING_EVENTS,
            option_bytes=OPTION_BYTES,
            security=plan.security,
        )
        # From here on the time without a recorder is recorded, however this process ends.
        down_until_ns = await asyncio.to_thread(self._recorder.note_downtime)
        self._thread.start()
        self._connection.tap(self._tap)
        for name in plan.names:
            await self._subscribe(self._connection, name)
        if down_until_ns is not None:
            self._recorder.miss(GapReason.DOWN, down_until_ns, time.time_ns(), None)
        ready: Line = {
            "state": "ready",
            "recorder": plan.end_point,
            "into": str(plan.into),
            "recorded": self._recorder.figures().recorded,
        }
        if plan.metrics_port is not None:
            place = await self._metrics.start(LOOPBACK, plan.metrics_port)
            ready["metrics"] = list(place)
        return ready

    async def follow_account(self) -> None:
        """Ask the broker again and again; ends only when cancelled."""
        async with open_operator_session(self._plan.access, OPERATOR) as session:
            try:
                while True:
                    await self._keep_account(session)
                    await asyncio.sleep(self._plan.account_s)
            except asyncio.CancelledError:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._keep_account(session), LAST_ACCOUNT_S)
                raise

    def rotate(self) -> None:
        """Close all open segments, soon."""
        self._thread.rotate()

    async def close(self) -> Line:
        """Leave the cloud, write what has come, and return the final figures."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await asyncio.to_thread(connection.close)
        if rest := self._ledgers.rest():
            self._recorder.put(LEDGERS, rest)
        await asyncio.to_thread(self._thread.close)
        self._tap.record_ends()
        await asyncio.to_thread(self._recorder.sync)
        figures = self._recorder.figures()
        await asyncio.to_thread(self._recorder.close)
        await self._metrics.close()
        write_status(self._plan.into, figures, time.time_ns())
        return {
            "state": "ended",
            "recorder": self._plan.end_point,
            **_last_figures(asdict(figures)),
        }

    async def _subscribe(self, connection: Connection, name: str) -> None:
        if not is_pattern(name):
            await connection.run(connection.subscribe, name, qos=self._plan.qos)
            return
        pattern = await connection.run(connection.subscribe_pattern, name, qos=self._plan.qos)
        for missed in pattern.missed:
            log.warning("not_granted variable=%s", missed)

    async def _keep_account(self, session: OperatorSession) -> None:
        contracts: list[dict[str, Any]] = []
        counters: list[dict[str, Any]] = []
        after = 0
        try:
            while True:
                page = await session.ask(Account(request_id=0, after=after))
                contracts += page["contracts"]
                counters += page["counters"]
                after = page["next"]
                if not after:
                    break
        except GridStatError as error:
            log.warning("no_account reason=%s", error)
            return
        now_ns = time.time_ns()
        for kind, rows in (
            (CONTRACTS, self._rows.contract_rows(contracts, now_ns)),
            (LEDGERS, self._ledgers.rows(contracts, now_ns)),
            (COUNTERS, self._rows.counter_rows(counters, now_ns)),
        ):
            if rows:
                self._recorder.put(kind, rows)

    def _look(self) -> None:
        """Write status and ends of contracts; runs on the writing thread, once a second."""
        self._tap.record_ends()
        if self._connection is not None:
            received = self._connection.counters()["received"]
            self._tap.look(received, is_attached=self._connection.is_connected)
        write_status(self._plan.into, self._recorder.figures(), time.time_ns())


async def serve_recorder(
    plan: RecorderPlan, *, on_ready: Callable[[Line], None], on_message: Callable[[str], None]
) -> Line:
    """Record until a signal asks to end; all that has come by then is on the disk."""
    daemon = RecorderDaemon(plan)

    def reload() -> None:
        daemon.rotate()
        on_message(f"the open segments are closed, and new ones begun; {READ_AGAIN}")

    async def record() -> None:
        on_ready(await daemon.start())
        notify("READY=1", f"STATUS=recording into {plan.into}")
        with suppress(TimeoutError):
            async with asyncio.timeout(plan.seconds or None):
                await daemon.follow_account()

    try:
        with daemon_signals(on_reload=reload) as stopping:
            recording = asyncio.ensure_future(record())
            asked = asyncio.ensure_future(stopping.wait())
            await asyncio.wait({recording, asked}, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            notify("STOPPING=1")
            recording.cancel()
            with suppress(asyncio.CancelledError):
                await recording
    finally:
        ended = await daemon.close()
    return ended


def run_recorder(
    plan: RecorderPlan,
    *,
    is_json: bool,
    on_ready: Callable[[Line], None],
    on_message: Callable[[str], None],
) -> Line:
    """The whole life of a recorder process, its log and event loop included."""
    set_up_logging(is_json=is_json)
    forbid_core_dumps()

    def started(ready: Line) -> None:
        collect_rarely()
        on_ready(ready)

    return asyncio.run(serve_recorder(plan, on_ready=started, on_message=on_message))


def _last_figures(figures: Line) -> Line:
    """Return the figures of the last line; its `state` is the state of the process."""
    return {name: figures[name] for name in ("recorded", "taken", "streams", "missing")}
