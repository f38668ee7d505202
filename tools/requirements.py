"""Print the requirements of pyproject.toml to build, run and develop gridstat, one a line.

So `make install` can fetch the tools before it compiles the core, and lint works without it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(project: Path) -> list[str]:
    tables = tomllib.loads(project.read_text(encoding="utf-8"))
    build: list[str] = tables["build-system"]["requires"]
    run: list[str] = tables["project"]["dependencies"]
    extras: dict[str, list[str]] = tables["project"]["optional-dependencies"]
    return sorted({*build, *run, *extras["dev"], *extras["postgres"], *extras["spark"]})


if __name__ == "__main__":
    print("\n".join(requirements(PROJECT)))
