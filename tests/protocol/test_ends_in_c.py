"""Cases of the ends that only C can set up: they stand in `tests/sanitize/end_cases.c`.

`make sanitize` runs the same program under the sanitizers.
"""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "gridstat" / "core"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases, compiled with the core's sources."""
    made = tmp_path_factory.mktemp("end_cases") / "end_cases"
    compiler = sysconfig.get_config_var("CC").split()[0]
    sources = [ROOT / "tests" / "sanitize" / "end_cases.c", *sorted(CORE.glob("*.c"))]
    flags = ["-std=gnu11", "-pthread", f"-I{CORE}"]
    subprocess.run([compiler, *flags, "-o", made, *sources], check=True, timeout=50)
    return made


@pytest.mark.parametrize(
    "case",
    [
        "a_periodic_variable_is_heard_after_the_clock_is_set_back",
        "an_aperiodic_variable_forgets_by_the_steady_clock",
        "the_newest_value_follows_a_clock_that_is_set_back",
        "a_search_is_short_however_identifiers_are_leased",
        "an_unknown_variable_is_adopted_without_a_lock",
        "a_count_begun_by_other_terms_misses_nothing_below_one_step",
    ],
)
def test_the_ends_hold_in_c_that(program: Path, case: str) -> None:
    run = subprocess.run([program, case], capture_output=True, text=True, timeout=50, check=False)
    assert (run.stdout, run.stderr, run.returncode) == (f"{case}\n", "", 0)
