"""Mistakes of users on a real cloud: each leads to one error with a code and a hint."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.connection_setup import connect
from gridstat.endpoint.options import qos
from gridstat.model.error_index import explain
from gridstat.model.errors import (
    CertificateRefused,
    GridStatError,
    LatencyNotSatisfiable,
    NoSuchVariable,
    NotAuthorised,
    RedundancyNotSatisfiable,
    TypeMismatch,
    VariableExists,
    WrongCloud,
)
from gridstat.model.status import BuiltinType
from gridstat.net.command.address import address_text
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Identity, Role
from tests.cluster.one_cloud.cloud import EAST, WEST

if TYPE_CHECKING:
    from tests.cluster.one_cloud.cloud import Cloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
FLOAT64 = BuiltinType.FLOAT64


def assert_told(error: GridStatError) -> None:
    """Check that an error has a code that can be explained, and a hint."""
    assert error.hint
    assert explain(error.code).startswith(str(error.code))


@pytest.mark.feature("S0-21", "S0-26", "S0-52")
def test_each_wrong_option_is_refused_with_its_own_code(cloud: Cloud) -> None:
    publisher = cloud.connect("c1/wrong/pmu", WEST)
    subscriber = cloud.connect("c1/wrong/desk", EAST)
    name = publisher.publish("value", FLOAT64, rate=60).name
    with pytest.raises(NoSuchVariable) as unknown:
        subscriber.subscribe("c1/wrong/pmu/nothing")
    with pytest.raises(TypeMismatch) as mistyped:
        subscriber.subscribe(name, value_type=BuiltinType.INT64)
    with pytest.raises(LatencyNotSatisfiable) as too_fast:
        subscriber.subscribe(name, qos=qos(latency_ms=0.001))
    with pytest.raises(RedundancyNotSatisfiable) as too_many:
        subscriber.subscribe(name, qos=qos(redundancy=4))
    with pytest.raises(VariableExists) as twice:
        publisher.publish("value", FLOAT64, rate=60)
    for raised in (unknown, mistyped, too_fast, too_many, twice):
        assert_told(raised.value)
    # Nothing is left of any of them, and a good wish is still granted.
    assert cloud.explain(name)["subscriptions"] == []
    assert subscriber.subscribe(name, qos=qos(redundancy=2)).contract.paths


@pytest.mark.feature("S0-142", "S3-47")
def test_a_certificate_of_another_authority_or_date_is_refused(
    cloud: Cloud, tmp_path_factory: pytest.TempPathFactory
) -> None:
    edge = f"{WEST[0]}@{address_text(cloud.access.edges[WEST[0]])}"
    identity = Identity(Role.ENDPOINT, "c1/foreign")
    foreign = CertificateFolder(tmp_path_factory.mktemp("foreign"))
    foreign.create_authority()
    foreign.issue(identity)
    own = cloud.access.certificates

    class Yesterday:
        """A clock by which a certificate of one day has long expired."""

        def steady_ns(self) -> int:
            return 0

        def posix_ns(self) -> int:
            past = datetime.now(tz=UTC) - timedelta(days=30)
            return int(past.timestamp()) * 1_000_000_000

    expired = Identity(Role.ENDPOINT, "c1/expired")
    CertificateFolder(own.path, Yesterday()).issue(expired, days=1, replace=True)
    for party, folder in ((identity, foreign), (expired, own)):
        with pytest.raises(CertificateRefused) as refused:
            connect(edge, party.name, certificates=folder.path, timeout_s=5.0)
        assert_told(refused.value)


@pytest.mark.feature("S0-144")
def test_an_end_point_of_another_cloud_is_refused_with_its_own_code(cloud: Cloud) -> None:
    cloud.access.files_of(Role.ENDPOINT, "c2/stray")
    edge = f"{WEST[0]}@{address_text(cloud.access.edges[WEST[0]])}"
    with pytest.raises(WrongCloud) as refused:
        connect(edge, "c2/stray", certificates=cloud.access.certificates.path, timeout_s=5.0)
    assert_told(refused.value)
    assert refused.value.code != NotAuthorised.code


@pytest.mark.feature("S0-142")
def test_an_end_point_at_the_brokers_own_door_is_refused_by_a_named_rule(cloud: Cloud) -> None:
    cloud.access.files_of(Role.ENDPOINT, "c1/lost")
    place = f"{WEST[0]}@{address_text(cloud.access.broker)}"
    with pytest.raises(NotAuthorised) as refused:
        connect(place, "c1/lost", certificates=cloud.access.certificates.path, timeout_s=5.0)
    assert_told(refused.value)
