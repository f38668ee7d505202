"""Write docs/adr/index.md from the head of each decision record; the tidy tests compare it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

RECORDS = Path(__file__).resolve().parent.parent / "docs" / "adr"
TITLE = re.compile(r"^# ADR-(\d{4}): (.+)$", re.MULTILINE)
PARTS = ["Context", "Decision", "Rejected", "Consequences"]
HEAD = """# Decisions

One page a decision: what made it necessary, what was decided, what was rejected and why, what
follows. This list is written by `make fmt`.

| Number | Decision | Status | Date |
|---|---|---|---|
"""


def index(records: Path) -> str:
    return HEAD + "".join(f"{_entry(path)}\n" for path in sorted(records.glob("ADR-*.md")))


def complaints(path: Path) -> list[str]:
    """Return the deviations of a record from the form that all records share."""
    text = path.read_text(encoding="utf-8")
    found = TITLE.search(text)
    if found is None or not path.name.startswith(f"ADR-{found[1]}-"):
        return [f"{path.name}: the title must read `# ADR-number: words`, as the file's name"]
    missing = [key for key in ("Date", "Status", "Revision") if _value(text, key) == ""]
    parts = re.findall(r"^## (.+)$", text, re.MULTILINE)
    return [
        *(f"{path.name}: the table at the head lacks {key}" for key in missing),
        *([f"{path.name}: the parts must be {PARTS}"] if parts != PARTS else []),
    ]


def _entry(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    found = TITLE.search(text)
    assert found is not None, f"{path.name} has no title"
    status, date = _value(text, "Status"), _value(text, "Date")
    return f"| [{found[1]}]({path.name}) | {found[2]} | {status} | {date} |"


def _value(text: str, key: str) -> str:
    found = re.search(rf"^\| {key} \| (.+?) \|$", text, re.MULTILINE)
    return found[1] if found else ""


if __name__ == "__main__":
    wrong = [
        complaint for path in sorted(RECORDS.glob("ADR-*.md")) for complaint in complaints(path)
    ]
    if wrong:
        sys.exit("\n".join(wrong))
    (RECORDS / "index.md").write_text(index(RECORDS), encoding="utf-8")
