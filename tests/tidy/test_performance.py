"""The page of figures says what the kept results say, and nothing else."""

from __future__ import annotations

import json
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
    assert "Missed bounds" not in told


def test_a_missed_bound_stands_on_the_page_with_its_reason(tmp_path: Path) -> None:
    figures = {"evp_packed_ratio": 1.7, "evp_packed_ratio_at_most": 1.5, "lost": 1}
    (tmp_path / "sealing.json").write_text(json.dumps(figures | {"lost_at_most": 0}))
    told = page(tmp_path)
    assert "- `evp_packed_ratio` is 1.7, at most 1.5 allowed. OpenSSL takes some" in told
    assert "- `lost` is 1, at most 0 allowed. Nobody has said why." in told
