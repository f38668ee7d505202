"""Arrays between Python and the ends, without any socket."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gridstat.core.end_settings import ReceiverSpec, column
from gridstat.core.samples import SAMPLE, Sample
from gridstat.model.errors import LayoutError

if TYPE_CHECKING:
    from gridstat.core.end_settings import ReceiverSettings


def test_a_sample_is_32_bytes_without_a_gap() -> None:
    sizes = {name: SAMPLE[name].itemsize for name in SAMPLE.names or ()}
    assert SAMPLE.itemsize == sum(sizes.values()) == 32


def test_a_value_reads_as_an_integer_or_as_a_float() -> None:
    (word,) = struct.unpack("=q", struct.pack("=d", 49.98))
    assert Sample(1, 2, 3, 0, 0, 0, word).value_float == 49.98


def test_a_column_of_the_right_type_is_not_copied() -> None:
    values = np.arange(5, dtype=np.uint32)
    assert column("variable_ids", values, "u4") is values


def test_a_column_with_gaps_is_copied_together() -> None:
    found = column("values", np.arange(10, dtype=np.int64)[::2], "i8")
    assert found.flags.c_contiguous
    assert found.tolist() == [0, 2, 4, 6, 8]


def test_a_column_of_floats_may_hold_what_is_no_number() -> None:
    assert np.isnan(column("values", np.array([np.nan], np.float32), "i8")[0])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.array([-1]), "u8"),
        (np.array([2**32]), "u4"),
        (np.array([2**63], np.uint64), "i8"),
        (np.array([0.5]), "u4"),
        (np.array([["x"]]), "i8"),
        (np.zeros((2, 2)), "i8"),
        (np.array([1 + 2j]), "i8"),
    ],
)
def test_a_column_that_would_lose_something_is_refused(values: np.ndarray, kind: str) -> None:
    with pytest.raises(LayoutError, match="column must be one column of"):
        column("column", values, kind)


@pytest.mark.parametrize(
    "settings",
    [
        {"keep": "everything"},
        {"data_port": 65_536},
        {"urgent_port": -1},
        {"ring_events": 0},
        {"option_bytes": 2**31},
        {"variables_max": 2**25},
        {"ring_expiry_ns": -1},
    ],
)
def test_settings_out_of_bounds_are_refused_by_name(settings: ReceiverSettings) -> None:
    (name,) = settings
    with pytest.raises(LayoutError, match=name):
        ReceiverSpec(**settings)
