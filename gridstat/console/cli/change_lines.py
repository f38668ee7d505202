"""A change as a line of a terminal, and as facts for a line of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from gridstat.endpoint.change import Change


def change_facts(change: Change) -> dict[str, Any]:
    """All of a change that JSON can hold; of the contract, its paths and which are down."""
    facts: dict[str, Any] = {
        "kind": str(change.kind),
        "subject": str(change.subject),
        "name": change.name,
        "at_ns": change.at_ns,
        "reason": change.reason,
        "code": change.code,
        "is_over": change.is_over,
    }
    if change.edges_left is not None:
        facts["edges_left"] = change.edges_left
    if change.policed:
        facts["policed"] = dict(change.policed)
    if change.contract is not None:
        facts["paths"] = [list(path.routers) for path in change.contract.paths]
        facts["paths_down"] = list(change.contract.paths_down or ())
    return facts


def change_text(change: Change) -> str:
    """`1718.250000 lowered subscription c1/a/v: path 2 is down` and the code, if there is one."""
    code = f" (code {change.code})" if change.code else ""
    # What others have written stays on its line.
    reason = "".join(each if each.isprintable() else "?" for each in change.reason)
    seconds = f"{change.at_ns / NS_PER_S:.6f}"
    return f"{seconds} {change.kind} {change.subject} {change.name}: {reason}{code}"
