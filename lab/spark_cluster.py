"""A real Spark cluster on this machine: a master and workers, each a process, from pip's Spark.

    with SparkCluster(folder) as cluster:
        spark = spark_session(cluster.settings())
        cluster.kill_worker(0)

The wheel of Spark has no scripts to start one, so `spark-class` runs the classes. Workers start
executors, which start Python; every process is ended by its pid, children after their parents.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pyspark

from gridstat.pipeline.class_archive import archive_options, archive_path
from gridstat.pipeline.java import java_home
from gridstat.pipeline.spark_session import QUICK_JAVA, SECURE, SparkSettings
from lab.errors import LabError

if TYPE_CHECKING:
    from types import TracebackType

HOST: Final = "127.0.0.1"
WORKERS: Final = 2
READY_S_MAX: Final = 240.0
ENDING_S_MAX: Final = 30.0
SECRET_BYTES: Final = 32
EXECUTOR_MEMORY: Final = "512m"
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"


@dataclass(frozen=True, slots=True)
class _Place:
    """Ports of the master: for workers and drivers, and for its web page."""

    port: int
    web_port: int

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"


class SparkCluster:
    """Cluster that runs while the `with` block lasts; every worker has one processor."""

    def __init__(self, folder: Path, *, workers: int = WORKERS, is_quick: bool = True) -> None:
        self._folder = folder
        self._count = workers
        defaults = SparkSettings()
        self._home = java_home(os.environ, defaults.cache)
        archive = archive_options(archive_path(self._home, defaults.cache))
        self._java_options = f"{archive} {QUICK_JAVA if is_quick else ''}".strip()
        self._place = _Place(_free_port(), _free_port())
        self._secret = secrets.token_hex(SECRET_BYTES)
        self._properties = folder / "cluster.properties"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self._write_properties()
            self._start_master()
            for number in range(self._count):
                self._start_worker(number)
            self._await_workers()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self._place.url

    def settings(self, *, name: str = "on a cluster") -> SparkSettings:
        """Return the settings of a driver."""
        return SparkSettings(
            master=self.url,
            name=name,
            driver_memory=EXECUTOR_MEMORY,
            java_options=self._java_options,
            has_archive=False,  # The Java options contain it already.
            host=HOST,
            properties=self._properties,
            more={
                "spark.executor.extraJavaOptions": self._java_options,
                "spark.executor.memory": EXECUTOR_MEMORY,
                "spark.local.dir": str(self._folder / "driver"),
            },
        )

    @property
    def secret(self) -> str:
        """Return the secret that all processes of this cluster and its drivers share."""
        return self._secret

    def command_lines(self) -> list[bytes]:
        """Return the command lines of all processes of the cluster, executors and tasks too."""
        return [
            _command_line_of(process_id)
            for process in self._processes
            for process_id in [process.pid, *descendants(process.pid)]
        ]

    def tasks_of(self, number: int) -> list[int]:
        """Return the pids of the Python processes that run a worker's tasks."""
        return [
            process_id
            for process_id in descendants(self._processes[1 + number].pid)
            if b"pyspark.daemon" in _command_line_of(process_id)
        ]

    def kill_worker(self, number: int) -> None:
        """Send SIGKILL to a worker and all its descendants, without a chance to clean up."""
        _end(self._processes[1 + number], signal.SIGKILL)

    def close(self) -> None:
        while self._processes:  # Workers before their master.
            _end(self._processes.pop(), signal.SIGTERM)

    def alive_workers(self) -> int:
        """Return the number of workers that the master reports as alive."""
        asked = HTTPConnection(HOST, self._place.web_port, timeout=ENDING_S_MAX)
        try:
            asked.request("GET", "/json/")
            report = json.load(asked.getresponse())
        finally:
            asked.close()
        return sum(worker["state"] == "ALIVE" for worker in report["workers"])

    def _write_properties(self) -> None:
        """Write the settings and the secret that all processes share, for this user alone."""
        self._folder.mkdir(parents=True, exist_ok=True)
        shared = {**SECURE, "spark.authenticate.secret": self._secret}
        self._properties.touch(mode=0o600)
        self._properties.write_text("".join(f"{name} {each}\n" for name, each in shared.items()))

    def _start_master(self) -> None:
        place = self._place
        ports = ["--port", str(place.port), "--webui-port", str(place.web_port)]
        self._start("master", _MASTER, "--host", HOST, *ports, *self._shared())

    def _start_worker(self, number: int) -> None:
        room = ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
        folder = self._folder / f"worker-{number}"
        arguments = ["--host", HOST, "--work-dir", str(folder), *room, *self._shared(), self.url]
        self._start(f"worker-{number}", _WORKER, *arguments)

    def _shared(self) -> list[str]:
        return ["--properties-file", str(self._properties)]

    def _start(self, name: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "JAVA_HOME": str(self._home),
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_JAVA_OPTS": self._java_options,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_LOCAL_IP": HOST,
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)

    def _await_workers(self) -> None:
        deadline = time.monotonic() + READY_S_MAX
        while self._alive_or_none() < self._count:
            ended = [each.returncode for each in self._processes if each.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise LabError(
                    f"the cluster did not start; ended with {ended}",
                    hint=f"see the logs in {self._folder}",
                )
            time.sleep(0.1)

    def _alive_or_none(self) -> int:
        try:
            return self.alive_workers()
        except (OSError, HTTPException, ValueError):
            return 0  # The master does not listen yet.


def descendants(process_id: int) -> list[int]:
    """Return the pids of all descendants of a process, parents first."""
    found: list[int] = []
    try:
        tasks = list(Path(f"/proc/{process_id}/task").iterdir())
    except OSError:
        return found
    for task in tasks:
        try:
            children = [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # The thread or the process has ended meanwhile.
        for child in children:
            found += [child, *descendants(child)]
    return found


def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    if process.poll() is not None:
        return
    others = descendants(process.pid)
    for process_id in [process.pid, *others]:
        _send(process_id, how)
    try:
        process.wait(ENDING_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    deadline = time.monotonic() + ENDING_S_MAX
    while left := [each for each in others if _runs(each)]:
        if time.monotonic() > deadline:
            for process_id in left:
                _send(process_id, signal.SIGKILL)
        time.sleep(0.02)


def _command_line_of(process_id: int) -> bytes:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes()
    except OSError:
        return b""


def _send(process_id: int, how: signal.Signals) -> None:
    try:
        os.kill(process_id, how)
    except ProcessLookupError:
        return


def _runs(process_id: int) -> bool:
    """Return whether a process still runs; a zombie does not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return False
    return state != "Z"


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port: int = taken.getsockname()[1]
        return port
