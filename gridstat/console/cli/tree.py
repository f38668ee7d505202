"""`gridstat tree`: the brokers of a tree, what each owns, and the channels between their clouds."""

from __future__ import annotations

import asyncio
import json as json_text
from typing import TYPE_CHECKING

from rich.console import Console

from gridstat.console.access import load_access
from gridstat.console.cli.failure import print_plainly
from gridstat.console.cli.options import AsJson, Folder
from gridstat.console.live.sight import Sight, watched_brokers
from gridstat.console.live.tree_view import tree_facts, tree_lines
from gridstat.model.errors import LinkDown

if TYPE_CHECKING:
    from gridstat.console.access import Access

HELP = """Draw the tree: brokers from the root down with depth, term and whether they have joined,
the clouds, and below their owner the channels between clouds: state, level, what is promised.

Every broker that the folder tells of is asked; one that does not answer is drawn as AWAY, with the
reason. Only if none answers the exit code is 1.

Examples:

  gridstat tree

  gridstat tree --json
"""


def tree(folder: Folder = None, json: AsJson = False) -> None:
    access = load_access(folder)
    sight = asyncio.run(_seen(access))
    if not sight.surveys:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in sight.away.items())
        raise LinkDown(f"no broker answers: {reasons}", hint="start them: `gridstat broker FILE`")
    parents = {name: known.parent for name, known in access.tree.items() if known.parent}
    console = Console()
    if json:
        print_plainly(console, json_text.dumps(tree_facts(sight, parents)))
        return
    for line in tree_lines(sight, parents):
        print_plainly(console, line)


async def _seen(access: Access) -> Sight:
    async with watched_brokers(access) as brokers:
        surveys, away = await brokers.survey()
    return Sight(surveys, away, values={})
