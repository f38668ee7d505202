"""Two channels between the same two routers: two paths over both, and one of them is cut.

e0 ══ i0 ══ e2        two cables side by side
e1 ── i1 ── e3        routers that the tests do not use
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.console.cli.explain import explained
from gridstat.endpoint.options import qos
from gridstat.model.errors import RedundancyNotSatisfiable
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS
from lab.open_access import OPEN_TOML
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.cloud import ROUTERS, Cloud
from tests.cluster.one_cloud.second_cables import CABLE_HOST, SecondCables
from tests.cluster.one_cloud.streams import Stream
from tests.cluster.one_cloud.test_contracts import KEEP, Taken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gridstat.endpoint.subscriber import Subscription

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
FLOAT64 = BuiltinType.FLOAT64


def _channel(one: str, other: str, *lines: str) -> str:
    ends = f'[[channel]]\nfrom = "{one}"\nto = "{other}"\nboth_ways = true\n'
    return ends + "".join(f"{line}\n" for line in lines)


def cloud_text() -> str:
    routers = "".join(
        f'[[router]]\nname = "{name}"\nrole = "{"edge" if name[0] == "e" else "inner"}"\n'
        for name in ROUTERS
    )
    other_cable = (f'from_address = "{CABLE_HOST}"', f'to_address = "{CABLE_HOST}"')
    channels = "".join(
        _channel(*ends) + _channel(*ends, 'name = "other"', f'risks = ["{duct}"]', *other_cable)
        for ends, duct in ((("e0", "i0"), "duct-7"), (("i0", "e2"), "duct-8"))
    )
    channels += "".join(_channel(*ends) for ends in (("e1", "i1"), ("i1", "e3"), ("i1", "i0")))
    return f'cloud = "c1"\n{routers}{channels}{OPEN_TOML}'


@pytest.fixture(scope="module")
def cabled_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(tmp_path_factory.mktemp("parallel"), cloud_text()) as made:
        yield made


@pytest.fixture(scope="module")
def cables(cabled_cloud: Cloud) -> Iterator[SecondCables]:
    with SecondCables(6) as laid:
        _write_ports(cabled_cloud.folder, laid.ports)
        cabled_cloud.start()
        yield laid


@pytest.fixture
def cloud(cabled_cloud: Cloud) -> Iterator[Cloud]:
    """The same cloud; the end-points of a test leave with it."""
    yield cabled_cloud
    cabled_cloud.close_connections()


def _write_ports(folder: Path, ports: Sequence[int]) -> None:
    """Let three routers listen at ports of which second cables know."""
    for number, name in enumerate(("e0", "i0", "e2")):
        data, urgent = ports[2 * number : 2 * number + 2]
        file = folder / f"router-{name}.toml"
        lines = f"[listen]\ndata_port = {data}\nurgent_port = {urgent}\n"
        file.write_text(file.read_text().replace("[listen]\n", lines))


def labels(cloud: Cloud, subscription: Subscription) -> list[list[str]]:
    """The channels of each path of a contract."""
    known = {one["channel_id"]: one["label"] for one in cloud.survey()["channels"]}
    return [[known[number] for number in path.channel_ids] for path in subscription.contract.paths]


def test_two_paths_over_two_cables_between_the_same_routers_mask_the_cut_of_one(
    cloud: Cloud, cables: SecondCables
) -> None:
    publisher = cloud.connect("c1/twice/pmu", ("c1/e0",))
    subscriber = cloud.connect("c1/twice/desk", ("c1/e2",))
    stream = publisher.publish("value", FLOAT64, rate=60, delay_ms=DELAY_MS)
    with pytest.raises(RedundancyNotSatisfiable):
        subscriber.subscribe(stream.name, qos=qos(redundancy=3))
    subscription = subscriber.subscribe(stream.name, qos=qos(redundancy=2), keep_events=KEEP)
    contract = subscription.contract
    assert not contract.is_node_disjoint
    routers = ("c1/e0", "c1/i0", "c1/e2")
    assert [path.routers for path in contract.paths] == [routers, routers]
    first, second = labels(cloud, subscription)
    assert not set(first) & set(second)
    assert {*first, *second} == {
        f"{hop}{name}" for hop in ("c1/e0→c1/i0", "c1/i0→c1/e2") for name in ("", "#other")
    }
    told = "\n".join(explained(cloud.explain(stream.name)))
    assert "link-disjoint: they share a router, and no channel" in told
    assert "paths 1 and 2 share routers c1/e0, c1/i0, c1/e2\n" in told
    taken = Taken(subscription)
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(60))
        before = cables.passed
        eventually(lambda: None if cables.passed > before else "nothing comes by the other cable")
        cables.cut()
        eventually(lambda: _complaint_until_down(cloud))
        last = len(sending.sent)
        eventually(lambda: sending.complaint_below(last + 60))
    eventually(lambda: taken.complaint_without(set(sending.sent)))
    assert taken.slots == sorted(set(taken.slots)), "each slot once, in order"
    ledger = subscription.ledger()
    assert ledger.lost == 0


def _complaint_until_down(cloud: Cloud) -> str | None:
    down = {one["label"] for one in cloud.survey()["channels"] if not one["is_up"]}
    wanted = {"c1/e0→c1/i0#other", "c1/i0→c1/e2#other"}
    return None if wanted <= down else f"down are {down}"
