"""The pipeline as a process: a Spark session, the ingest, and its alarms, published into the grid.

The process may be started before the recorder, and be ended or killed at any time; the next one
continues from the same position.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gridstat.console.daemons.alarm_publisher import alarm_publisher
from gridstat.console.daemons.service import READ_AGAIN, notify
from gridstat.model.channel_security import HOP
from gridstat.net.core_dumps import forbid_core_dumps
from gridstat.pipeline.jobs.alarm_follower import AlarmFollower
from gridstat.pipeline.jobs.ingest import Ingest, IngestSettings
from gridstat.pipeline.progress import read_progress
from gridstat.pipeline.spark_session import SparkSettings, spark_session
from gridstat.record.manifest import MANIFEST_FILE
from gridstat.record.record_kinds import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gridstat.console.access import Access
    from gridstat.model.channel_security import Security
    from gridstat.pipeline.alarm_rules import AlarmRule
    from gridstat.pipeline.pipeline_folder import PipelineFolder
    from gridstat.pipeline.spark_session import Spark

Line: TypeAlias = dict[str, Any]
LOG_POLL_S: Final = 0.2
TELL_S: Final = 1.0
LAST_ALARMS_S_MAX: Final = 3.0
"""Longest time for which the end waits for alarms in flight."""
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Feedback:
    """Edges and identity with which alarms are published into the grid."""

    access: Access
    edges: tuple[str, ...]
    name: str = ""
    security: Security = HOP

    @property
    def end_point(self) -> str:
        return self.name or f"{self.access.cloud}/pipeline"


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """Master, folder and rules of a pipeline."""

    folder: PipelineFolder
    spark: SparkSettings
    rules: tuple[AlarmRule, ...] = ()
    feedback: Feedback | None = None
    """Path of alarms back into the grid; None: alarms stay in their table."""
    ingest: IngestSettings = field(default_factory=IngestSettings)
    is_once: bool = False
    """All that is recorded by now, and then end."""
    seconds: float = 0.0
    """0: until a signal."""


@dataclass(frozen=True, slots=True)
class PipelineCallbacks:
    """Callbacks for readiness, progress and messages."""

    on_ready: Callable[[Line], None]
    on_progress: Callable[[Line], None]
    on_message: Callable[[str], None]


def run_pipeline(plan: PipelinePlan, callbacks: PipelineCallbacks) -> Line:
    """Run until a signal, the end of its time, or the end of the recorded data; return the
    progress."""
    forbid_core_dumps()
    with ExitStack() as stack:
        stop = threading.Event()
        stack.enter_context(stop_on_signals(stop, callbacks.on_message))
        if not _await_log(plan, stop, callbacks.on_message):
            return _ended(plan)
        spark = spark_session(plan.spark)
        stack.callback(spark.stop)
        stack.enter_context(
            stop_on_signals(stop, callbacks.on_message)
        )  # Spark has put its own in their place.
        follower = _alarms(plan, stack, stop)
        ingest = Ingest(spark, plan.folder, plan.ingest, followers=[follower])
        stack.enter_context(_progress_reported(plan.folder, callbacks.on_progress))
        if plan.seconds:
            ending = threading.Timer(plan.seconds, stop.set)
            ending.start()
            stack.callback(ending.cancel)
        callbacks.on_ready(_ready(plan, spark))
        notify("READY=1")
        if plan.is_once:
            ingest.run_to_end()
        else:
            ingest.run(stop)
        stop.set()
        notify("STOPPING=1")
        follower.settle()
        return _ended(plan)


def _alarms(plan: PipelinePlan, stack: ExitStack, stop: threading.Event) -> AlarmFollower:
    """Evaluate alarms after each batch, and publish them if there is a feedback."""
    if plan.feedback is None:
        return AlarmFollower(plan.folder, plan.rules)
    way = plan.feedback
    publisher = alarm_publisher(way.access, way.edges, way.end_point, security=way.security)
    stack.enter_context(publisher)
    return AlarmFollower(
        plan.folder,
        plan.rules,
        publish=publisher.publish,
        # Nothing waits, as a rule; at the end the last ones are given their time.
        is_sent=lambda: publisher.flush(LAST_ALARMS_S_MAX if stop.is_set() else 0.0),
    )


def _ready(plan: PipelinePlan, spark: Spark) -> Line:
    return {
        "state": "ready",
        "pipeline": str(plan.folder.path),
        "log": str(plan.folder.log),
        "master": spark.sparkContext.master,
    }


def _ended(plan: PipelinePlan) -> Line:
    return {"pipeline": str(plan.folder.path), **read_progress(plan.folder.path), "state": "ended"}


def _await_log(
    plan: PipelinePlan, stop: threading.Event, on_message: Callable[[str], None]
) -> bool:
    """Wait until a recorder has begun; return False if the pipeline is stopped first."""
    manifest = plan.folder.log / EVENTS.name / MANIFEST_FILE
    deadline_s = time.monotonic() + plan.seconds if plan.seconds else None
    if not manifest.exists():
        on_message(f"waiting for a recorder's log in {plan.folder.log}")
    while not manifest.exists():
        if plan.is_once or (deadline_s is not None and time.monotonic() > deadline_s):
            return False
        if stop.wait(LOG_POLL_S):
            return False
    return True


@contextmanager
def stop_on_signals(stop: threading.Event, on_message: Callable[[str], None]) -> Iterator[None]:
    """Set `stop` at SIGTERM and SIGINT; SIGHUP ends nothing, as in all daemons."""
    before = {number: signal.getsignal(number) for number in (*STOPPING, signal.SIGHUP)}
    for number in STOPPING:
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, lambda *_: on_message(READ_AGAIN))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress_reported(
    folder: PipelineFolder, on_progress: Callable[[Line], None]
) -> Iterator[None]:
    """Report progress once a second, while there is some."""
    ended = threading.Event()

    def watch() -> None:
        reported: Line = read_progress(folder.path)
        while not ended.wait(TELL_S):
            found = read_progress(folder.path)
            if found and found != reported:
                on_progress(found)
            reported = found

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
