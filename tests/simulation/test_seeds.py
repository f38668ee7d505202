"""Seeds of the simulated cloud: they hold, they replay, and they report failures."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from msgspec import structs

from gridstat.broker.records.operations import TermBegan, Unsubscribed, encode
from gridstat.broker.requests import outcomes, subscriptions
from gridstat.broker.requests.queries import Queries
from gridstat.net.command.machine import Persist
from lab.simulation.__main__ import main
from lab.simulation.campaign import campaign, explain
from lab.simulation.journal import EPOCH_BITS, SimulatedJournal
from lab.simulation.network import Network
from lab.simulation.operator_node import OperatorNode
from lab.simulation.run import MESSAGES_MIN, Run, run_seed
from lab.simulation.swarm import ROUTERS_MIN, RULED_REST, RULED_SEEDS, FaultKind, draw
from lab.simulation.topology import SHAPES, WAIST
from lab.simulation.world import NS_PER_MS, World

if TYPE_CHECKING:
    import pytest

    from gridstat.net.command.endpoint_messages import GrantedOutcome

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
    assert not tally.failures, "\n".join(verdict.complaint for verdict in tally.failures)
    assert tally.seeds == len(SEEDS)
    assert tally.messages_min >= MESSAGES_MIN


def test_a_seed_is_the_same_whatever_python_hashes() -> None:
    first, second = digests(1), digests(2)
    assert len(first.splitlines()) == REPLAYED
    assert first == second


def test_a_traced_seed_is_the_same_seed() -> None:
    silent, traced = run_seed(3), run_seed(3, is_traced=True)
    assert silent.digest == traced.digest
    assert not silent.trace_lines
    trace = "\n".join(traced.trace_lines)
    assert all(text in trace for text in (" receives Received", " sends to ", " WANTS PUBLISH"))


def test_one_other_byte_of_a_message_makes_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change one byte, of the same length, so that nothing else of the trace differs."""
    before = run_seed(3)

    def granted(*words: Any, **options: Any) -> GrantedOutcome:
        outcome = right(*words, **options)
        return structs.replace(outcome, label=outcome.label.upper())

    right = outcomes.granted
    monkeypatch.setattr(subscriptions, "granted", granted)
    after = run_seed(3)
    assert (after.steps, after.messages, after.rule) == (before.steps, before.messages, "")
    assert after.digest != before.digest


def test_one_other_byte_of_a_record_makes_another_trace() -> None:
    def written(journal: str) -> str:
        world = World(0)
        disk = SimulatedJournal(world, commit_ns_max=NS_PER_MS)
        owner = OperatorNode(Network(world, delay_ns_max=1, is_all_encoded=False), 1)
        operations = (encode(TermBegan(term=1, journal=journal)),)
        disk.persist(Persist(1 << EPOCH_BITS, operations), owner)
        world.run_until(2 * NS_PER_MS)
        assert disk.durable == list(operations)
        return world.digest()

    assert written("one") == written("one") != written("two")


def test_an_end_that_a_lost_journal_had_was_durable_for_those_who_asked_before_the_loss() -> None:
    world = World(0)
    disk = SimulatedJournal(world, commit_ns_max=NS_PER_MS)
    owner = OperatorNode(Network(world, delay_ns_max=1, is_all_encoded=False), 1)
    disk.persist(Persist(1 << EPOCH_BITS, (encode(Unsubscribed(subscription_id=1)),)), owner)
    world.run_until(2 * NS_PER_MS)
    disk.lose()
    assert disk.has_ended(1, asked_ns=NS_PER_MS)
    assert not disk.has_ended(1, asked_ns=3 * NS_PER_MS), "another contract has that number now"
    assert not disk.has_ended(2, asked_ns=NS_PER_MS)


def test_seeds_differ() -> None:
    assert len({run_seed(seed).digest for seed in range(4)}) == len(range(4))


def test_every_cloud_has_routers_enough_and_some_have_no_faults() -> None:
    swarms = [draw(seed) for seed in range(200)]
    assert all(len(swarm.topology.routers) >= ROUTERS_MIN for swarm in swarms)
    assert {swarm.topology.outline.shape for swarm in swarms} == {*SHAPES, WAIST}
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

    monkeypatch.setattr(Queries, "keep_ledger", keep_ledger)
    verdicts = [run_seed(seed) for seed in range(4)]
    assert "machines do not fail" in {verdict.rule for verdict in verdicts}


def test_a_failure_is_reported_with_the_end_of_its_trace_and_how_to_replay_it() -> None:
    told = explain(3, bug="skip-the-second-edge")
    assert told.startswith("seed 3: ")
    assert told.endswith(
        "replay: python -m lab.simulation --seed 3 --bug skip-the-second-edge --trace"
    )


def test_a_replay_ends_with_the_trace_and_an_exit_code() -> None:
    assert main(["--seed", "3"]) == 0
    assert main(["--seed", "3", "--bug", "skip-the-second-edge"]) == 1


def test_in_every_third_seed_operators_change_rules_and_they_are_done() -> None:
    ruled = [seed for seed in range(60) if draw(seed).rule_changes]
    assert ruled == list(range(RULED_REST, 60, RULED_SEEDS))
    runs = [Run(draw(seed)) for seed in ruled]
    assert all(run.verdict().is_good for run in runs)
    assert sum(run.rules.done for run in runs) > len(runs)
