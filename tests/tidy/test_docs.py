"""The docs hold together: short README, links that lead somewhere, an index that is current."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.tidy.source import ROOT, assert_none, lines_of, text_files, write_sample
from tools import adr_index

if TYPE_CHECKING:
    from pathlib import Path

README_LINES_MAX = 80
STYLE_LINES_MAX = 120
"""Two printed pages."""

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
WORKPLACE = re.compile(
    "|".join(
        [
            r"(?<![\w.])/" + r"work/",
            r"(?<![\w.])(?:\.\./)?shared" + r"/",
            r"(?<![\w.])/opt/" + r"(?:pypi|wheels)",
            r"(?:pypi|pythonhosted|test\.pypi|anaconda|npmjs|crates|docker)"
            + r"\.(?:org|io|com)\b",
            r"\bissues? " + r"show\b",
        ]
    )
)
"""Signs of the place where it was written, which mean nothing to who reads it elsewhere."""


def broken_links(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)} links to {target}"
        for path in text_files(root, ".md")
        for target in LINK.findall(FENCE.sub("", path.read_text(encoding="utf-8")))
        if not target.startswith(("http://", "https://", "mailto:"))
        and not _leads_somewhere(path, target)
    ]


def traces_of_a_workplace(root: Path) -> list[str]:
    suffixes = ("", ".c", ".cfg", ".h", ".md", ".py", ".pyi", ".pyx", ".sh", ".toml", ".yaml")
    return [
        f"{path.relative_to(root)}:{number} {line.strip()}"
        for path in [*text_files(root, *suffixes), *sorted((root / ".ci").glob("*"))]
        for number, line in enumerate(lines_of(path), start=1)
        if WORKPLACE.search(line)
    ]


def _leads_somewhere(path: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = path.parent / name if name else path
    if not file.exists():
        return False
    return not anchor or anchor in _anchors(file)


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_fits_on_a_screen_and_a_half() -> None:
    assert len(lines_of(ROOT / "README.md")) <= README_LINES_MAX


def test_the_style_page_has_two_pages() -> None:
    assert len(lines_of(ROOT / "docs" / "style.md")) <= STYLE_LINES_MAX


def test_every_link_leads_somewhere() -> None:
    assert_none(broken_links(ROOT))


def test_nothing_names_the_place_where_it_was_written() -> None:
    assert_none(traces_of_a_workplace(ROOT))


def test_every_decision_has_the_one_form() -> None:
    records = sorted(adr_index.RECORDS.glob("ADR-*.md"))
    assert_none([complaint for path in records for complaint in adr_index.complaints(path)])


def test_the_index_of_decisions_is_current() -> None:
    written = (adr_index.RECORDS / "index.md").read_text(encoding="utf-8")
    assert written == adr_index.index(adr_index.RECORDS), "run `make fmt`"


@pytest.mark.parametrize("target", ["gone.md", "b.md#no-such-part", "#nor-this"])
def test_a_link_into_nothing_is_found(tmp_path: Path, target: str) -> None:
    write_sample(tmp_path, "docs/b.md", "# There is this part\n")
    write_sample(tmp_path, "docs/a.md", f"[word]({target})\n")
    assert broken_links(tmp_path) == [f"docs/a.md links to {target}"]


def test_a_link_to_a_part_of_a_page_passes(tmp_path: Path) -> None:
    write_sample(tmp_path, "docs/b.md", "# Part one: `this`\n")
    write_sample(tmp_path, "docs/a.md", "[word](b.md#part-one-this)\n```\n[code](x)\n```\n")
    assert broken_links(tmp_path) == []


@pytest.mark.parametrize("text", ["see /work" + "/main", "in shared" + "/x.md", "pypi" + ".org"])
def test_a_trace_of_a_workplace_is_found(tmp_path: Path, text: str) -> None:
    write_sample(tmp_path, "docs/a.md", f"{text}\n")
    assert len(traces_of_a_workplace(tmp_path)) == 1


def test_a_record_without_status_is_found(tmp_path: Path) -> None:
    parts = "".join(f"## {part}\n" for part in adr_index.PARTS)
    text = f"# ADR-0001: Words\n\n| Date | 2020-01-01 |\n| Revision | 1 |\n\n{parts}"
    path = write_sample(tmp_path, "ADR-0001-words.md", text)
    assert adr_index.complaints(path) == ["ADR-0001-words.md: the table at the head lacks Status"]


def test_a_record_with_a_part_missing_is_found(tmp_path: Path) -> None:
    head = "# ADR-0001: Words\n\n| Date | 2020-01-01 |\n| Status | accepted |\n| Revision | 1 |\n"
    path = write_sample(tmp_path, "ADR-0001-words.md", f"{head}\n## Context\n")
    assert len(adr_index.complaints(path)) == 1
