"""Plant small faults in a copy of the product, one at a time; the tests should notice each.

The faults are in `tools/mutants.toml`. The checkout is never edited. First the tests run without
any fault; a test that fails then is left out. A fault counts as noticed if a test fails or crashes,
and not if the time runs out. Unnoticed faults are listed at the end, and fewer than 90 % noticed is
a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tools.mutant_core import CORE, DOORS, BuildError, CoreBuild
from tools.mutant_list import ROOT, Mutant, complaints_of, read_mutants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOTICED_SHARE_MIN = 0.9
BASELINE_LIMIT_S = 1800
FAILED = re.compile(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", re.MULTILINE)
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "-rfE")
PYTEST_PASSED, PYTEST_FAILED, PYTEST_INTERRUPTED = 0, 1, 2

Value = TypeVar("Value")


class State(Enum):
    """State of a mutant after its run."""

    NOTICED = "noticed"
    NOT_NOTICED = "NOT NOTICED"
    OUT_OF_TIME = "OUT OF TIME"
    NOT_JUDGED = "NOT JUDGED"
    DOES_NOT_APPLY = "DOES NOT APPLY"


@dataclass(frozen=True, slots=True)
class Outcome:
    """State of one mutant, the test that noticed it or a reason, and the duration."""

    mutant: Mutant
    state: State
    remark: str
    took_s: float


@dataclass(slots=True)
class Ending:
    """End of a process; `code` is None if it ran out of time."""

    code: int | None
    output: str


@dataclass(slots=True)
class Processes:
    """Running processes, so that an interrupt ends each with all its children."""

    _running: set[subprocess.Popen[str]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    is_ending: bool = False

    def run(self, arguments: list[str], tree: Path, limit_s: float) -> Ending:
        """Run Python in a copy of the repository; return output and errors as one text."""
        environment = os.environ | {"PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1"}
        with self._lock:
            if self.is_ending:
                raise KeyboardInterrupt
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            self._running.add(process)
        try:
            output, _ = process.communicate(timeout=limit_s)
            return Ending(process.returncode, output)
        except subprocess.TimeoutExpired:
            return Ending(None, "")
        finally:
            self._end(process)

    def end_all(self) -> None:
        with self._lock:
            self.is_ending = True
            for process in self._running:
                _kill_group(process)

    def _end(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._running.discard(process)
        _kill_group(process)
        process.communicate()


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Baseline:
    """Tests and commands that fail without any fault, so that they judge nothing."""

    failing_tests: tuple[str, ...]
    failing_commands: tuple[tuple[str, ...], ...]


class Campaign:
    """Run of all mutants in copies of the repository, one at a time in each."""

    def __init__(self, folder: Path, jobs: int, tell: Callable[[str], None]) -> None:
        self.processes = Processes()
        self._folder = folder
        self._jobs = jobs
        self._tell = tell
        self._trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._build = CoreBuild(ROOT, folder / "objects")
        self._baseline = Baseline((), ())

    def prepare(self, mutants: list[Mutant]) -> None:
        for number in range(self._jobs):
            tree = self._folder / f"copy{number}"
            copy_repository(tree)
            self._trees.put(tree)
        if any(mutant.is_compiled for mutant in mutants):
            self._tell("Compiling the core")
            self._build.prepare(self._jobs)
        self._tell("Running the tests without a fault")
        self._baseline = self._judge_baseline(mutants)
        for name in self._baseline.failing_tests:
            self._tell(f"left out, since it fails without any fault: {name}")
        for command in self._baseline.failing_commands:
            self._tell(f"left out, since it fails without any fault: {' '.join(command)}")

    def run(self, mutants: list[Mutant]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                for outcome in pool.map(self._try, mutants):
                    outcomes.append(outcome)
                    number = f"[{len(outcomes):3}/{len(mutants)}]"
                    self._tell(f"{number} {line(outcome)}")
            except BaseException:
                self.processes.end_all()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return outcomes

    def _judge_baseline(self, mutants: list[Mutant]) -> Baseline:
        tree = self._trees.get()
        try:
            tests = unique(test for mutant in mutants for test in mutant.tests)
            failing_tests: tuple[str, ...] = ()
            if tests:
                ending = self.processes.run([*PYTEST, *tests], tree, BASELINE_LIMIT_S)
                if ending.code not in {PYTEST_PASSED, PYTEST_FAILED}:
                    raise SystemExit(f"the tests do not run without a fault:\n{ending.output}")
                failing_tests = tuple(FAILED.findall(ending.output))
            commands = unique(mutant.command for mutant in mutants if mutant.command)
            failing_commands = tuple(
                command
                for command in commands
                if self.processes.run(list(command), tree, BASELINE_LIMIT_S).code != 0
            )
        finally:
            self._trees.put(tree)
        return Baseline(failing_tests, failing_commands)

    def _try(self, mutant: Mutant) -> Outcome:
        began_s = time.monotonic()
        reasons = complaints_of(mutant)
        if reasons:
            return Outcome(mutant, State.DOES_NOT_APPLY, "; ".join(reasons), 0)
        tree = self._trees.get()
        try:
            with planted(mutant, tree):
                if mutant.is_compiled:
                    self._build.build(tree, mutant.file)
                state, remark = self._judge(mutant, tree)
        except BuildError as failure:
            state, remark = State.DOES_NOT_APPLY, f"it does not compile: {failure}"
        finally:
            self._trees.put(tree)
        return Outcome(mutant, state, remark, time.monotonic() - began_s)

    def _judge(self, mutant: Mutant, tree: Path) -> tuple[State, str]:
        if mutant.command in self._baseline.failing_commands:
            return State.NOT_JUDGED, "its command fails without any fault"
        arguments = list(mutant.command)
        if mutant.tests:
            left_out = (f"--deselect={name}" for name in self._baseline.failing_tests)
            arguments = [*PYTEST, "-x", *left_out, *mutant.tests]
        ending = self.processes.run(arguments, tree, mutant.limit_s)
        if ending.code is None:
            return State.OUT_OF_TIME, f"the tests ran longer than {mutant.limit_s} s"
        return verdict(mutant, ending)


def verdict(mutant: Mutant, ending: Ending) -> tuple[State, str]:
    """Return which test or command noticed the fault, from the end of its process."""
    assert ending.code is not None
    if ending.code == 0:
        return State.NOT_NOTICED, mutant.breaks
    if ending.code < 0:
        return State.NOTICED, f"a crash by {signal.Signals(-ending.code).name}"
    if mutant.command:
        first_line = ending.output.strip().partition("\n")[0]
        return State.NOTICED, f"{' '.join(mutant.command)}: {first_line}"
    failed = FAILED.findall(ending.output)
    if ending.code in {PYTEST_FAILED, PYTEST_INTERRUPTED} and failed:
        return State.NOTICED, failed[0]
    return State.NOT_JUDGED, f"pytest ended with {ending.code}: {ending.output[-300:].strip()}"


@contextlib.contextmanager
def planted(mutant: Mutant, tree: Path) -> Iterator[None]:
    """Plant the fault in `tree` for the block, and restore the files afterwards."""
    path = tree / mutant.file
    before = path.read_text(encoding="utf-8")
    modules = [*(tree / CORE).glob("*.so")] if mutant.is_compiled else []
    kept = {module: module.read_bytes() for module in modules}
    try:
        path.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
        forget_bytecode(path)
        yield
    finally:
        path.write_text(before, encoding="utf-8")
        forget_bytecode(path)
        for module, content in kept.items():
            module.unlink(missing_ok=True)  # A process may still map the old file.
            module.write_bytes(content)


def forget_bytecode(path: Path) -> None:
    """Remove bytecode, which Python reuses for a file of equal length and time of change."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def copy_repository(tree: Path) -> None:
    """Copy all files that git knows or would add, and the compiled core."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    modules = [it.relative_to(ROOT) for door in DOORS for it in (ROOT / CORE).glob(f"{door}.*.so")]
    for file in [*map(Path, listed.split("\0")[:-1]), *modules]:
        if (ROOT / file).is_file():
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, tree / file)


def unique(values: Iterator[Value]) -> list[Value]:
    return list(dict.fromkeys(values))


def line(outcome: Outcome) -> str:
    by = " by" if outcome.state is State.NOTICED else ":"
    name = f"{outcome.mutant.area}: {outcome.mutant.name}"
    return f"{name:58} {outcome.state.value}{by} {outcome.remark} ({outcome.took_s:.0f} s)"


def summary(outcomes: list[Outcome]) -> str:
    """Return the unnoticed mutants, the sums by area, and the total."""
    missed = [outcome for outcome in outcomes if outcome.state is not State.NOTICED]
    text = ["", "Not noticed:" if missed else "Every mutant was noticed."]
    text += [f"  {line(outcome)}" for outcome in missed]
    planted_by, noticed_by = Counter[str](), Counter[str]()
    for outcome in outcomes:
        planted_by[outcome.mutant.area] += 1
        noticed_by[outcome.mutant.area] += outcome.state is State.NOTICED
    text += ["", f"{'area':10} planted noticed"]
    text += [f"{area:10} {planted_by[area]:7} {noticed_by[area]:7}" for area in sorted(planted_by)]
    noticed = noticed_by.total()
    share = noticed / max(1, len(outcomes))
    text.append(f"{'all':10} {len(outcomes):7} {noticed:7}  {share:.0%}")
    return "\n".join(text)


def is_good(outcomes: list[Outcome]) -> bool:
    noticed = sum(outcome.state is State.NOTICED for outcome in outcomes)
    applies = all(outcome.state is not State.DOES_NOT_APPLY for outcome in outcomes)
    return applies and noticed >= NOTICED_SHARE_MIN * len(outcomes)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="list the mutants and end")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="plant this one (again: more)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="copies at work at a time (2)")
    options = parser.parse_args()
    mutants = read_mutants()
    if options.list:
        for mutant in mutants:
            print(f"{mutant.area}: {mutant.name}\n    {mutant.breaks}")
        return 0
    unknown = set(options.only or ()) - {mutant.name for mutant in mutants}
    if unknown or options.jobs < 1:
        sys.stderr.write(f"no mutant is called {', '.join(sorted(unknown))}\n" if unknown else "")
        sys.stderr.write("hint: --list tells their names; --jobs takes 1 or more\n")
        return 2
    if options.only:
        mutants = [mutant for mutant in mutants if mutant.name in options.only]
    return campaign(mutants, min(options.jobs, len(mutants)))


def campaign(mutants: list[Mutant], jobs: int) -> int:
    with tempfile.TemporaryDirectory(
        prefix="gridstat-mutants-", ignore_cleanup_errors=True
    ) as name:
        work = Campaign(Path(name), jobs, lambda text: print(text, flush=True))
        try:
            work.prepare(mutants)
            outcomes = work.run(mutants)
        except KeyboardInterrupt:
            work.processes.end_all()
            sys.stderr.write("interrupted: no verdict\n")
            return 130
    print(summary(outcomes))
    return 0 if is_good(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
