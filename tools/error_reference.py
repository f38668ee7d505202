"""Write docs/reference/errors.md from the error tree; the tidy tests compare it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gridstat.model.error_index import all_errors, thesis_codes

if TYPE_CHECKING:
    from gridstat.model.errors import GridStatError

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "errors.md"
HEAD = """# Errors

Codes are stable, words may improve. `gridstat error CODE` explains one at the terminal and knows
the negative codes of the sources too. This page is written by `make fmt`.

| Code | Error | Meaning | What to do | Codes in the sources |
|---|---|---|---|---|
"""


def page() -> str:
    return HEAD + "".join(_entry(error) for error in all_errors() if error.code)


def _entry(error: type[GridStatError]) -> str:
    meaning = (error.__doc__ or "").splitlines()[0]
    sources = ", ".join(str(code).replace("-", "−") for code in thesis_codes(error))
    return f"| {error.code} | `{error.__name__}` | {meaning} | {error.remedy} | {sources} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
