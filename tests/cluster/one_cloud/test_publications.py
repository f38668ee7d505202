"""Registration of a publication: stored by the broker, found by any request, and never twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import VariableExists
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, Field, FieldKind, RecordType
from tests.cluster.one_cloud.cloud import EAST, WEST

if TYPE_CHECKING:
    from tests.cluster.one_cloud.cloud import Cloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
PHASOR = RecordType(
    "phasor", (Field("magnitude", FieldKind.FLOAT32), Field("angle", FieldKind.FLOAT32))
)


@pytest.mark.feature("S3-33")
def test_name_type_priority_and_publisher_are_stored_under_an_identifier_of_their_own(
    cloud: Cloud,
) -> None:
    """A variable's priority is whether it is an alert; that of a stream is in each contract."""
    publisher = cloud.connect("c1/registered/pmu", WEST)
    other = cloud.connect("c1/registered/pmu-2", WEST)
    reader = cloud.connect("c1/registered/desk", EAST)
    streams = [
        publisher.publish("phasor", PHASOR, rate=50),
        publisher.publish("closed", BuiltinType.BOOL, rate=1),
        publisher.publish_alert("alarm", BuiltinType.INT64, interval_s_min=1.0),
        other.publish("phasor", PHASOR, rate=25),
    ]
    expected = {
        "c1/registered/pmu/phasor": (PHASOR, Period(1, 50), False, "c1/registered/pmu"),
        "c1/registered/pmu/closed": (BuiltinType.BOOL, Period(1, 1), False, "c1/registered/pmu"),
        "c1/registered/pmu/alarm": (BuiltinType.INT64, None, True, "c1/registered/pmu"),
        "c1/registered/pmu-2/phasor": (PHASOR, Period(1, 25), False, "c1/registered/pmu-2"),
    }
    stored = {name: cloud.explain(name) for name in expected}
    found = {each.name: each for each in reader.find("c1/registered/**")}
    assert set(found) == set(expected)
    for name, (value_type, period, is_alert, owner) in expected.items():
        told = found[name]
        assert (told.value_type, told.period, told.is_alert) == (value_type, period, is_alert)
        assert stored[name]["publisher"] == owner
        assert stored[name]["variable"]["variable_id"] == told.variable_id
        assert stored[name]["variable"]["is_alert"] == is_alert
    numbers = {each.variable.variable_id for each in streams}
    assert len(numbers) == len(streams), "no two variables share an identifier"
    assert numbers == {each.variable_id for each in found.values()}

    with pytest.raises(VariableExists):
        publisher.publish("phasor", BuiltinType.FLOAT64, rate=10)
    assert cloud.explain("c1/registered/pmu/phasor") == stored["c1/registered/pmu/phasor"]
