"""`gridstat tree`: the brokers of a tree, what each owns, and the channels between their clouds."""

from __future__ import annotations

import asyncio
import json as json_text
from typing import TYPE_CHECKING, Any

from rich.console import Console

from gridstat.console.access import load_access
from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.cli.options import AsJson, Folder, Operator
from gridstat.console.live.grid_survey import GridSurvey, reason_of, watched_brokers
from gridstat.console.live.tree_view import tree_facts, tree_lines
from gridstat.model.errors import CertificateRefused, LinkDown
from gridstat.net.command.messages import Survey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.console.access import Access
    from gridstat.model.errors import GridStatError

HELP = """Draw the tree: brokers from the root down with depth, term and whether they have joined,
the clouds, and below their owner the channels between clouds: state, level, what is promised.

Every broker that the folder tells of is asked; one that does not answer is drawn as AWAY, with the
reason; where a certificate is missing, with its file and the command that issues it. Only if none
answers the exit code is 1.

Examples:

  gridstat tree

  gridstat tree --json
"""


def tree(folder: Folder = None, who: Operator = "", json: AsJson = False) -> None:
    access = load_access(folder)
    surveys, errors = asyncio.run(_asked(access, who))
    if not surveys:
        raise no_answer(errors)
    grid_survey = GridSurvey(
        surveys, {name: reason_of(error) for name, error in errors.items()}, values={}
    )
    parents = {name: known.parent for name, known in access.tree.items() if known.parent}
    console = Console()
    if json:
        print_plainly(console, json_text.dumps(tree_facts(grid_survey, parents)))
        return
    for line in tree_lines(grid_survey, parents):
        print_plainly(console, line)


def no_answer(errors: Mapping[str, GridStatError]) -> GridStatError:
    """Return the reason why no broker has replied: missing certificates, or no broker runs."""
    reasons = "; ".join(f"{name}: {error.args[0]}" for name, error in errors.items())
    hints = [error.hint for error in errors.values() if isinstance(error, CertificateRefused)]
    if hints:
        return CertificateRefused(f"no broker answers: {reasons}", hint="; ".join(hints))
    return LinkDown(f"no broker answers: {reasons}", hint="start them: `gridstat broker FILE`")


async def _asked(
    access: Access, who: str
) -> tuple[dict[str, dict[str, Any]], dict[str, GridStatError]]:
    async with watched_brokers(access, who=who) as brokers:
        return await brokers.ask(Survey(request_id=0))
