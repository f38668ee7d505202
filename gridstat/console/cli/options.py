"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        "-f",
        help="The folder of the cloud; else GRIDSTAT_FOLDER, else .gridstat here.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="The same as JSON.")]
Edges = Annotated[
    list[str] | None,
    typer.Option(
        "--edge",
        help="An edge router to attach to, by name; may be given twice. Else the first two.",
        show_default=False,
    ),
]
