"""`gridstat find`: the variables that a pattern stands for, a page at a time if there are many."""

from __future__ import annotations

import json as json_text
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gridstat.console.access import load_access
from gridstat.console.cli.attaching import attached
from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.cli.options import COUNT_MAX, AsJson, Edges, EndPoint, Folder, Security
from gridstat.model.channel_security import HOP
from gridstat.model.cloud import is_pattern
from gridstat.model.errors import UnknownName

if TYPE_CHECKING:
    from gridstat.console.access import Access
    from gridstat.model.status import StatusVariable

HELP = """List the published variables that a pattern stands for, in the order of names.

Of a cloud with very many, --limit takes a page, and --after goes on behind its last name. A cloud
that the folder does not know is refused, with those that it knows.

Examples:

  gridstat find 'c1/*/*/frequency'

  gridstat find 'c1/**' --limit 100 --after c1/hill/pmu-1/frequency --json
"""


def find(
    pattern: Annotated[str, typer.Argument(help="A full name or a pattern (* one part, ** all).")],
    limit: Annotated[
        int, typer.Option("--limit", min=0, max=COUNT_MAX, help="At most so many; 0: all.")
    ] = 0,
    after: Annotated[str, typer.Option("--after", help="Only those behind this name.")] = "",
    end_point: EndPoint = "",
    edge: Edges = None,
    security: Security = HOP,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    access = load_access(folder)
    check_cloud_of(pattern, access)
    if edge is None:
        # A cloud knows its own variables, so the request goes to the cloud that the pattern names.
        access = access.beside(pattern.partition("/")[0])
    console = Console()
    with attached(access, end_point, edge, security) as grid:
        found = grid.find(pattern, after=after, limit=limit)
    for variable in found:
        print_plainly(console, line_of(variable, as_json=json))
    if limit and len(found) == limit and not json:
        print_plainly(console, f"perhaps more: --after {found[-1].name}")


def check_cloud_of(pattern: str, access: Access) -> None:
    """Refuse a pattern of a cloud that the folder does not know: no other one can answer it."""
    cloud = pattern.partition("/")[0]
    if not is_pattern(cloud) and cloud not in access.known_clouds:
        raise UnknownName(
            f"the folder {access.folder} knows no cloud {cloud}",
            hint=f"clouds it knows: {', '.join(access.known_clouds)}; "
            "another is listed as [[tree]] in its access.toml",
        )


def line_of(variable: StatusVariable, *, as_json: bool) -> str:
    """One variable: its name, its type, and how often it is published."""
    rhythm = "when it changes" if variable.period is None else f"every {variable.period}"
    if not as_json:
        return f"{variable.name} {variable.value_type.name.lower()} {rhythm}"
    facts = {
        "name": variable.name,
        "variable_id": variable.variable_id,
        "type": variable.value_type.name.lower(),
        "period": None if variable.period is None else str(variable.period),
        "is_alert": variable.is_alert,
    }
    return json_text.dumps(facts)
