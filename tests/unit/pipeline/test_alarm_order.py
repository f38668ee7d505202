"""Events of one variable in two overlapping streams: the same whatever order they come in."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pyarrow as pa

from gridstat.pipeline.alarm_rules import rules_from_text
from gridstat.pipeline.stages import alarm_evaluation
from gridstat.pipeline.stages.alarm_evaluation import Watched, WatchedVariable

RULES = rules_from_text(
    '[[rule]]\nname = "a"\nkind = "threshold"\nvariables = ["c1/a"]\nabove = 1\n', file="rules"
)
ROWS = [
    {"place": 0, "stream": 4, "created_ns": 10, "value": 2.0, "slot_ns": 400},
    {"place": 0, "stream": 3, "created_ns": 10, "value": 1.0, "slot_ns": 300},
    {"place": 0, "stream": 2, "created_ns": 10, "value": None, "slot_ns": 200},
    {"place": 0, "stream": 2, "created_ns": 11, "value": None, "slot_ns": 200},
]
SCHEMA = pa.schema(
    [
        ("place", pa.int32()),
        ("stream", pa.int32()),
        ("created_ns", pa.int64()),
        ("value", pa.float64()),
        ("slot_ns", pa.int64()),
    ]
)


def test_of_one_instant_the_event_of_the_lowest_stream_counts() -> None:
    variable = WatchedVariable("c1/a", (0,), ((0, 1 << 62),))
    seen = Watched(RULES, (variable,), (), (), 0)
    for order in permutations(ROWS):
        rows = pa.Table.from_pylist(list(order), schema=SCHEMA)
        ((_, columns),) = alarm_evaluation._by_variable(seen, rows)
        assert columns["stream"].tolist() == [3, 2]
        assert columns["slot_ns"].tolist() == [300, 200]
        assert np.isnan(columns["value"]).tolist() == [False, True]
