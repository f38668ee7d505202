"""The C thread survives what happens to a Python process: fork, Ctrl-C, exit, forgotten objects.

Each test runs a program of its own, since it plays with the process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gridstat.endpoint import Receiver
from tests.protocol.ends import eventually

ROOT = Path(__file__).resolve().parents[2]
PROLOGUE = """
    import os, signal, sys, threading, time
    import numpy as np
    from gridstat.endpoint import Receiver, Sender
    from gridstat.model.errors import Misuse
    from gridstat.model.rate_law import Period

    # A shell's background job ignores Ctrl-C, and so would we after it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    receiver = Receiver()
    receiver.expect(1, None)
    receiver.start()
    sender = Sender(7, ("127.0.0.1", *receiver.ports))
"""


def start(program: str) -> subprocess.Popen[str]:
    source = textwrap.dedent(PROLOGUE) + textwrap.dedent(program)
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-c", source],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def output_of(program: str, *, status: int = 0) -> list[str]:
    with start(program) as process:
        try:
            said, complained = process.communicate(timeout=40)
        finally:
            process.kill()  # One that hangs must not hang the test as well.
    assert process.returncode == status, complained
    return said.split("\n")[:-1]


def test_a_forked_child_is_told_and_the_parent_goes_on() -> None:
    program = """
        child = os.fork()
        if child == 0:
            for use in (
                receiver.start, receiver.read, receiver.thread_cpu_ns,
                lambda: receiver.newest(1), lambda: receiver.expect(2, None),
                lambda: sender.send(1, 1),
                lambda: sender.send_many(np.array([1]), np.array([1]), np.array([1])),
            ):
                try:
                    use()
                except Misuse as error:
                    assert "after the fork" in str(error)
                else:
                    sys.exit(1)
            assert not receiver.is_running
            receiver.stop()
            receiver.close()
            sender.close()
            sys.exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        sender.send(1, 5)
        print(receiver.read(timeout_s=20)["value"].tolist())
        receiver.close()
    """
    assert output_of(program) == ["0", "[5]"]


def test_a_forked_child_can_open_ends_of_its_own() -> None:
    program = """
        child = os.fork()
        if child == 0:
            mine = Receiver()
            mine.expect(1, None)
            mine.start()
            Sender(7, ("127.0.0.1", *mine.ports)).send(1, 6)
            assert mine.read(timeout_s=20)["value"].tolist() == [6]
            sys.exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(receiver.counters()["in"])
    """
    assert output_of(program) == ["0", "0"]


@pytest.mark.parametrize(
    "wait",
    [
        "receiver.read(timeout_s=None)",
        "[receiver.on_batch(len), threading.Event().wait()]",
        "__import__('asyncio').run(receiver.batches().__anext__())",
    ],
)
def test_ctrl_c_ends_a_program_that_waits_for_events(wait: str) -> None:
    program = f"""
        try:
            print("waiting", flush=True)
            {wait}
        except KeyboardInterrupt:
            sender.send(1, 5)
            deadline = time.monotonic() + 20
            while receiver.counters()["delivered"] == 0 and time.monotonic() < deadline:
                time.sleep(0.01)
            print("received", receiver.counters()["delivered"])
    """
    with start(program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        eventually(lambda: _state_of(process.pid))
        process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=50)
    assert process.returncode == 0, complained
    assert "received 1" in said


def test_ctrl_c_ends_a_sender_that_waits_for_room() -> None:
    program = """
        import socket
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        os.dup2(ours.fileno(), sender.fileno())
        count = 1_000_000
        ids, stamps = np.ones(count, np.uint32), np.arange(count, dtype=np.uint64)
        try:
            print("waiting", flush=True)
            sender.send_many(ids, np.zeros(count), stamps)
        except KeyboardInterrupt:
            counters = sender.counters()
            assert 0 < counters["sent"] < count
            assert counters["events"] == counters["sent"] + counters["send_failed"]
            print("reconciled")
    """
    with start(program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        eventually(lambda: _state_of(process.pid))
        process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=50)
    assert process.returncode == 0, complained
    assert said == "reconciled\n"


@pytest.mark.parametrize(
    "last_words",
    [
        "",
        "receiver.on_batch(lambda batch: None)",
        "receiver.trap = trap = [receiver]; trap.append(trap)",
        "threading.Thread(target=receiver.read, args=(1, None), daemon=True).start()",
        "sys.exit(0)",
    ],
)
def test_the_interpreter_exits_without_a_stop(last_words: str) -> None:
    program = f"""
        sender.send_many(np.ones(1000, np.uint32), np.zeros(1000), np.arange(1000))
        print("done", flush=True)
        {last_words}
    """
    assert output_of(program) == ["done"]


def test_the_interpreter_exits_while_events_pour_in() -> None:
    program = """
        def pour():
            while True:
                sender.send_many(np.ones(9000, np.uint32), np.zeros(9000), np.arange(9000))
        receiver.on_batch(lambda batch: None)
        threading.Thread(target=pour, daemon=True).start()
        while receiver.counters()["in"] < 20_000:
            time.sleep(0.01)
        print("done", flush=True)
    """
    assert output_of(program) == ["done"]


def test_a_forgotten_receiver_ends_its_thread() -> None:
    program = """
        def threads():
            found = []
            for task in os.listdir("/proc/self/task"):
                try:
                    found.append(open(f"/proc/self/task/{task}/comm").read().strip())
                except OSError:  # It has just ended.
                    pass
            return found
        print(threads().count("gs-receiver"))
        del receiver
        while "gs-receiver" in threads():
            time.sleep(0.01)
        print("ended")
    """
    assert output_of(program) == ["1", "ended"]


@pytest.mark.parametrize("last", ["stop", "close"])
def test_several_threads_may_end_one_receiver_at_once(last: str) -> None:
    program = f"""
        def end(barrier, how):
            barrier.wait()
            getattr(receiver, how)()
            assert not receiver.is_running
            receiver.thread_cpu_ns()

        for round in range(100):
            how = "stop" if round < 99 else {last!r}
            barrier = threading.Barrier(4)
            threads = [threading.Thread(target=end, args=(barrier, how)) for _ in range(4)]
            receiver.start()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        print("ended")
    """
    assert output_of(program) == ["ended"]


def test_the_thread_blocks_every_signal() -> None:
    with Receiver() as receiver:
        receiver.start()
        tasks = [Path("/proc/self/task") / task for task in os.listdir("/proc/self/task")]
        (own,) = [task for task in tasks if (task / "comm").read_text() == "gs-receiver\n"]
        lines = dict(
            line.split(":\t") for line in (own / "status").read_text().splitlines() if ":\t" in line
        )
    blocked = int(lines["SigBlk"], 16)
    catchable = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
    assert all(blocked >> (number - 1) & 1 for number in catchable)


def _state_of(pid: int) -> str | None:
    """A complaint until the process sleeps in the kernel."""
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return None if state == "S" else f"in state {state}"
