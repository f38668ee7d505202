"""Interning of values that contracts have in common, in a cloud and in its neighbours."""

from __future__ import annotations

from benchmarks.tree_storms import TreeSubscribers
from gridstat.broker.capacity.charges import DivisorCounts
from gridstat.broker.interning import same, same_qos, same_quality
from gridstat.broker.leaf_broker import LeafBroker
from gridstat.model.qos import ModalQos, Qos, QosRequest
from lab.national_grid import GridSize, national_grid


def test_equal_values_become_one_object() -> None:
    def way() -> tuple[str, ...]:
        return tuple(f"c0/r{number}" for number in range(3))

    assert same(way()) is same(way())
    assert same(way()) == way()


def test_equal_qualities_become_one_object_and_others_stay_apart() -> None:
    quality = {0: Qos(every=1, latency_us=10, redundancy=1, priority=3)}
    assert same_quality(quality) is same_quality(dict(quality))
    assert same_quality(quality) == quality
    qos = ModalQos({0: QosRequest(every=2)})
    assert same_qos(qos) is same_qos(ModalQos({0: QosRequest(every=2)}))
    assert same_qos(qos) != same_qos(ModalQos({0: QosRequest(every=3)}))


def test_streams_that_are_taken_alike_share_what_is_known_of_them() -> None:
    one, other = DivisorCounts(), DivisorCounts()
    for counts in (one, other):
        assert counts.add({0: 2, 1: 3})
        assert not counts.add({0: 2})
    assert one.taken() is other.taken()
    assert not one.remove({0: 2})
    assert other.taken() == ((0, (2,)), (1, (3,)))
    assert one.remove({0: 2, 1: 3})
    assert not one
    assert other


def test_contracts_of_one_way_share_it_in_every_cloud() -> None:
    grid = national_grid(GridSize(2, 5, levels=2))
    subscribers = TreeSubscribers(grid, grid.plan.clouds)
    pair = ("c0", "c1")
    subscribers.publish([pair], 2)
    subscribers.subscribe(pair, 2)
    for cloud in pair:
        broker = subscribers.plane.brokers[f"broker/{cloud}"]
        assert isinstance(broker, LeafBroker)
        one, other = (found.record for found in broker.registry.subscriptions.values())
        assert one.paths is other.paths
        assert one.granted is other.granted
        ways = [
            found.granted.paths for found in broker.registry.tree.asked.values() if found.granted
        ]
        assert all(way is ways[0] for way in ways)
        assert len(ways) == (2 if cloud == "c1" else 0)
