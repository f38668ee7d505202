"""Clouds and brokers without their journal: forgotten segments and identifiers."""

from __future__ import annotations

from dataclasses import replace

from gridstat.broker.tree.tree_operations import TreeTermBegan, encode
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.errors import NoSuchSubscription
from gridstat.model.qos import Qos
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.net.command.segment_messages import Gate, NotReserved, Release, Released, Reserve
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.scripted_root import below_scripted_root
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways, qos_of, variable
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, inconsistencies, residue


class Cloud(CloudStandIn):
    """Like a leaf broker it holds nothing for a subscriber that has not asked for it."""

    def lose_journal(self) -> None:
        for found in (self.segments, self.asked, self.granted):
            found.clear()
        self.term += 1

    def _reserve(self, key: tuple[str, int], message: Reserve) -> None:
        if message.subscriber and key[0] not in {**self.asked, **self.granted}:
            unknown = RefusedOutcome(code=NoSuchSubscription.code, reason="nobody has asked")
            self._say(
                NotReserved(term=self.term, contract=key[0], generation=key[1], refused=unknown)
            )
            return
        super()._reserve(key, message)


def two_clouds() -> TreeWorld:
    channels = [*both_ways("c1/b0", "c2/b0"), *both_ways("c1/b1", "c2/b1")]
    world = TreeWorld(
        {"root": ("", ("c1", "c2"), channels)}, [Cloud("c1", "root"), Cloud("c2", "root")]
    )
    for number, name in enumerate((VOLTAGE, "c1/pmu/other"), start=1):
        world.clouds["c1"].variables[name] = variable(name, number)
    return world.start()


def lose_journal(world: TreeWorld, name: str) -> None:
    world.disconnect(name)
    cloud = world.clouds[name]
    assert isinstance(cloud, Cloud)
    cloud.lose_journal()


def test_a_contract_that_its_subscribers_cloud_has_forgotten_ends() -> None:
    world = two_clouds()
    world.subscribe("c2/d", VOLTAGE)
    world.settle()
    lose_journal(world, "c2")
    world.rest()
    assert residue(world) == []


def test_a_name_that_is_used_anew_for_another_variable_is_another_contract() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    lose_journal(world, "c2")
    assert world.clouds["c2"].ask("c2/d", "c1/pmu/other", 1, 0, qos_of()) == contract
    world.settle()
    assert world.clouds["c2"].granted[contract].variable.name == "c1/pmu/other"
    assert contract not in world.clouds["c2"].ended
    world.rest()
    assert inconsistencies(world) == []
    world.end(contract)
    world.rest()
    assert residue(world) == []


def test_a_name_that_is_used_anew_in_an_older_generation_is_answered() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    world.subscribe("c2/d", VOLTAGE, generation=1, redundancy=2)
    world.settle()
    lose_journal(world, "c2")
    world.clouds["c2"].ask("c2/other", VOLTAGE, 1, 0, qos_of())
    world.settle()
    assert len(world.clouds["c2"].granted[contract].paths) == 1
    world.rest()
    assert inconsistencies(world) == []


def test_the_same_generation_with_another_quality_is_a_change() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    assert len(world.clouds["c2"].granted[contract].paths) == 2
    world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    assert world.clouds["c2"].granted[contract].generation == 1
    world.rest()
    assert inconsistencies(world) == []


# Identifiers of variables.


def lease(world: TreeWorld, name: str, request: int, count: int = 40) -> range:
    cloud = world.clouds[name]
    cloud.ask_numbers(request, count)
    world.say(name)
    world.rest()
    block = cloud.numbers[request]
    return range(block.first, block.first + block.count)


def lose_numbers(world: TreeWorld, name: str, journal: str = "another") -> None:
    world.disconnect(name)
    cloud = world.clouds[name]
    cloud.term += 1
    cloud.numbers.clear()
    cloud.journal = journal
    world.settle()


def test_a_cloud_that_has_lost_its_journal_is_given_other_identifiers() -> None:
    world = two_clouds()
    before = lease(world, "c1", 1)
    lose_numbers(world, "c1")
    after = lease(world, "c1", 1)
    assert not set(before) & set(after)
    assert lease(world, "c1", 1) == after
    notes = [note for note in world.brokers["root"].notes if note.word == "numbers_lost"]
    assert [dict(note.facts) for note in notes] == [{"child": "c1", "given": 40}]


def test_a_cloud_that_counts_anew_is_answered_however_much_it_had_asked() -> None:
    world = two_clouds()
    for request in range(1, 19):
        lease(world, "c1", request)
    lose_numbers(world, "c1")
    assert lease(world, "c1", 1).start == 18 * 40 + 1


def test_what_a_cloud_was_given_in_a_lost_journal_counts_against_what_it_may_have() -> None:
    settings = TreeSettings(name="", numbers_child_max=100)
    world = TreeWorld({"root": ("", ("c1",), [])}, [Cloud("c1", "root")], settings).start()
    for life in range(1, 3):
        lease(world, "c1", 1)
        lose_numbers(world, "c1", f"journal {life}")
    assert len(lease(world, "c1", 1)) == 0


def test_a_broker_that_has_lost_its_journal_hands_out_nothing_that_clouds_below_it_have() -> None:
    world = deep_tree(TreeSettings(name="", numbers_block=100))
    given = [lease(world, "c1", 1), lease(world, "c2", 1)]
    west = world.brokers["west"]
    west.settings = replace(west.settings, term_min=2)
    west.written.clear()
    world.kill("west")
    world.rest()
    given += [lease(world, "c1", request) for request in (2, 3)]
    assert len({number for block in given for number in block}) == 4 * 40


def test_which_journal_was_given_what_is_known_after_a_restart_and_after_a_snapshot() -> None:
    world = deep_tree(TreeSettings(name="", numbers_block=100))
    for name in ("c1", "c2"):
        world.clouds[name].journal = f"of {name}"
        world.disconnect(name)
    world.settle()
    before = lease(world, "c1", 1)
    west = world.brokers["west"]
    journal = west.machine.state.journal
    for is_snapshot in (False, True):
        if is_snapshot:
            west.written = west.machine.snapshot()
        world.kill("west")
        world.rest()
        assert journal == west.machine.state.journal != ""
        assert lease(world, "c1", 1) == before


def test_a_journal_of_an_earlier_release_is_the_same_one_when_it_is_read_again() -> None:
    world = two_clouds()
    before = lease(world, "c1", 1)
    root = world.brokers["root"]
    root.written[0] = encode(TreeTermBegan(term=1))
    world.kill("root")
    world.rest()
    assert root.machine.state.journal == ""
    assert lease(world, "c1", 1) == before


def test_a_block_that_could_not_be_made_durable_leaves_those_of_the_journal_before() -> None:
    world = two_clouds()
    before = lease(world, "c1", 1)
    lose_numbers(world, "c1")
    world.fail_writes["root"] = {0}
    world.clouds["c1"].ask_numbers(1, 40)
    world.say("c1")
    world.settle()
    assert 1 not in world.clouds["c1"].numbers
    lose_numbers(world, "c1", "")
    assert lease(world, "c1", 1) == before


def test_nothing_is_reserved_for_a_subscriber_whose_cloud_is_not_known_yet() -> None:
    """Its broker has begun anew, and the cloud joins it while paths are looked for."""
    world, _ = below_scripted_root()
    west = world.brokers["west"]
    west.settings = replace(west.settings, term_min=2)
    west.written.clear()
    world.cut |= {"c1", "c2"}
    world.kill("west")
    for name in ("c1", "c2"):
        world.disconnect(name)
    world.settle()
    reserve = Reserve(
        term=1,
        contract="c9#1",
        generation=0,
        variable=variable(VOLTAGE, 1),
        granted={0: Qos(every=1, latency_us=1_000_000, redundancy=1, priority=3)},
        entries=(Gate(router="c2/r0", channel_id=1 << 31 | 1),),
        subscriber="c2/d",
    )
    world.post("root", "west", reserve)
    world.settle()
    world.cut.clear()
    world.rest()
    assert not any(isinstance(word, Reserve) and to != "west" for _, to, word in world.sent)
    assert sum(isinstance(word, NotReserved) and to == "root" for _, to, word in world.sent) == 1
    world.post("root", "west", Release(term=1, contract="c9#1", generation=0))
    world.settle()
    assert sum(isinstance(word, Released) and to == "root" for _, to, word in world.sent) == 1
    assert residue(world) == []


def test_a_root_that_has_lost_its_journal_gives_out_other_identifiers() -> None:
    world = two_clouds()
    before = lease(world, "c1", 1)
    root = world.brokers["root"]
    root.settings = replace(root.settings, term_min=2)
    root.written.clear()
    world.kill("root")
    world.rest()
    after = [*lease(world, "c1", 2), *lease(world, "c2", 1)]
    assert not set(before) & set(after)
    for is_snapshot in (False, True):
        if is_snapshot:
            root.written = root.machine.snapshot()
        world.kill("root")
        world.rest()
        assert lease(world, "c2", 1) == range(after[40], after[-1] + 1)


def test_a_root_gives_out_other_identifiers_though_its_first_write_fails() -> None:
    world = two_clouds()
    before = lease(world, "c1", 1)
    root = world.brokers["root"]
    root.settings = replace(root.settings, term_min=2)
    root.written.clear()
    world.fail_writes["root"] = {0}
    world.kill("root")
    world.rest()
    assert not set(before) & set(lease(world, "c1", 2))
