"""Cases of the ends that only C can set up: they stand in `tests/sanitize/end_cases.c`.

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
    return compiled("end_cases", tmp_path_factory.mktemp("end_cases"))


@pytest.mark.parametrize(
    "case",
    [
        "a_periodic_variable_is_heard_after_the_clock_is_set_back",
        "an_aperiodic_variable_forgets_by_the_steady_clock",
        "a_stall_costs_no_event_of_a_sparse_stream",
        "the_newest_value_follows_a_clock_that_is_set_back",
        "a_search_is_short_however_identifiers_are_leased",
        "an_unknown_variable_is_adopted_without_a_lock",
        "a_count_begun_by_other_terms_misses_nothing_below_one_step",
    ],
)
def test_the_ends_hold_in_c_that(program: Path, case: str) -> None:
    assert run_case(program, case) == (f"{case}\n", "", 0)
