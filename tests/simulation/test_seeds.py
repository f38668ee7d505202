"""Seeds of the simulated cloud: they hold, they replay, and they tell what went wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from gridstat.broker.requests.enquiries import Enquiries
from lab.simulation.__main__ import main
from lab.simulation.campaign import campaign, explain
from lab.simulation.run import MESSAGES_MIN, run_seed
from lab.simulation.swarm import ROUTERS_MIN, FaultKind, draw

if TYPE_CHECKING:
    import pytest

SEEDS = range(32)
REPLAYED = 12


def digests(hash_seed: int) -> str:
    command = [sys.executable, "-m", "lab.simulation", "--digests", "--seeds", str(REPLAYED)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_every_property_holds_in_many_clouds_under_faults() -> None:
    tally = campaign(SEEDS)
    assert not tally.failures, "\n".join(verdict.words for verdict in tally.failures)
    assert tally.seeds == len(SEEDS)
    assert tally.messages_min >= MESSAGES_MIN


def test_a_seed_is_the_same_whatever_python_hashes() -> None:
    first, second = digests(1), digests(2)
    assert len(first.splitlines()) == REPLAYED
    assert first == second


def test_a_seed_told_aloud_is_the_same_seed() -> None:
    silent, aloud = run_seed(3), run_seed(3, is_told=True)
    assert silent.digest == aloud.digest
    assert not silent.story
    told = "\n".join(aloud.story)
    assert all(word in told for word in (" hears Received", " says to ", " WANTS PUBLISH"))


def test_seeds_differ() -> None:
    assert len({run_seed(seed).digest for seed in range(4)}) == len(range(4))


def test_every_cloud_has_routers_enough_and_some_have_no_faults() -> None:
    swarms = [draw(seed) for seed in range(200)]
    assert all(len(swarm.topology.routers) >= ROUTERS_MIN for swarm in swarms)
    assert {swarm.topology.outline.shape for swarm in swarms} == {"chain", "ring", "random"}
    assert any(swarm.is_quiet for swarm in swarms)
    assert any(swarm.is_cold for swarm in swarms)
    happening = {kind for swarm in swarms for _, kind in swarm.faults}
    assert happening == set(FaultKind) - {FaultKind.CLOCK_OFFSET}


def test_a_copy_of_a_settled_cloud_owes_nothing_to_the_seeds_before() -> None:
    first = run_seed(3)
    run_seed(4)
    assert run_seed(3) == first


def test_a_broker_that_fails_over_a_request_fails_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_ledger(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Enquiries, "keep_ledger", keep_ledger)
    verdicts = [run_seed(seed) for seed in range(4)]
    assert "machines do not fail" in {verdict.rule for verdict in verdicts}


def test_a_failure_is_told_with_its_last_words_and_how_to_replay_it() -> None:
    told = explain(3, bug="skip-the-second-edge")
    assert told.startswith("seed 3: ")
    assert told.endswith(
        "replay: python -m lab.simulation --seed 3 --bug skip-the-second-edge --trace"
    )


def test_a_replay_ends_with_the_trace_and_an_exit_code() -> None:
    assert main(["--seed", "3"]) == 0
    assert main(["--seed", "3", "--bug", "skip-the-second-edge"]) == 1
