"""`gridstat flood`: flood a variable in a broker's scope, stop that, or list what floods."""

from __future__ import annotations

import json as json_text
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from gridstat.console.access import load_access
from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.cli.options import AsJson, Folder, Operator
from gridstat.console.operator_session import ask_once
from gridstat.model.errors import Misuse
from gridstat.model.flooding import requested_modes
from gridstat.model.rate_law import EVERY_MAX
from gridstat.net.command.operator_messages import ListFlooding, RemoveFlooding, SetFlooding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.console.access import Access
    from gridstat.net.command.messages import OperatorCommand

ANSWER_S_MAX: Final = 60.0
"""Time for four levels of brokers to look a variable up, reserve and commit, even if each is
slow."""
HELP = """Flood a variable: every event of it to every router in a broker's scope, by every channel
there, ahead of all queues. It is admitted like any stream, or refused with the channel that is
full. A broker that stands higher floods all clouds below it, and wins where it disagrees with one
below. Subscribers keep their contracts, before, meanwhile and after.

Examples:

  gridstat flood c1/hill/pmu-1/frequency

  gridstat flood c1/hill/pmu-1/frequency --at root --every 10

  gridstat flood --stop c1/hill/pmu-1/frequency

  gridstat flood --list --json
"""


def flood(
    name: Annotated[str, typer.Argument(help="The variable's full name.")] = "",
    modes: Annotated[
        str,
        typer.Option(
            help="With --stop: end it in these modes only, as 2,3. No mode is defined yet."
        ),
    ] = "",
    every: Annotated[
        int, typer.Option(min=1, max=EVERY_MAX, help="Only every n-th slot of it.")
    ] = 1,
    at: Annotated[str, typer.Option(help="The broker to ask; else the variable's cloud's.")] = "",
    stop: Annotated[bool, typer.Option("--stop", help="No longer flood it.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List what floods.")] = False,
    folder: Folder = None,
    who: Operator = "",
    json: AsJson = False,
) -> None:
    command = command_of(name, mode_numbers(modes), every, is_stop=stop, is_list=listing)
    broker = broker_of(load_access(folder), name, at)
    if listing:
        facts = {"floods": all_floods(broker, who)}
    else:
        facts = ask_once(broker, command, ANSWER_S_MAX, who=who)
    console = Console()
    if json:
        print_plainly(console, json_text.dumps(facts))
        return
    for line in listed(facts) if listing else flood_lines(facts):
        print_plainly(console, line)


def all_floods(broker: Access, who: str = "") -> list[dict[str, Any]]:
    """Return all floods, page by page; an older broker sends all in one page."""
    floods: list[dict[str, Any]] = []
    after = ""
    while True:
        command = ListFlooding(request_id=0, after=after)
        facts = ask_once(broker, command, ANSWER_S_MAX, who=who)
        floods += facts["floods"]
        if facts.get("next", "") <= after:
            return floods
        after = facts["next"]


def command_of(
    name: str, modes: tuple[int, ...], every: int, *, is_stop: bool, is_list: bool
) -> OperatorCommand:
    if is_list:
        if is_stop:
            raise Misuse(
                "--list does not go with --stop",
                hint="gridstat flood --list, or gridstat flood --stop NAME",
            )
        if name:
            raise Misuse("--list takes no variable", hint="leave out the name, or --list")
        if modes or every != 1:
            raise Misuse(
                "--list takes neither --modes nor --every", hint="it lists all that floods"
            )
        return ListFlooding(request_id=0)
    if not name:
        raise Misuse("no variable is named", hint="gridstat flood NAME, or gridstat flood --list")
    if is_stop:
        if every != 1:
            raise Misuse(
                "--stop takes no --every: it ends all slots of a mode",
                hint="to flood fewer slots, ask again with --every, and without --stop",
            )
        return RemoveFlooding(request_id=0, name=name, modes=modes)
    return SetFlooding(request_id=0, name=name, modes=modes, every=every)


def mode_numbers(text: str) -> tuple[int, ...]:
    """`2,3` as numbers; raises `Misuse` for anything else."""
    try:
        return requested_modes(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise Misuse(f"modes {text!r} are not numbers", hint="as in --modes 2,3") from None


def broker_of(access: Access, name: str, at: str) -> Access:
    """Return access to the named broker, or else to the broker of the variable's cloud."""
    return access.at(at) if at else access.beside(name.partition("/")[0])


def flood_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield lines that say where and how a variable floods now."""
    if not facts["modes"]:
        yield f"{facts['name']} does not flood"
    for term in facts["modes"]:
        mode = "in all modes" if term["mode"] == 0 else f"in mode {term['mode']}"
        often = "every event" if term["every"] == 1 else f"one slot in {term['every']}"
        if not term.get("is_defined", True):  # A broker of the release before does not tell it.
            mode += " (not defined: it is never active, and can be stopped)"
        line = f"{facts['name']} floods {mode}, {often}, from depth {term['level']} down"
        if term["asked_by"] == "parent":
            line += ", as a broker above wants"
        yield line + (" instead of what was asked here" if term["overrides_operator"] else "")
    if facts.get("unconfirmed"):
        yield f"  not yet confirmed by {', '.join(facts['unconfirmed'])}"
    for child, why in sorted(facts.get("refusing", {}).items()):
        yield f"  refused by {child}: {why}"
    if facts.get("floodless"):
        yield f"  of a release that floods nothing: {', '.join(facts['floodless'])}"


def listed(facts: dict[str, Any]) -> Iterator[str]:
    if not facts["floods"]:
        yield "nothing floods"
    for each in facts["floods"]:
        yield from flood_lines(each)
