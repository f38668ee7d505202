"""Identifiers of variables over a whole tree: many clouds publish at once, and a broker dies.

root ── west ── a, b      blocks are so small that every cloud needs several, and so do west
     └─ east ── c, d      and east; none of them is ever given twice
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Final

import pytest

from gridstat.broker.settings import BrokerSettings
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.net.command.endpoint_messages import Publish, PublishedOutcome, Unpublish
from gridstat.net.command.tree_messages import AskNumbers, NumbersLeased
from tests.unit.broker.stand_ins import publish, variable
from tests.unit.broker.tree.family import Family

CLOUDS: Final = ("a", "b", "c", "d")
PARENTS: Final = {**dict.fromkeys("ab", "west"), **dict.fromkeys("cd", "east")} | dict.fromkeys(
    ("west", "east"), "root"
)
SETTINGS: Final = (BrokerSettings("", numbers_at_once=3), TreeSettings("", numbers_block=8))
SIZES: Final = (1, 4, 1, 2, 7, 1)
"""Variables of the requests of each cloud; some need more than a block."""
KILLED: Final = ("root", "west", "east", "a", "d")
NS_PER_S: Final = 1_000_000_000
Asked = dict[tuple[str, int], Publish]
"""Requests by cloud and number."""


def grid() -> Family:
    inside = {
        cloud: [(f"{cloud}/e", f"{cloud}/f"), (f"{cloud}/f", f"{cloud}/e")] for cloud in CLOUDS
    }
    ways = [found for one, other in pairwise(CLOUDS) for found in ((one, other), (other, one))]
    between: dict[str, list[tuple[str, str]]] = {"west": [], "east": [], "root": []}
    for one, other in ways:
        owner = PARENTS[one] if PARENTS[one] == PARENTS[other] else "root"
        between[owner].append((f"{one}/f", f"{other}/f"))
    family = Family(PARENTS, inside, between, settings=SETTINGS).start()
    for cloud, leaf in family.leaves.items():
        leaf.attach(f"{cloud}/pmu", f"{cloud}/e", data_port=0)
    return family


def publish_everywhere(family: Family, word: str) -> Asked:
    """Requests of all clouds, in turns, of which none is answered before the last is asked."""
    asked: Asked = {}
    for at, size in enumerate(SIZES):
        for cloud, leaf in family.leaves.items():
            names = [f"{cloud}/pmu/{word}-{at}-{number}" for number in range(size)]
            command = publish(*map(variable, names))
            asked[cloud, leaf.send(f"{cloud}/pmu", f"{cloud}/e", command)] = command
    return asked


def identifiers(family: Family, asked: Asked) -> dict[str, int]:
    """Return the identifiers by name, once all requests are answered."""
    found = {}
    for (cloud, number), command in asked.items():
        outcomes = family.leaves[cloud].answers[f"{cloud}/pmu", number]
        assert len(outcomes) == len(command.publications)
        for outcome in outcomes:
            assert isinstance(outcome, PublishedOutcome), outcome
            found[outcome.variable.name] = int(outcome.variable.variable_id)
    return found


def ask_again(family: Family, asked: Asked) -> None:
    """Repeat the requests without an answer, as end-points do."""
    for (cloud, number), command in asked.items():
        leaf = family.leaves[cloud]
        if (f"{cloud}/pmu", number) not in leaf.answers:
            leaf.send(f"{cloud}/pmu", f"{cloud}/e", command, request_id=number)


def rest(family: Family) -> None:
    family.settle()
    family.pass_time(3 * NS_PER_S)


def assert_all_distinct(family: Family, *found: dict[str, int]) -> None:
    """Check that answered and registered identifiers are distinct, and the clouds' blocks too."""
    told = dict(chain.from_iterable(one.items() for one in found))
    assert len(set(told.values())) == len(told)
    registered: dict[str, int] = {}
    blocks: list[int] = []
    for leaf in family.leaves.values():
        registry = leaf.broker.registry
        registered |= {
            name: int(one.variable.variable_id) for name, one in registry.publications.items()
        }
        for first, count in registry.tree.blocks:
            blocks += range(first, first + count)
    assert registered == told
    assert len(set(blocks)) == len(blocks), "nothing is leased twice"
    assert set(told.values()) <= set(blocks)


@pytest.mark.feature("S0-22")
@pytest.mark.parametrize("broker", KILLED)
def test_identifiers_are_distinct_over_the_tree_though_a_broker_dies_while_all_publish(
    broker: str,
) -> None:
    is_asking_killed = False
    for point in range(KILLED.index(broker) % 3, 45, 3):
        family = grid()
        asked = publish_everywhere(family, "x")
        for _ in range(point):
            family.step()
        is_asking_killed |= any(
            isinstance(word, AskNumbers | NumbersLeased) and broker in (sender, receiver)
            for sender, receiver, word in family.waiting
        )
        family.kill(broker)
        ask_again(family, asked)
        rest(family)
        first = identifiers(family, asked)
        assert len(first) == len(CLOUDS) * sum(SIZES)
        assert_all_distinct(family, first)
        for name in (*KILLED, "b", "c"):
            family.kill(name)  # All know from their journals what was given to whom.
        second = identifiers(family, _published_again(family))
        assert_all_distinct(family, first, second)
    assert is_asking_killed, "it died with a question or an answer on its way"


def _published_again(family: Family) -> Asked:
    asked = publish_everywhere(family, "y")
    rest(family)
    return asked


@pytest.mark.feature("S0-22")
def test_the_identifier_of_a_variable_that_is_gone_is_no_others_in_any_cloud() -> None:
    family = grid()
    asked = publish_everywhere(family, "x")
    rest(family)
    gone = identifiers(family, asked)
    for cloud, leaf in family.leaves.items():
        names = tuple(name for name in gone if name.startswith(f"{cloud}/"))
        leaf.send(f"{cloud}/pmu", f"{cloud}/e", Unpublish(names=names))
    rest(family)
    again = identifiers(family, _published_again(family))
    assert not set(again.values()) & set(gone.values())
    assert_all_distinct(family, again)
