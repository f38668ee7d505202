"""A tree of brokers as lines: who has joined, what each owns, and the channels between clouds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gridstat.console.live.grid_survey import GridSurvey

TOLD_OF_TREES = (
    "term",
    "depth",
    "contracts",
    "segments",
    "broken",
    "transactions",
    "releases",
    "children",
    "channels",
)
BRANCH, LAST, DOWN, BLANK = "├─ ", "└─ ", "│  ", "   "


def tree_lines(grid_survey: GridSurvey, parents: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the lines of the tree from the root down; silent brokers are drawn at their positions.

    `parents` is the tree in the folder; children that a parent reports count too.
    """
    above = dict(parents or {}) | _reported_parents(grid_survey)
    names = dict.fromkeys((*grid_survey.surveys, *grid_survey.away, *above))
    roots = [name for name in names if above.get(name, "") not in names]
    for name in roots:
        yield from _drawn(name, grid_survey, above, "", "")


def _reported_parents(grid_survey: GridSurvey) -> dict[str, str]:
    """Return the parents of brokers, as far as brokers that replied name their children."""
    return {
        child["name"]: facts["broker"]
        for facts in grid_survey.surveys.values()
        for child in facts.get("children", ())
    }


def _drawn(
    name: str, grid_survey: GridSurvey, above: Mapping[str, str], head: str, indent: str
) -> Iterator[str]:
    yield f"{head}{broker_text(name, grid_survey, above.get(name, ''))}"
    children = [child for child, parent in above.items() if parent == name]
    channels = grid_survey.surveys.get(name, {}).get("channels", ()) if children else ()
    bar = DOWN if children else BLANK
    for channel in channels:
        yield f"{indent}{bar}{channel_line(channel)}"
    for number, child in enumerate(children, start=1):
        is_last = number == len(children)
        branch, below = (LAST, BLANK) if is_last else (BRANCH, DOWN)
        yield from _drawn(child, grid_survey, above, indent + branch, indent + below)


def broker_text(name: str, grid_survey: GridSurvey, parent: str) -> str:
    """One broker in one line: where it stands, its state, and what it has."""
    facts = grid_survey.surveys.get(name)
    own_term = None if facts is None else facts["term"]
    joined = join_text(name, grid_survey.surveys.get(parent), own_term)
    if facts is None:
        reason = grid_survey.away.get(name, "the folder has no address of it")
        return f"{name}: AWAY, {reason}{f'; {joined}' if joined else ''}"
    place = f"depth {facts['depth']}, " if facts.get("depth") is not None else ""
    if "cloud" in facts:
        totals = facts["totals"]
        up = sum(router["is_up"] for router in facts["routers"])
        taken = counted(totals["subscriptions"], "subscription")
        has = f"{up} of {totals['routers']} routers up, {taken}"
        if totals.get("segments"):
            has += f", {counted(totals['segments'], 'segment', 'segments')}"
        kind = "cloud"
    else:
        has = f"{counted(facts['contracts'], 'contract')} owned"
        if facts["segments"]:
            has += f", {counted(facts['segments'], 'segment', 'segments')} for its parent"
        if facts["broken"]:
            has += f", {facts['broken']:,} of them impaired"
        open_count = facts["transactions"] + facts["releases"]
        if open_count:
            has += f", {open_count:,} being settled"
        kind = "broker" if parent else "root"
    state = f"{joined}; " if joined else ""
    return f"{name}: {kind}, {place}term {facts['term']}; {state}{has}"


def join_text(name: str, parent: Mapping[str, Any] | None, own_term: int | None) -> str:
    """Return the parent's state of the child, and whether it lags; empty if the parent did not
    reply."""
    for child in parent["children"] if parent is not None and "children" in parent else ():
        if child["name"] == name:
            is_behind = own_term is not None and child["term"] != own_term
            term = f", known at term {child['term']}" if is_behind else ""
            return f"{'joined' if child['is_joined'] else 'NOT JOINED'}{term}"
    return ""


def channel_line(channel: Mapping[str, Any]) -> str:
    """A channel between clouds, below the broker that owns it."""
    capacity = channel["bandwidth_bytes_per_s"]
    promised = f"{channel['promised_bytes_per_s']:,.0f} bytes/s promised"
    of = f" of {capacity:,}" if capacity else ", bandwidth undeclared"
    charge = channel.get("probe_bytes_per_s")  # A broker of the release before does not tell it.
    of += f", probes take {charge:,.0f}" if charge else ""
    state = "up" if channel["is_up"] else "DOWN"
    if not channel["is_open"]:
        state = "waiting for its routers"
    pressed = ", congested: admits nothing" if channel["is_pressed"] else ""
    carries = counted(channel["contracts"], "contract")
    head = f"{channel['channel']}: level {channel['level']}, {state}{pressed}"
    return f"{head}, {carries}, {promised}{of}"


def counted(count: int, what: str, several: str = "") -> str:
    """`1 contract`, `2,000 contracts`."""
    return f"{count:,} {what if count == 1 else several or f'{what}s'}"


def tree_facts(grid_survey: GridSurvey, parents: Mapping[str, str]) -> dict[str, Any]:
    """The same for programs: brokers, and why some have not answered."""
    above = dict(parents) | _reported_parents(grid_survey)
    return {
        "brokers": [
            {"name": name, "parent": above.get(name, ""), **_tree_facts_of(facts)}
            for name, facts in grid_survey.surveys.items()
        ],
        "away": [
            {"name": name, "parent": above.get(name, ""), "reason": reason}
            for name, reason in grid_survey.away.items()
        ],
    }


def _tree_facts_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about the tree; `gridstat top` shows a cloud's own routers and contracts."""
    is_leaf = "cloud" in facts
    keys = ("term", "depth", "totals") if is_leaf else TOLD_OF_TREES
    return {"kind": "leaf" if is_leaf else "qos", **{key: facts[key] for key in keys}}
