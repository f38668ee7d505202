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
