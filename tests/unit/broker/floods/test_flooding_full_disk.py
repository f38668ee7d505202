"""A parent floods a cloud whose disk is full: it says so again when there is room."""

from __future__ import annotations

import pytest

from gridstat.model.errors import StorageFailed
from gridstat.model.flooding import FloodTerm
from gridstat.net.command.machine import Disconnected
from gridstat.net.command.router_messages import FloodOrder
from gridstat.net.command.tree_messages import CommitFlooding, FloodedVariable
from tests.unit.broker.floods.flooded_cloud import Parent, cloud_of, everywhere, floods_at, join

TERMS = {0: FloodTerm(0)}


@pytest.mark.parametrize("is_stop", [False, True])
def test_what_a_full_disk_did_not_take_is_heard_again_after_joining_anew(*, is_stop: bool) -> None:
    cloud = cloud_of(parent="root")
    parent = Parent(cloud)
    before: tuple[FloodedVariable, ...] = (parent.wants(1, TERMS),) if is_stop else ()
    after = parent.wants(2, {} if is_stop else TERMS)
    parent.says(CommitFlooding(term=1, flooded=before, is_whole=True))
    at_first = floods_at(cloud)
    cloud.is_disk_full = True
    parent.says(CommitFlooding(term=1, flooded=(after,)))
    assert floods_at(cloud) == at_first
    (closed,) = cloud.closed
    assert (closed.peer, closed.code) == ("broker/root", StorageFailed.code)
    cloud.is_disk_full = False
    cloud.tell(Disconnected("broker/root"))
    join(cloud)
    parent.says(CommitFlooding(term=1, flooded=() if is_stop else (after,), is_whole=True))
    floods = floods_at(cloud)
    assert floods != at_first
    assert is_stop or floods == everywhere(cloud, FloodOrder(level=0))
