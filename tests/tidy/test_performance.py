"""The page of figures says what the kept results say, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.performance import PAGE, RESULTS, page

if TYPE_CHECKING:
    from pathlib import Path


def test_the_page_is_generated_from_the_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(RESULTS)


def test_a_result_becomes_a_section_with_its_command(tmp_path: Path) -> None:
    (tmp_path / "hops.json").write_text('{"experiment": "hops", "r2": 0.99, "why": "x"}')
    told = page(tmp_path)
    assert "`gridstat experiment run hops --json`" in told
    assert "| `r2` | 0.99 |\n| `why` | x |" in told
