"""Cases of a running core that only C can set up: they stand in `tests/sanitize/loop_cases.c`.

`make sanitize` runs the same program under the sanitizers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.protocol.programs import compiled, run_case

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("loop_cases", tmp_path_factory.mktemp("loop_cases"))


@pytest.mark.parametrize(
    "case",
    [
        "a_paced_line_is_free_in_time_though_the_wall_clock_is_set_in_a_call",
        "a_port_with_nothing_but_rejected_datagrams_is_polled",
        "polling_ends_when_nothing_is_rejected_any_more",
        "polling_leaves_time_for_others",
        "a_single_processor_is_never_polled_away",
        "a_flood_is_drained_without_a_rest",
        "the_urgent_port_never_rests",
        "a_stall_costs_no_event_of_a_sparse_stream",
    ],
)
def test_a_core_holds_in_c_that(program: Path, case: str) -> None:
    assert run_case(program, case) == (f"{case}\n", "", 0)
