"""One managed router as a process: the core, the agent, and the driver between them.

The agent decides; `core_work.py` carries its instructions out on the core and returns the core's
events. Forwarding itself runs in the core's thread, with a broker or without.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gridstat.console.daemons.descriptors import take_descriptors
from gridstat.console.daemons.garbage import collect_rarely
from gridstat.console.daemons.logs import set_up_logging
from gridstat.console.daemons.metrics_server import MetricsServer
from gridstat.console.daemons.router_metrics import RouterCollector, RouterFigures
from gridstat.console.daemons.service import daemon_signals, notify
from gridstat.console.shown_text import error_line
from gridstat.core._core import Core, seal_backends
from gridstat.core.scheduling import ROUTER_PRIORITY, scheduling_granted
from gridstat.model.channel_security import SEALED_VERSION
from gridstat.model.errors import GridStatError, LinkDown
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.driver import Driver, DriverEnvironment
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.name_lookup import resolve
from gridstat.net.command.tls import Credentials
from gridstat.net.core_dumps import forbid_core_dumps
from gridstat.router import EdgeBounds, RouterAgent, RouterFacts, StatusRouter
from gridstat.router.agent_events import Drain, Leave, RouterEvent
from gridstat.router.core_work import CoreWork
from gridstat.router.edge_attachments import AttachmentBounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gridstat.console.config.router_file import RouterPlan
    from gridstat.net.command.address import Address

SERVED: Final = (Role.ENDPOINT,)
DRAIN_STEP_S: Final = 0.005
DRAIN_STEPS_MAX: Final = 400
"""Longest time for draining: an event that a paced channel has not sent by then is late for any
contract."""
RESOLVE_AGAIN_S: Final = 2.0
Line: TypeAlias = dict[str, Any]

log = logging.getLogger(__name__)


class RouterDaemon:
    """Listens, forwards and obeys from `start` to `close`; the core is closed in any case."""

    def __init__(self, plan: RouterPlan) -> None:
        self._plan = plan
        self._identity = Identity(Role.ROUTER, plan.name)
        self._broker = Identity(Role.BROKER, plan.cloud)
        files = CertificateFolder(plan.certificates).present(self._identity)
        self._credentials = Credentials(files)
        self._core = Core(plan.limits, versions_max=plan.versions_max)
        self._router = StatusRouter(plan.name, self._core, clock_ns=time.monotonic_ns)
        self._work = CoreWork(self._router)
        self._agent = RouterAgent(
            RouterFacts(
                name=plan.name,
                is_edge=plan.is_edge,
                datagram_versions=_datagram_versions(plan.versions_max),
                endpoint_security=plan.endpoint_security,
            ),
            newest=self._router.newest,
            copies=self._router.copies,
            edge_bounds=EdgeBounds(
                attachments=AttachmentBounds(attached_max=plan.end_points_max), keys=plan.keys
            ),
        )
        descriptors = take_descriptors(plan.end_points_max)
        self._descriptors_max = descriptors.limit
        self._driver: Driver[RouterEvent] = Driver(
            self._agent,
            self._credentials,
            perform=self._perform,
            environment=DriverEnvironment(table=descriptors.tables[0]),
        )
        self._metrics = MetricsServer(
            lambda: RouterCollector(self.figures()), health=self._complaint
        )
        self._timers: dict[str, asyncio.Handle] = {}
        self._finding: asyncio.Task[None] | None = None
        self._is_draining = False
        self._last_sources: dict[int, dict[str, int]] = {}

    async def start(self) -> Line:
        """Take all ports and begin; the answer is what others need to know of it."""
        plan = self._plan
        host, data_port, urgent_port = plan.listen
        data_port, urgent_port = self._router.listen(
            host, data_port=data_port, urgent_port=urgent_port
        )
        command_port = await self._serve_commands()
        self._agent.listen_at(
            (plan.advertised_host, data_port, urgent_port),
            command=(plan.command_advertised_host, command_port),
        )
        if plan.locks_memory and not self._core.lock_memory():
            log.warning("memory_not_locked hint='allow it: ulimit -l, or CAP_IPC_LOCK'")
        self._start_forwarding()
        self._poll()
        ready: Line = {
            "state": "ready",
            "router": plan.name,
            "role": plan.role.value,
            "address": [plan.advertised_host, data_port, urgent_port],
            "command": [plan.command_advertised_host, command_port],
        }
        if plan.metrics_port is not None:
            place = await self._metrics.start(
                plan.metrics_host, plan.metrics_port, tls=plan.metrics_tls
            )
            ready["metrics"] = list(place)
        self._find_broker(plan.brokers, plan.name_services)
        return ready

    def _start_forwarding(self) -> None:
        """Start the thread with the file's priority; without one in real time, if the process
        may."""
        plan = self._plan
        granted = scheduling_granted(plan.fifo_priority, ROUTER_PRIORITY)
        complaint = self._router.start(cpu=plan.cpu, fifo_priority=granted.fifo_priority)
        if complaint is None and plan.fifo_priority and not granted.fifo_priority:
            complaint = granted.reason
        if complaint:
            log.warning("thread_not_as_wished reason=%r hint='see gridstat host'", complaint)
        log.info("forwarding_thread scheduling=%r", str(granted))

    async def _serve_commands(self) -> int:
        """Listen for end-points; an inner router listens too, to refuse them with a reason."""
        host, port = self._plan.command
        try:
            _, command_port = await self._driver.serve(host, port, SERVED)
        except OSError as error:
            raise LinkDown(
                f"commands cannot be served on {host} port {port}: {error.strerror}",
                hint="choose another command.port, or 0 for any free one",
            ) from error
        return command_port

    def figures(self) -> RouterFigures:
        """Everything that is counted, for the metrics."""
        return RouterFigures(
            name=self._plan.name,
            role=self._plan.role.value,
            version=metadata.version("gridstat"),
            counters=self._router.report(),
            agent=self._agent.counters(),
            table=self._agent.table,
            term=self._agent.term,
            is_accepted=self._agent.is_accepted,
            pressed_channels=frozenset(self._work.back_pressured),
            latency=self._router.latency_histogram(),
            listeners={
                "commands": self._driver.counters.as_facts(),
                "metrics": self._metrics.counters.as_facts(),
            },
            descriptors_max=self._descriptors_max,
        )

    def reload(self, plan: RouterPlan) -> str:
        """Apply settings that can change while the router runs; return a text with what did and
        what cannot."""
        before, now = self._plan, plan
        taken: list[str] = []
        if (before.log_level, before.is_log_json) != (now.log_level, now.is_log_json):
            set_up_logging(level=now.log_level, is_json=now.is_log_json)
            taken.append("log")
        complaint = self._credentials.refresh()
        taken.append(f"certificates NOT ({complaint})" if complaint else "certificates")
        taken += self._metrics.reload()
        if (before.brokers, before.name_services) != (now.brokers, now.name_services):
            self._driver.forget(self._broker)  # It may still listen where it was.
            self._find_broker(now.brokers, now.name_services)
            taken.append("broker")
        fixed = [key for key in FIXED_KEYS if getattr(before, key) != getattr(now, key)]
        self._plan = _with_reloaded(before, now)
        needs = f"; a restart is needed for {', '.join(fixed)}" if fixed else ""
        return f"reloaded: {', '.join(taken)}{needs}"

    async def drain(self) -> None:
        """Stop receiving, send queued events within a time limit, and notify broker and
        end-points."""
        self._is_draining = True
        self._driver.inject(Drain())
        self._last_sources = self._core.source_states()
        self._router.refuse_new()
        for _ in range(DRAIN_STEPS_MAX):
            if not self._router.queued_events():
                break
            await asyncio.sleep(DRAIN_STEP_S)
        self._driver.inject(Leave())

    def _complaint(self) -> str:
        return "draining" if self._is_draining else ""

    def report(self) -> Line:
        """Return the final counts."""
        report = self._router.report()
        return {
            "router": self._plan.name,
            "counters": report.router,
            "channels": report.channels,
            "sources": self._last_sources or report.sources,
        }

    async def close(self) -> None:
        """Give everything back; may be called at any point."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.gather(self._finding, return_exceptions=True)
        await self._driver.close()
        await self._metrics.close()
        self._router.close()

    # The core.

    def _perform(self, instruction: object) -> bool:
        events = self._work.perform(instruction)
        if events is None:
            return False
        self._inject(events)
        # At the end of this turn of the loop, so that all changes of one read are one commit.
        self._plan_work(0.0)
        return True

    def _plan_work(self, wait_s: float) -> None:
        if "work" not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers["work"] = (
                loop.call_later(wait_s, self._do_work) if wait_s else loop.call_soon(self._do_work)
            )

    def _do_work(self) -> None:
        del self._timers["work"]
        self._inject(self._work.work())
        wait_s = self._work.wait_s()
        if wait_s is not None:
            self._plan_work(max(wait_s, 0.0005))

    def _poll(self) -> None:
        try:
            self._inject(self._work.poll())
        finally:  # No failure ends the polls.
            loop = asyncio.get_running_loop()
            self._timers["poll"] = loop.call_later(self._work.poll_after_s(), self._poll)
        wait_s = self._work.wait_s()
        if wait_s is not None:
            self._plan_work(wait_s)

    def _inject(self, events: Iterable[RouterEvent]) -> None:
        for event in events:
            self._driver.inject(event)

    # The broker.

    def _find_broker(self, brokers: Sequence[Address], services: Sequence[Address]) -> None:
        if self._finding is not None:
            self._finding.cancel()
            self._finding = None
        if brokers:
            self._driver.connect_to(self._broker, brokers)
        else:
            self._finding = asyncio.get_running_loop().create_task(self._resolve_broker(services))

    async def _resolve_broker(self, services: Sequence[Address]) -> None:
        """Look the broker's address up until it is known, and again whenever the broker cannot be
        reached."""
        known: Address | None = None
        failed = asyncio.Event()
        while True:
            try:
                found = await resolve(self._broker.name, self._credentials, services)
            except GridStatError as error:
                log.warning("broker_not_found reason=%r", str(error.args[0]))
            else:
                failed.clear()
                if found != known:
                    known = found
                    log.info("broker_found host=%s port=%d", *found)
                    self._driver.connect_to(
                        self._broker, [found], on_failure=lambda _: failed.set()
                    )
                await failed.wait()
            await asyncio.sleep(RESOLVE_AGAIN_S)


FIXED_KEYS: Final = (
    "name",
    "role",
    "certificates",
    "listen",
    "advertised_host",
    "command",
    "command_advertised_host",
    "limits",
    "end_points_max",
    "versions_max",
    "endpoint_security",
    "keys",
    "cpu",
    "fifo_priority",
    "locks_memory",
    "metrics_port",
    "metrics_host",
    "metrics_tls",
)
"""Keys that a running router cannot change."""


async def serve_router(
    load: Callable[[], RouterPlan],
    *,
    on_ready: Callable[[Line], None],
    on_message: Callable[[str], None],
) -> Line:
    """Route until a signal asks to end; return the last report.

    `load` reads the file, also again; `on_message` receives the text of a reload.
    """
    plan = load()
    daemon = RouterDaemon(plan)

    def reload() -> None:
        try:
            text = daemon.reload(load())
        except GridStatError as error:
            text = f"not reloaded, going on as before: {error_line(error)}"
        on_message(text)

    try:
        with daemon_signals(on_reload=reload) as stopping:
            on_ready(await daemon.start())
            notify("READY=1", f"STATUS=routing as {plan.name}")
            await stopping.wait()
            notify("STOPPING=1")
            await daemon.drain()
            return daemon.report()
    finally:
        await daemon.close()


def run_router(
    load: Callable[[], RouterPlan],
    *,
    on_ready: Callable[[Line], None],
    on_message: Callable[[str], None],
) -> Line:
    """The whole life of a router process, its log and event loop included."""
    plan = load()
    set_up_logging(level=plan.log_level, is_json=plan.is_log_json)
    forbid_core_dumps()

    def started(ready: Line) -> None:
        collect_rarely()
        on_ready(ready)

    return asyncio.run(serve_router(load, on_ready=started, on_message=on_message))


def _datagram_versions(versions_max: int) -> tuple[int, ...]:
    """Return the versions that this machine can use: without a library to seal, only plain ones."""
    if versions_max >= SEALED_VERSION and not seal_backends():
        log.warning("cannot_seal hint='install libcrypto of OpenSSL, or libIPSec_MB'")
        versions_max = SEALED_VERSION - 1
    return tuple(range(1, versions_max + 1))


def _with_reloaded(before: RouterPlan, now: RouterPlan) -> RouterPlan:
    return replace(
        before,
        brokers=now.brokers,
        name_services=now.name_services,
        log_level=now.log_level,
        is_log_json=now.is_log_json,
    )
