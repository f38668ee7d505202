"""`gridstat find`: how a variable is listed."""

from __future__ import annotations

import json
from dataclasses import replace

from gridstat.console.cli.find import line_of
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable

VOLTAGE = StatusVariable(VariableId(7), "c1/pmu/voltage", BuiltinType.FLOAT64, Period(1, 30))


def test_a_line_names_the_variable_its_type_and_its_rhythm() -> None:
    assert line_of(VOLTAGE, as_json=False) == "c1/pmu/voltage float64 every 1/30 s"
    tap = replace(VOLTAGE, period=None, interval_ns_min=1, is_alert=True)
    assert line_of(tap, as_json=False) == "c1/pmu/voltage float64 when it changes"


def test_a_line_of_json_holds_the_same_and_the_identifier() -> None:
    assert json.loads(line_of(VOLTAGE, as_json=True)) == {
        "name": "c1/pmu/voltage",
        "variable_id": 7,
        "type": "float64",
        "period": "1/30 s",
        "is_alert": False,
    }
