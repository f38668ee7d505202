"""A broker whose journal is lost: end-points that wait are sent for, and no number comes again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gridstat.broker.settings import BrokerSettings
from gridstat.net.command.machine import Connected
from gridstat.net.command.session_messages import Hello
from lab.open_access import with_open_access
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, CLOUD, PMU, VOLTAGE

if TYPE_CHECKING:
    from gridstat.broker.records.registry import Publication

LOST_TERM = 1


def begun_anew(cloud: Conversation, *, term_min: int = LOST_TERM + 1) -> Conversation:
    """Start another broker with an empty journal, as an operator does who has lost the first."""
    cloud.settings = with_open_access(BrokerSettings(CLOUD, term_min=term_min))
    cloud.journal.clear()
    cloud.kill_broker()
    cloud.carry_out(cloud.broker.start(cloud.now_ns))
    return cloud


def report(cloud: Conversation, edge: str, *attached: str, term: int = LOST_TERM) -> None:
    router = cloud.routers[edge]
    router.is_connected = True
    router.attached = set(attached)
    hello = Hello(role="router", name=edge, instance=router.instance)
    cloud.tell(Connected(router.peer, hello))
    cloud.hear(edge, msgspec.structs.replace(router.report(), term=term))


def publication(cloud: Conversation) -> Publication:
    return cloud.broker.registry.publications[VOLTAGE]


def test_an_end_point_of_the_lost_journal_is_sent_away_and_attaches_anew() -> None:
    cloud = begun_anew(pair())
    report(cloud, "c1/e2", CENTRE)
    assert cloud.detached == [("c1/e2", CENTRE)]


def test_a_broker_started_again_still_knows_which_terms_were_lost() -> None:
    for is_compacted in (False, True):
        cloud = begun_anew(pair())
        if is_compacted:
            cloud.journal = cloud.broker.snapshot()
        cloud.kill_broker()
        cloud.carry_out(cloud.broker.start(cloud.now_ns))
        report(cloud, "c1/e2", CENTRE)
        assert cloud.detached == [("c1/e2", CENTRE)]


def test_a_newcomer_at_an_edge_that_has_obeyed_this_journal_is_not_sent_away() -> None:
    cloud = begun_anew(pair())
    for term in (0, LOST_TERM + 1):
        report(cloud, "c1/e2", CENTRE, term=term)
        cloud.disconnect("c1/e2")
    assert cloud.detached == []


def test_an_end_point_that_has_attached_to_the_new_journal_is_not_sent_away() -> None:
    cloud = begun_anew(pair())
    report(cloud, "c1/e2")
    cloud.attach(CENTRE, "c1/e2")
    cloud.disconnect("c1/e2")
    report(cloud, "c1/e2", CENTRE, term=LOST_TERM + 1)
    assert cloud.detached == []


def test_an_end_point_that_attached_elsewhere_meanwhile_attaches_anew_to_its_other_edge() -> None:
    cloud = begun_anew(pair())
    report(cloud, "c1/e2")
    cloud.attach(CENTRE, "c1/e2")
    report(cloud, "c1/e3", CENTRE)
    assert cloud.detached == [("c1/e3", CENTRE)]


def test_an_end_point_that_an_old_copy_does_not_know_is_sent_away() -> None:
    cloud = pair()
    copy = [*cloud.journal]
    cloud.attach("c1/late", "c1/e2")
    cloud.kill_broker()
    cloud.start()
    begun_anew(cloud, term_min=LOST_TERM + 2)
    cloud.journal[:] = copy
    cloud.kill_broker()
    cloud.carry_out(cloud.broker.start(cloud.now_ns))
    report(cloud, "c1/e2", "c1/late", term=LOST_TERM + 1)
    assert ("c1/e2", "c1/late") in cloud.detached


def test_no_number_of_the_lost_journal_comes_again() -> None:
    """A router that is cut off still forwards the old variables, by the old contracts."""
    cloud = pair()
    cloud.publish(VOLTAGE, "c1/e0")
    contract = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    variable_id = publication(cloud).variable.variable_id
    begun_anew(cloud)
    for name in cloud.routers:
        report(cloud, name)
    for name, edges in ((PMU, ("c1/e0", "c1/e1")), (CENTRE, ("c1/e2", "c1/e3"))):
        for edge in edges:
            cloud.attach(name, edge)
    cloud.publish(VOLTAGE, "c1/e0")
    again = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    assert publication(cloud).variable.variable_id != variable_id
    assert again.subscription_id != contract.subscription_id


def test_numbers_go_on_where_they_were_after_a_restart_and_after_a_snapshot() -> None:
    cloud = begun_anew(pair())
    registry = cloud.broker.registry
    for is_compacted in (False, True):
        before = registry.variable_id_last, registry.subscription_id_last
        if is_compacted:
            cloud.journal = cloud.broker.snapshot()
        cloud.kill_broker()
        cloud.carry_out(cloud.broker.start(cloud.now_ns))
        registry = cloud.broker.registry
        assert (registry.variable_id_last, registry.subscription_id_last) == before
        assert registry.variable_id_first == before[0] + 1


def test_a_cloud_with_a_parent_leases_its_identifiers_and_counts_none() -> None:
    settings = BrokerSettings(CLOUD, term_min=7, parent="root")
    cloud = Conversation(settings=settings).start()
    assert cloud.broker.registry.variable_id_last == 0
    assert cloud.broker.registry.subscription_id_last > 0


def test_what_was_lost_is_written_once_the_disk_has_room() -> None:
    cloud = pair()
    cloud.is_disk_full = True
    begun_anew(cloud)
    cloud.settle()
    cloud.is_disk_full = False
    cloud.advance(cloud.settings.retry_after_ns)
    cloud.kill_broker()
    cloud.carry_out(cloud.broker.start(cloud.now_ns))
    assert cloud.broker.registry.is_lost(LOST_TERM)
    assert cloud.broker.registry.variable_id_last > 0
