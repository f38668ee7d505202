"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from gridstat.model import channel_security
from gridstat.model.qos import LATENCY_US_MAX

US_PER_MS: Final = 1_000
LATENCY_MS_MAX: Final = LATENCY_US_MAX / US_PER_MS
SECONDS_MAX: Final = 10.0**8
"""Three years: nothing that is started by hand runs for longer, and every clock can hold it."""
COUNT_MAX: Final = 2**53
"""Largest count that an option takes; exact in JSON."""
PORT_MAX: Final = 65_535

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
EndPoint = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="NAME",
        help="The end-point's full name, as c1/me; else a free terminal: c1/terminal-1 to -8.",
        show_default=False,
    ),
]
Operator = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="NAME",
        help="The operator's name, as alice; else the name of this user.",
        show_default=False,
    ),
]
Edges = Annotated[
    list[str] | None,
    typer.Option(
        "--edge",
        help="An edge router to attach to, by name; may be given twice. Else the first two.",
        show_default=False,
    ),
]
Security = Annotated[
    channel_security.Security,
    typer.Option(
        "--security",
        help="Events to and from the edges: hop (sealed), or none (plain), as the edges' "
        "endpoint_security.",
    ),
]
