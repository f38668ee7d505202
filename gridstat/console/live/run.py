"""One run of a grid from start to end: start, watch, stop in order, settle the account."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gridstat.console.live.closing import closing_account
from gridstat.console.live.figures import grid_figures
from gridstat.console.processes.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.console.grid import Grid
    from gridstat.console.live.closing import ClosingAccount
    from gridstat.console.live.displays import Display
    from gridstat.console.processes.supervision import Phase
    from gridstat.console.processes.supervisor import Observation
    from gridstat.console.static_plan import StaticPlan

WINDOW_S: Final = 2.0
SETTLE_S_MAX: Final = 2.0
SETTLE_STEP_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """What to run, and for how long (None: until a signal)."""

    grid: Grid
    plan: StaticPlan
    text: str
    seconds: float | None = None


async def run_grid(run: Run, display: Display) -> ClosingAccount | None:
    """Run until a signal or the end of the time; None if stopped before it ran.

    Raises a `GridStatError` if the grid cannot go on. No process is left in any case.
    """
    supervisor = Supervisor(run.grid, run.text, tell=display.tell)
    with _stop_on_signals(supervisor) as stopped:
        try:
            if not await _started(supervisor, display, stopped=stopped):
                return None
            display.started(summary(run), supervisor.process_ids)
            started_s = time.monotonic()
            await _watch(run, supervisor, display=display, stopped=stopped)
            account = await _settled(run, supervisor, started_s=started_s)
        finally:
            display.close()
            await supervisor.end()
    display.ended(account)
    return account


def summary(run: Run) -> str:
    grid = run.grid
    return (
        f"{grid.name}: {len(grid.routers)} status routers, {len(grid.channels)} event channels, "
        f"{len(grid.pmus)} PMUs with {len(run.plan.variables)} variables, "
        f"{len(grid.subscribers)} subscribers"
    )


async def _started(supervisor: Supervisor, display: Display, *, stopped: asyncio.Event) -> bool:
    def on_progress(phase: Phase, missing: tuple[str, ...]) -> None:
        if missing:
            display.progress(f"{phase.value}, waiting for {', '.join(missing)}")

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
    run: Run, supervisor: Supervisor, *, display: Display, stopped: asyncio.Event
) -> None:
    started_s = time.monotonic()
    window: deque[Observation] = deque(maxlen=1 + round(WINDOW_S / display.interval_s))
    window.append(await supervisor.observe())
    next_s = started_s
    while not stopped.is_set():
        next_s += display.interval_s
        end_s = next_s if run.seconds is None else min(next_s, started_s + run.seconds)
        await _wait_until(end_s, supervisor, stopped=stopped)
        supervisor.raise_failure()
        window.append(await supervisor.observe())
        figures = grid_figures(run.grid, window[0], window[-1], started_s=started_s)
        display.show(figures, supervisor.process_ids)
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


async def _settled(run: Run, supervisor: Supervisor, *, started_s: float) -> ClosingAccount:
    """Silence the PMUs and wait for what is on its way, within a bound; then count."""
    await supervisor.pause()
    seconds = time.monotonic() - started_s
    deadline_s = time.monotonic() + SETTLE_S_MAX
    while True:
        observation = await supervisor.observe()
        account = closing_account(run.grid, run.plan, observation, seconds=seconds)
        if account.is_settled or time.monotonic() > deadline_s:
            return replace(account, restarted=tuple(sorted(supervisor.restarted)))
        await asyncio.sleep(SETTLE_STEP_S)


@contextmanager
def _stop_on_signals(supervisor: Supervisor) -> Iterator[asyncio.Event]:
    """Ctrl-C asks for the end; a second one does not wait for draining."""
    stopped = asyncio.Event()

    def on_signal() -> None:
        if stopped.is_set():
            supervisor.kill()
        stopped.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield stopped
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
