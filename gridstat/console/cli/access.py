"""`gridstat access`: rules on who may publish, subscribe, find and flood what."""

from __future__ import annotations

import json as json_text
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from gridstat.console.access import load_access
from gridstat.console.cli.command_errors import print_plainly, reporting_errors
from gridstat.console.cli.options import AsJson, Folder, Operator
from gridstat.console.fitted_table import FittedTable, print_table
from gridstat.console.live.problems import not_kept_text
from gridstat.console.operator_session import ask_once
from gridstat.model.access_rules import (
    ACTIONS,
    COUNT_MAX,
    DELAY_MS_DEFAULT,
    DELAY_MS_MAX,
    RESERVED_MAX,
    SESSIONS_MAX,
    AccessRule,
)
from gridstat.model.errors import Misuse
from gridstat.model.qos import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN
from gridstat.net.command.operator_messages import (
    GrantAccess,
    ListAccess,
    RevokeAccess,
    SetAccessMode,
    WhyAccess,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.console.access import Access
    from gridstat.net.command.messages import OperatorCommand

HELP = """Who may publish, subscribe, find and flood what, in a running cloud.

Nothing is allowed without a rule, of the broker's file or granted here; a change holds at once and
after a restart. A rule that is revoked ends what rests on it alone. Names and patterns are full (*
is one part, ** all below). A rule whose WHO is of another cloud lets that cloud's end-points read.

Examples:

  gridstat access list

  gridstat access grant desk --who c1/desk --may subscribe --may find --what 'c1/**'

  gridstat access why c1/desk subscribe c1/hill/pmu-1/frequency

  gridstat access why --observed

  gridstat access revoke desk

  gridstat access mode enforce
"""
ANSWER_S_MAX: Final = 30.0
_ACTIONS: Final = ", ".join(ACTIONS)
app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

At = Annotated[str, typer.Option("--at", metavar="CLOUD", help="The cloud whose rules are meant.")]
RuleName = Annotated[str, typer.Argument(help="The rule's name, one word.")]
Who = Annotated[str, typer.Option("--who", help="End-point: its certificate's name, or a pattern.")]
What = Annotated[str, typer.Option("--what", help="Variables: a full name, or a pattern.")]
May = Annotated[list[str], typer.Option("--may", help=f"{_ACTIONS}; may be given again.")]
Priority = Annotated[
    int,
    typer.Option(
        "--priority", min=PRIORITY_MIN, max=PRIORITY_MAX, help="Best priority; 1 is highest."
    ),
]
Reserved = Annotated[
    int | None,
    typer.Option(
        "--reserved-bytes-per-s",
        min=0,
        max=RESERVED_MAX,
        help="Most that one end-point may reserve by it.",
        show_default=False,
    ),
]
Owner = Annotated[
    bool, typer.Option("--owner", help="Keep the names below WHO for it, present or not.")
]
Exported = Annotated[bool, typer.Option("--exported", help="Also for end-points of other clouds.")]
DelayMs = Annotated[
    int, typer.Option("--delay-ms", min=1, max=DELAY_MS_MAX, help="How old its events may be.")
]
Share = Annotated[
    float | None,
    typer.Option(
        "--capacity-share",
        min=0.0,
        max=1.0,
        help="Quota: share of a channel.",
        show_default=False,
    ),
]
Commands = Annotated[
    int | None,
    typer.Option(
        "--commands-per-s", min=0, max=COUNT_MAX, help="Quota: requests.", show_default=False
    ),
]
Variables = Annotated[
    int | None,
    typer.Option(
        "--variables", min=0, max=COUNT_MAX, help="Quota: publications.", show_default=False
    ),
]
Subscriptions = Annotated[
    int | None,
    typer.Option(
        "--subscriptions", min=0, max=COUNT_MAX, help="Quota: contracts.", show_default=False
    ),
]
Sessions = Annotated[
    int | None,
    typer.Option(
        "--sessions", min=0, max=SESSIONS_MAX, help="Quota: sessions.", show_default=False
    ),
]
Preempt = Annotated[
    bool,
    typer.Option("--preempt", help="May end contracts of lower priorities, if the policy says so."),
]


@app.command("list", help="List the rules of a cloud, and whether they are enforced.")
@reporting_errors
def list_rules(
    at: At = "", folder: Folder = None, who: Operator = "", json: AsJson = False
) -> None:
    facts = all_rules(_broker(load_access(folder), at), who)
    console = Console()
    if json:
        print_plainly(console, json_text.dumps(facts))
        return
    print_plainly(console, mode_line(facts))
    if facts["rules"]:
        print_table(console, rule_table(facts["rules"]))


@app.command("grant", help="Grant a rule, or replace the one of its name; holds at once.")
@reporting_errors
def grant(
    name: RuleName,
    who_may: Who,
    what: What,
    may: May,
    priority: Priority = PRIORITY_DEFAULT,
    reserved: Reserved = None,
    owner: Owner = False,
    exported: Exported = False,
    delay_ms: DelayMs = DELAY_MS_DEFAULT,
    share: Share = None,
    commands: Commands = None,
    variables: Variables = None,
    subscriptions: Subscriptions = None,
    sessions: Sessions = None,
    preempt: Preempt = False,
    at: At = "",
    folder: Folder = None,
    who: Operator = "",
    json: AsJson = False,
) -> None:
    rule = AccessRule(
        identifier=name,
        who=who_may,
        may=tuple(may),
        what=what,
        priority_best=priority,
        reserved_bytes_per_s=reserved,
        is_owner=owner,
        is_exported=exported,
        delay_ms_max=delay_ms,
        capacity_share=share,
        commands_per_s=commands,
        variables=variables,
        subscriptions=subscriptions,
        sessions=sessions,
        may_preempt=preempt,
    )
    broker = _broker(load_access(folder), at)
    facts = _ask(broker, GrantAccess(request_id=0, rule=rule), who)
    _print_change(facts, f"granted {name} in cloud {broker.cloud}", is_json=json)


@app.command("revoke", help="Revoke a rule, and end what rests on it alone.")
@reporting_errors
def revoke(
    name: RuleName,
    at: At = "",
    folder: Folder = None,
    who: Operator = "",
    json: AsJson = False,
) -> None:
    broker = _broker(load_access(folder), at)
    facts = _ask(broker, RevokeAccess(request_id=0, identifier=name), who)
    _print_change(facts, f"revoked {name} in cloud {broker.cloud}", is_json=json)


@app.command("mode", help="Enforce the rules, or only observe what they would refuse.")
@reporting_errors
def set_mode(
    mode: Annotated[str, typer.Argument(help="enforce, or observe.")],
    at: At = "",
    folder: Folder = None,
    who: Operator = "",
    json: AsJson = False,
) -> None:
    if mode not in {"enforce", "observe"}:
        raise Misuse(f"{mode!r} is no mode of access", hint="enforce, or observe")
    broker = _broker(load_access(folder), at)
    facts = _ask(broker, SetAccessMode(request_id=0, is_enforced=mode == "enforce"), who)
    word = "enforces its rules" if mode == "enforce" else "only observes its rules"
    _print_change(facts, f"cloud {broker.cloud} {word}", is_json=json)


@app.command("why", help="Name the rule that allows something, or the one that would be needed.")
@reporting_errors
def why(
    subject: Annotated[
        str, typer.Argument(metavar="WHO", help="The end-point; operator/NAME for an operator.")
    ] = "",
    action: Annotated[str, typer.Argument(metavar="ACTION", help=f"One of {_ACTIONS}.")] = "",
    what: Annotated[str, typer.Argument(metavar="WHAT", help="The variable's full name.")] = "",
    priority: Annotated[
        int, typer.Option("--priority", min=0, max=PRIORITY_MAX, help="Priority; 0: any.")
    ] = 0,
    observed: Annotated[
        bool, typer.Option("--observed", help="List what a cloud that observes would refuse.")
    ] = False,
    at: At = "",
    folder: Folder = None,
    who: Operator = "",
    json: AsJson = False,
) -> None:
    access = load_access(folder)
    console = Console()
    if observed:
        if subject:
            raise Misuse("--observed takes no WHO", hint="gridstat access why --observed")
        facts = all_observed(_broker(access, at), who)
        if json:
            print_plainly(console, json_text.dumps(facts))
        else:
            for line in observed_lines(facts):
                print_plainly(console, line)
        return
    if not (subject and action and what):
        raise Misuse(
            "WHO, ACTION and WHAT are needed",
            hint="gridstat access why c1/desk subscribe c1/hill/pmu-1/frequency",
        )
    found = [
        _ask(broker, command, who)
        for broker, command in questions(access, subject, action, what, priority=priority, at=at)
    ]
    if json:
        facts = {"is_allowed": all(each["is_allowed"] for each in found), "clouds": found}
        print_plainly(console, json_text.dumps(facts))
        return
    for each in found:
        for line in why_lines(each):
            print_plainly(console, line)


def questions(
    access: Access, subject: str, action: str, what: str, *, priority: int, at: str
) -> list[tuple[Access, WhyAccess]]:
    """Return the brokers to ask: of the end-point's cloud, and of the variable's if it differs."""
    role, _, rest = subject.partition("/")
    is_operator = role == "operator" and "/" in rest
    name = rest if is_operator else subject
    command = WhyAccess(
        request_id=0,
        who=name,
        action=action,
        what=what,
        priority=priority,
        role="operator" if is_operator else "endpoint",
    )
    if at:
        return [(access.at(at), command)]
    clouds = dict.fromkeys((name.partition("/")[0], what.partition("/")[0]))
    known = [cloud for cloud in clouds if cloud in access.known_clouds]
    return [(access.beside(cloud), command) for cloud in known or [access.cloud]]


def all_rules(broker: Access, who: str = "") -> dict[str, Any]:
    """Return the rules of a cloud, all pages together."""
    rules: list[dict[str, Any]] = []
    after = ""
    while True:
        facts = _ask(broker, ListAccess(request_id=0, after=after), who)
        rules += facts["rules"]
        if facts["next"] <= after:
            return {**facts, "rules": rules, "next": ""}
        after = facts["next"]


def all_observed(broker: Access, who: str = "") -> dict[str, Any]:
    """Return all refusals that a cloud has kept and not carried out."""
    found: list[dict[str, Any]] = []
    skip = 0
    while True:
        facts = _ask(broker, WhyAccess(request_id=0, is_observed=True, skip=skip), who)
        found += facts["refusals_observed"]
        if facts["next"] <= skip:
            return {**facts, "refusals_observed": found, "next": 0}
        skip = facts["next"]


def mode_line(facts: dict[str, Any]) -> str:
    """Return one line on a cloud: how many rules it has, and whether they hold."""
    cloud, count = facts["cloud"], facts["rule_count"]
    rules = "1 rule" if count == 1 else f"{count:,} rules"
    if facts["mode"] == "observe":
        return (
            f"cloud {cloud} has {rules} and does NOT ENFORCE them; {facts['observed']:,} requests "
            "would have been refused since its start"
        )
    return f"cloud {cloud} enforces {rules}; {facts['refused']:,} requests were refused by them"


def rule_table(rules: list[dict[str, Any]]) -> FittedTable:
    """Return the rules as a table."""
    table = FittedTable("rule", "who", "may", "what", "priority", "from", "bounds")
    for rule in rules:
        bounds = [
            f"{key} {value}"
            for key, value in rule.items()
            if key not in {"name", "who", "may", "what", "priority_best", "from", "is_in_force"}
        ]
        table.add_row(
            rule["name"],
            rule["who"],
            ", ".join(rule["may"]),
            rule["what"],
            str(rule.get("priority_best", PRIORITY_DEFAULT)),
            rule["from"] if rule["is_in_force"] else f"{rule['from']}, REVOKED",
            ", ".join(bounds) or "-",
        )
    return table


def why_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield lines on one cloud's decision."""
    wish = f"{facts['who']} may {facts['action']} {facts['what']}"
    rule = facts["rule"]
    if facts["is_allowed"]:
        by = f"by rule {rule['name']}" if rule else facts["reason"]
        yield f"{facts['cloud']}: yes, {wish}: {by}"
        if facts.get("bound"):
            yield f"  {facts['bound']}"
        return
    yield f"{facts['cloud']}: no: {facts['reason']}"
    if facts["mode"] == "observe":
        yield "  (the cloud only observes, so it is allowed all the same)"
    yield f"  {facts['hint'].partition(', or writes')[0]}"
    yield "  or in its broker's file:"
    yield from (f"    {line}" for line in facts["needed"].splitlines())


def observed_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield lines on what would be refused, with the command that would allow each."""
    yield mode_line(facts)
    if lost := not_kept_text(facts):
        yield lost
        yield "  enforce only once you know what those want: ask their owners, or grant what is"
        yield "  listed here and look again after they have asked again"
    for each in facts["refusals_observed"]:
        yield f"{each['count']:,} times: {each['reason']}"
        yield f"  {each['command'] or each['hint']}"


def _broker(access: Access, at: str) -> Access:
    return access.at(at) if at else access


def _ask(broker: Access, command: OperatorCommand, who: str) -> dict[str, Any]:
    return ask_once(broker, command, ANSWER_S_MAX, who=who)


def _print_change(facts: dict[str, Any], text: str, *, is_json: bool) -> None:
    console = Console()
    if is_json:
        print_plainly(console, json_text.dumps(facts))
        return
    ended = facts["ended"]
    print_plainly(console, text)
    if ended:
        print_plainly(console, f"{ended:,} contracts or publications that rested on it have ended")
    if facts.get("note"):  # Brokers of an earlier release say none.
        print_plainly(console, facts["note"])
