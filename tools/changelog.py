"""Collect the fragments in `changes/` into a section of CHANGELOG.md, and remove them.

    python tools/changelog.py 0.2.0 2027-03-01

Fragments of one kind stand in the order of their names. Without arguments the program prints what
would be collected and changes nothing.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
FRAGMENTS = ROOT / "changes"
KINDS = {
    "safety": "Safety and performance",
    "feature": "Features",
    "internal": "Internals",
}
FRAGMENT_NAME = re.compile(r"[a-z0-9-]+\.(safety|feature|internal)\.md")
FIRST_SECTION = re.compile(r"^## ", re.MULTILINE)
WIDTH = 100


def main(arguments: list[str]) -> int:
    if arguments and len(arguments) != 2:
        print("usage: python tools/changelog.py [VERSION DATE]", file=sys.stderr)
        return 2
    fragments = fragments_in(FRAGMENTS)
    if not fragments:
        print("error: there is no fragment in changes/", file=sys.stderr)
        return 1
    version, date = arguments or ("unreleased", "no date")
    section = section_of(version, date, fragments)
    if not arguments:
        print(section)
        return 0
    text = CHANGELOG.read_text(encoding="utf-8")
    CHANGELOG.write_text(with_section(text, section), encoding="utf-8")
    for path in fragments:
        path.unlink()
    print(f"{len(fragments)} fragments collected under {version}")
    return 0


def fragments_in(folder: Path) -> list[Path]:
    """Return the fragments of a folder; refuse files whose name has no kind."""
    found = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    misnamed = [path.name for path in found if not FRAGMENT_NAME.fullmatch(path.name)]
    if misnamed:
        raise SystemExit(f"error: the name of {misnamed[0]} says no kind: see changes/README.md")
    return found


def section_of(version: str, date: str, fragments: list[Path]) -> str:
    """Return the section of one version: a heading, then a list of changes under each kind."""
    lines = [f"## {version} ({date})", ""]
    for kind, title in KINDS.items():
        of_kind = [path for path in fragments if path.name.split(".")[1] == kind]
        if of_kind:
            lines += [f"### {title}", ""]
            lines += [_item(path.read_text(encoding="utf-8")) for path in of_kind]
            lines += [""]
    return "\n".join(lines)


def with_section(changelog: str, section: str) -> str:
    """Return the changelog with the section above those of earlier versions."""
    earlier = FIRST_SECTION.search(changelog)
    at = earlier.start() if earlier else len(changelog)
    before = changelog[:at].rstrip("\n") + "\n\n"
    return before + section + ("\n" + changelog[at:] if earlier else "")


def _item(text: str) -> str:
    return textwrap.fill(
        " ".join(text.split()),
        WIDTH,
        initial_indent="- ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
