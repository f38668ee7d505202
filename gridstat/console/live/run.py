"""One run of a grid from start to end: start, watch, stop in order, settle the account."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gridstat.console.access import load_access
from gridstat.console.grid_folder import GridFolder, locked
from gridstat.console.live.closing_account import closing_account
from gridstat.console.live.grid_survey import GridSurvey, watched_brokers
from gridstat.console.live.pipeline_view import look
from gridstat.console.processes.supervisor import Job, Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gridstat.console.grid import Grid, Subscriber
    from gridstat.console.live.closing_account import ClosingAccount
    from gridstat.console.live.displays import Display
    from gridstat.console.live.grid_survey import WatchedBrokers
    from gridstat.console.live.pipeline_view import PipelineView

LOG: Final = "log"
PIPELINE: Final = "pipeline"
RECORDER: Final = "recorder"
PIPELINE_DRAIN_S: Final = 60.0
"""Time for the last records, and for the windows that they close."""
PMUS: Final = "PMUs"
SUBSCRIBERS: Final = "subscribers"
SESSION_S_MAX: Final = 1.0
"""A broker that is down is shown as away after so long; it must not hold up the others' facts."""
SETTLE_S_MAX: Final = 3.0
SETTLE_STEP_S: Final = 0.1
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Run:
    """Grid to run, its folder, and the duration (None: until a signal)."""

    grid: Grid
    text: str
    folder: Path
    seconds: float | None = None
    has_pipeline: bool = True

    @property
    def pipeline_folder(self) -> Path | None:
        """Folder of the pipeline's log and tables; None without a pipeline."""
        has_one = self.has_pipeline and self.grid.pipeline is not None
        return self.folder / PIPELINE if has_one else None


async def run_grid(run: Run, display: Display) -> ClosingAccount | None:
    """Run until a signal or the end of the time; None if stopped before it ran, or in a hurry.

    Raises a `GridStatError` if the grid cannot go on. No process is left in any case.
    """
    with locked(run.folder):
        folder = GridFolder(run.folder, run.grid, run.text)
        folder.write()
        groups = jobs(run.grid, folder) + recording_jobs(run)
        supervisor = Supervisor(groups, on_message=display.show_message)
        with _stop_on_signals(supervisor) as stopped:
            try:
                if not await _started(supervisor, display, stopped=stopped):
                    return None
                display.started(_summary(run.grid, folder), supervisor.process_ids)
                started_s = time.monotonic()
                async with watched_brokers(load_access(run.folder)) as brokers:
                    await _watch(run, supervisor, brokers=brokers, display=display, stopped=stopped)
                display.show_message(
                    "ending: waiting for what is on its way; Ctrl-C again ends at once"
                )
                account = await _settled(supervisor, started_s=started_s)
            finally:
                try:
                    display.close()
                finally:
                    await supervisor.end()
    if account is not None:
        display.ended(account)
    return account


def _summary(grid: Grid, folder: GridFolder) -> str:
    ports = ", ".join(f"{name} {port}" for name, port in folder.metrics.items())
    return f"{grid.summary()}\nmetrics for Prometheus (http://{grid.host}:PORT/metrics): {ports}"


def jobs(grid: Grid, folder: GridFolder) -> list[list[Job]]:
    """Brokers from the root down, routers, PMUs, subscribers: each group needs the one before."""

    def part(name: str, argument: str) -> Job:
        return Job(name, f"gridstat.console.processes.{argument}", (str(folder.path),))

    def broker(name: str) -> Job:
        arguments = ("broker", str(folder.file_of_broker(name)), "--json")
        return Job(folder.daemon_of_broker(name), "gridstat", arguments)

    def router(name: str) -> Job:
        arguments = ("router", str(folder.router_file(name)), "--json")
        return Job(name, "gridstat", arguments, is_vital=False)

    routers = [router(each.name) for each in grid.routers]
    groups = [[broker(cloud.cloud) for cloud in grid.clouds], routers]
    if grid.has_tree:
        groups.insert(0, [broker(name) for name in grid.tree.brokers])
    if grid.pmus:
        groups.append([part(PMUS, "pmus")])
    if grid.subscribers:
        groups.append([part(SUBSCRIBERS, "subscribers")])
    return groups


def recording_jobs(run: Run) -> list[list[Job]]:
    """Return the jobs of pipeline and recorder, without which the grid can run.

    Groups end in the opposite order, so the pipeline processes the recorder's last records.
    """
    place, recorder, wish = run.pipeline_folder, run.grid.recorder, run.grid.pipeline
    if place is None or recorder is None or wish is None:
        return []
    pipeline = ["pipeline", "run", "--folder", str(run.folder), "--into", str(place)]
    pipeline += ["--master", wish.master, "--driver-memory", wish.driver_memory, "--json"]
    pipeline += [argument for edge in wish.edges for argument in ("--edge", edge)]
    if wish.rules:
        pipeline += ["--rules", wish.rules]
    return [
        [Job(PIPELINE, "gridstat", tuple(pipeline), is_needed=False, drain_s=PIPELINE_DRAIN_S)],
        [Job(RECORDER, "gridstat", recorder_arguments(run, recorder, place), is_needed=False)],
    ]


def recorder_arguments(run: Run, recorder: Subscriber, place: Path) -> tuple[str, ...]:
    """Return the arguments of the recorder's command, with the contract of the grid's file."""
    qos = recorder.qos
    arguments = [
        "recorder",
        *recorder.patterns,
        "--name",
        recorder.name,
        "--folder",
        str(run.folder),
    ]
    arguments += ["--into", str(place / LOG), "--json"]
    arguments += ["--latency-ms", str(qos.latency_us / 1_000), "--redundancy", str(qos.redundancy)]
    arguments += ["--priority", str(qos.priority)]
    if qos.interval is None:
        arguments += ["--every", str(qos.every)]
    else:
        arguments += ["--rate", f"{qos.interval.per_seconds}/{qos.interval.seconds}s"]
    return (*arguments, *(argument for edge in recorder.edges for argument in ("--edge", edge)))


async def _view(run: Run) -> PipelineView | None:
    folder = run.pipeline_folder
    return None if folder is None else await asyncio.to_thread(look, folder)


async def _started(supervisor: Supervisor, display: Display, *, stopped: asyncio.Event) -> bool:
    def on_progress(missing: tuple[str, ...]) -> None:
        display.progress(f"starting, waiting for {', '.join(missing)}")

    starting = asyncio.ensure_future(supervisor.start(on_progress))
    stopping = asyncio.ensure_future(stopped.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        return False
    starting.result()
    return True


async def _watch(
    run: Run,
    supervisor: Supervisor,
    *,
    brokers: WatchedBrokers,
    display: Display,
    stopped: asyncio.Event,
) -> None:
    started_s = next_s = time.monotonic()
    while not stopped.is_set():
        next_s = max(next_s + display.interval_s, time.monotonic())
        end_s = next_s if run.seconds is None else min(next_s, started_s + run.seconds)
        await _wait_until(end_s, supervisor, stopped=stopped)
        supervisor.raise_failure()
        surveys, away = await brokers.survey(session_within_s=SESSION_S_MAX)
        for name, reason in away.items():
            display.show_message(f"no survey of {name}: {reason}")  # It is being started again.
        if run.grid.cloud in surveys:
            seen = await supervisor.ask([PMUS], do="report", expected="report")
            values = _values(seen.reports)
            display.show(GridSurvey(surveys, away, values, await _view(run)))
        if run.seconds is not None and time.monotonic() >= started_s + run.seconds:
            return


async def _wait_until(end_s: float, supervisor: Supervisor, *, stopped: asyncio.Event) -> None:
    causes = {
        asyncio.ensure_future(stopped.wait()),
        asyncio.ensure_future(supervisor.failed()),
    }
    timeout = max(0.0, end_s - time.monotonic())
    _, pending = await asyncio.wait(causes, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    for cause in pending:
        cause.cancel()


async def _settled(supervisor: Supervisor, *, started_s: float) -> ClosingAccount | None:
    """Stop the PMUs and wait for events in flight, within a time limit; then count.

    None if a second signal has ended everything before.
    """
    paused = await supervisor.ask([PMUS], do="pause", expected="paused")
    seconds = time.monotonic() - started_s
    deadline_s = time.monotonic() + SETTLE_S_MAX
    while True:
        seen = await supervisor.ask([SUBSCRIBERS], do="report", expected="report")
        if supervisor.is_ending:
            return None
        reports = {**paused.reports, **seen.reports}
        account = closing_account(
            reports,
            seconds=seconds,
            restarted=supervisor.restarted,
            given_up=supervisor.given_up,
            silent={PMUS, SUBSCRIBERS}.intersection(supervisor.process_ids) - reports.keys(),
        )
        if account.is_settled or time.monotonic() > deadline_s:
            return account
        await asyncio.sleep(SETTLE_STEP_S)


def _values(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    report = reports.get(PMUS, {})
    return dict(report.get("values", {}))


@contextmanager
def _stop_on_signals(supervisor: Supervisor) -> Iterator[asyncio.Event]:
    """Ctrl-C or a closed terminal asks for the end; a second one does not wait for draining."""
    stopped = asyncio.Event()

    def on_signal() -> None:
        if stopped.is_set():
            supervisor.kill()
        stopped.set()

    loop = asyncio.get_running_loop()
    for number in ENDING:
        loop.add_signal_handler(number, on_signal)
    try:
        yield stopped
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)
