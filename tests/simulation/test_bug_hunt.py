"""The hunt for planted bugs: what it judges, how long it looks, and that the documents list all."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.simulation import bug_hunt, unseen_bugs
from lab.simulation.bug_hunt import MISSED, MISSED_SEEDS, UNSEEN, Hunted, hunt, judged
from lab.simulation.bugs import BUGS
from lab.simulation.campaign import Simulation
from lab.simulation.command import run_command
from lab.simulation.planting import Bug
from lab.simulation.run import Verdict
from lab.simulation.tree import unseen_bugs as unseen_bugs_of_trees
from lab.simulation.tree.bugs import BUGS as BUGS_OF_TREES

PAGE = Path(__file__).resolve().parents[2] / "docs/operating/planted-bugs.md"
RULE = "nothing is lost"


def all_found(*but: str, late: str = "") -> list[Hunted]:
    """What a hunt for the bugs of both simulations has found."""
    names = BUGS.keys() | BUGS_OF_TREES.keys()
    return [
        Hunted(name, seeds=500)
        if name in MISSED or name in but
        else Hunted(name, RULE, 7, 2_000 if name == late else 8)
        for name in names
    ]


class Fake:
    """A simulation whose seeds fail with a bug from a given seed on."""

    def __init__(self, **fails_from: int) -> None:
        self.fails_from = {name.replace("_", "-"): seed for name, seed in fails_from.items()}
        self.asked: list[tuple[str, int]] = []

    def run_seed(self, seed: int, *, bug: str = "", is_traced: bool = False) -> Verdict:
        del is_traced
        self.asked.append((bug, seed))
        rule = RULE if bug and seed >= self.fails_from[bug] else ""
        return Verdict(seed, "", 1, 1, 1, rule)

    def simulation(self) -> Simulation:
        bugs = {name: Bug("", ()) for name in self.fails_from}
        return Simulation("lab.fake", self.run_seed, bugs)


def test_bugs_of_both_simulations_have_different_names() -> None:
    here, there = unseen_bugs.UNSEEN, unseen_bugs_of_trees.UNSEEN
    assert len(UNSEEN) == len(here) + len(there) >= 20
    assert UNSEEN >= MISSED


def test_all_but_the_missed_is_enough() -> None:
    text, is_enough = judged(all_found())
    assert is_enough, text


def test_each_bug_that_is_not_known_to_be_missed_must_be_found() -> None:
    text, is_enough = judged(all_found("ask-once"))
    assert not is_enough
    assert "missing: ask-once" in text


def test_nine_in_ten_of_the_unseen_bugs_must_be_found_within_a_thousand_seeds() -> None:
    name = next(iter(UNSEEN - MISSED))
    text, is_enough = judged(all_found(late=name))
    assert is_enough == (len(UNSEEN - MISSED) - 1 >= 0.9 * len(UNSEEN)), text
    some = sorted(UNSEEN - MISSED)[:3]
    late = [Hunted(each, RULE, 1_500, 1_501) for each in some]
    text, is_enough = judged([*late, *(one for one in all_found() if one.name not in some)])
    assert not is_enough
    assert "missing" not in text


def test_a_hunt_in_one_simulation_takes_the_other_as_its_own_hunt_leaves_it() -> None:
    clouds = [one for one in all_found() if one.name in BUGS]
    assert judged(clouds)[1]
    assert judged(clouds)[0].splitlines()[1] == judged(all_found())[0].splitlines()[1]


def test_bugs_that_are_missed_are_looked_for_last_and_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bug_hunt, "MISSED", frozenset({"blind"}))
    monkeypatch.setattr(bug_hunt, "UNSEEN", frozenset({"blind", "seen"}))
    monkeypatch.setattr(bug_hunt, "UNSEEN_FOUND_MIN", 0.5)
    fake, told = Fake(blind=10**9, seen=3), list[str]()
    assert hunt(fake.simulation(), range(5_000), 1, told.append) == 0
    order = [bug for bug, _ in fake.asked if bug]
    assert order == sorted(order, reverse=True), "the missed one comes last"
    assert max(seed for bug, seed in fake.asked if bug == "blind") < MISSED_SEEDS
    text = "\n".join(told)
    assert f"| `seen` | {RULE} | 3 |" in text
    assert "| `blind` | nothing yet | – |" in text


def test_a_missed_bug_that_is_found_is_to_leave_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bug_hunt, "MISSED", frozenset({"blind"}))
    told = list[str]()
    hunt(Fake(blind=3).simulation(), range(50), 1, told.append)
    assert any("take it out of MISSED" in line for line in told)


def test_a_seed_that_fails_without_the_bug_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(blind=0)

    def always_bad(seed: int, *, bug: str = "", is_traced: bool = False) -> Verdict:
        return Verdict(seed, "", 1, 1, 1, RULE)

    monkeypatch.setattr(fake, "run_seed", always_bad)
    assert not bug_hunt.look_for(fake.simulation(), "blind", range(20), 1).is_found


def test_too_few_seeds_a_minute_fail_a_campaign(capsys: pytest.CaptureFixture[str]) -> None:
    fake = Fake().simulation()
    assert run_command(fake, ["--seeds", "3"]) == 0
    assert run_command(fake, ["--seeds", "3", "--per-minute-min", "1"]) == 0
    assert run_command(fake, ["--seeds", "3", "--per-minute-min", "1e18"]) == 1
    assert "too slow" in capsys.readouterr().out


@pytest.mark.parametrize("name", [*BUGS, *BUGS_OF_TREES])
def test_the_page_lists_every_planted_bug(name: str) -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}` |")]
    assert len(rows) == 1, "put the row that `--bugs` prints into the page"
    assert ("nothing yet" in rows[0]) == (name in MISSED)
