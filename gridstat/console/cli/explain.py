"""`gridstat explain`: who publishes a variable, who takes it, by which paths, and what is tight."""

from __future__ import annotations

import asyncio
import json as json_text
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.console import Console

from gridstat.console.access import load_access
from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.cli.figures import milliseconds
from gridstat.console.cli.options import AsJson, Folder, Operator
from gridstat.console.live.grid_survey import reason_of, watched_brokers
from gridstat.model.channel_security import NONE
from gridstat.model.errors import NoSuchVariable
from gridstat.model.path_label import path_text
from gridstat.net.command.messages import Explain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.console.access import Access
    from gridstat.model.errors import GridStatError

HELP = """Explain a variable: its publisher, its subscriptions, their paths, latency hop by hop,
what came by each path and what it lost, what was granted of what was desired, and the tightest
channel or router on the way. Of a contract between clouds it shows every segment and its owner;
for that all leaf brokers are asked of which the folder tells.

Examples:

  gridstat explain c1/hill/pmu-1/frequency

  gridstat explain c1/hill/pmu-1/frequency --json
"""
BETWEEN_CLOUDS = 1 << 31
"""Channels with such numbers belong to brokers above clouds."""
Channels: TypeAlias = "dict[tuple[str, int], dict[str, Any]]"
"""Facts of channels by their cloud (none: between clouds) and number."""
PLAIN = "NOT SEALED"
"""Mark of channels whose datagrams anybody can read and forge; such lines are red."""
PATH_COUNTS_SHOWN = ("expected", "delivered", "first", "late", "lost")


def explain(
    variable: Annotated[str, typer.Argument(help="The variable's full name.")],
    folder: Folder = None,
    who: Operator = "",
    json: AsJson = False,
) -> None:
    facts = asyncio.run(_asked(load_access(folder), variable, who))
    console = Console()
    if json:
        print_plainly(console, json_text.dumps(facts))
        return
    for line in explained(facts):
        print_plainly(console, line, style="red" if PLAIN in line else "")


async def _asked(access: Access, variable: str, who: str) -> dict[str, Any]:
    """Return the reply of the variable's own cloud, and in `elsewhere` the replies of the other
    clouds."""
    own = access.beside(variable.partition("/")[0]).cloud
    others = [name for name, known in access.tree.items() if known.name_service and name != own]
    async with watched_brokers(access, [own, *others], who) as brokers:
        found, away = await brokers.ask(Explain(request_id=0, name=variable))
    silent = {name: reason_of(error) for name, error in away.items() if _is_silent(error)}
    if not found:
        raise away[own]
    facts = found.pop(own, None) or found.pop(next(iter(found)))
    return facts | {"elsewhere": list(found.values()), "silent": silent}


def _is_silent(error: GridStatError) -> bool:
    """A broker that knows nothing of the variable has answered."""
    return not isinstance(error, NoSuchVariable)


def explained(facts: dict[str, Any]) -> Iterator[str]:
    """The facts in lines for a person."""
    variable = facts["variable"]
    if variable is not None:
        yield f"{facts['name']} is variable {variable['variable_id']}, {described(variable)}"
    if facts["publisher"]:
        yield f"  published by {facts['publisher']} at {', '.join(facts['edges'])}"
    replies = [facts, *facts.get("elsewhere", ())]
    subscriptions = [one for found in replies for one in found["subscriptions"]]
    channels = known_channels(replies)
    whole = {one["contract"] for one in subscriptions if "contract" in one}
    gather_lowered(subscriptions)
    if not subscriptions:
        yield "  no end-point has subscribed to it"
    for subscription in subscriptions:
        segment = subscription.get("segment")
        if segment is None:
            yield from explained_subscription(subscription, channels)
        elif segment["contract"] not in whole:
            yield from explained_segment(segment, subscription["paths"])
    for channel in (one for found in replies for one in found["channels"]):
        yield f"  channel {channel_text(channel)}"
    for name, reason in facts.get("silent", {}).items():
        yield f"  cloud {name} does not answer, and may take it too: {reason}"


def gather_lowered(subscriptions: list[dict[str, Any]]) -> None:
    """Tell each contract between clouds what its segments have lowered in other clouds."""
    whole = {one["contract"]: one for one in subscriptions if "contract" in one}
    for one in subscriptions:
        contract = whole.get(one["segment"]["contract"]) if one.get("segment") else None
        if contract is not None:
            known = contract.setdefault("lowered", [])
            known += [found for found in one.get("lowered", ()) if found not in known]


def explained_segment(segment: dict[str, Any], paths: list[dict[str, Any]]) -> Iterator[str]:
    """Yield lines about a segment whose contract is unknown: the subscriber's cloud has not
    replied."""
    yield f"  a segment of contract {segment['contract']} ({segment['stage']})"
    for number, path in enumerate(paths, start=1):
        yield f"    path {number}: {way_text(path)}"


def known_channels(replies: Iterable[dict[str, Any]]) -> Channels:
    """Return the channels that the clouds tell of; a broker of an earlier release tells less."""
    found: Channels = {}
    for reply in replies:
        for channel in reply["channels"]:
            found[reply.get("cloud", ""), channel["channel_id"]] = channel
        for channel in reply.get("borders", ()):
            found["", channel["channel_id"]] = channel
    return found


def channels_of(piece: dict[str, Any], channels: Channels) -> list[dict[str, Any]]:
    """Return what is known of the channels of a part of a path."""
    found = (
        channels.get(("" if number >= BETWEEN_CLOUDS else piece["owner"], number))
        for number in piece["channel_ids"]
    )
    return [channel for channel in found if channel is not None]


def piece_text(piece: dict[str, Any], channels: Channels) -> str:
    """A part of a path between clouds: routers of one cloud, or a channel between two."""
    is_between = any(number >= BETWEEN_CLOUDS for number in piece["channel_ids"])
    what = f"channel of {piece['owner']}" if is_between else f"segment of {piece['owner']}"
    way = way_text(piece)
    if is_between and (known := channels_of(piece, channels)):
        way = ", ".join(str(channel["label"]).replace("→", " → ") for channel in known)
    return f"{what}: {way}, {milliseconds(piece['latency_us'])}"


def way_text(path: dict[str, Any]) -> str:
    """The routers of a path, and between them the names of the channels that have one."""
    return path_text(path["routers"], path.get("channel_names", ()))


def explained_subscription(
    subscription: dict[str, Any], channels: Channels | None = None
) -> Iterator[str]:
    channels = channels or {}
    state = subscription["state"]
    if "contract" in subscription:
        owner = subscription["owner"]
        state += f", contract {subscription['contract']}{f' of {owner}' if owner else ''}"
    yield f"  taken by {subscription['subscriber']} ({state})"
    ledger = subscription.get("ledger")  # A broker of the release before does not tell it.
    for mode, qos in sorted(subscription["granted"].items(), key=lambda item: int(item[0])):
        when = "always" if int(mode) == 0 else f"in mode {mode}"
        yield (
            f"    {when}: every {qos['every']}. slot within {milliseconds(qos['latency_us'])} over "
            f"{qos['redundancy']} disjoint path(s), priority {qos['priority']}"
        )
    if not subscription.get("is_node_disjoint", True):
        yield "    its paths are link-disjoint: they share a router, and no channel"
    yield from shared_texts(subscription.get("shared") or shared_between(subscription, channels))
    yield from band_texts(subscription)
    if "detection_ms" in subscription:
        yield f"    {detection_text(subscription['detection_ms'])}"
    for hop in subscription.get("plain", ()):  # A broker of the release before does not tell it.
        yield f"    {hop} is {PLAIN} (security none)"
    for number, path in enumerate(subscription["paths"], start=1):
        yield f"    path {number}: {way_text(path)}, predicted {milliseconds(path['latency_us'])}"
        yield from counted_on(path, ledger)
        for piece in path.get("pieces", ()):
            yield f"      {piece_text(piece, channels)}"
        for part in path.get("parts", ()):
            yield f"      {part['what']}: {milliseconds(part['latency_us'])}"
    yield from left_paths(ledger)
    for text in subscription.get("degraded", ()):
        yield f"    note: {text}"
    tight = subscription.get("bottleneck")
    if tight:
        share = 100 * tight["used"] / tight["capacity"] if tight["capacity"] else 0.0
        yield f"    tightest: {tight['what']}, {share:.1f} % promised"


def shared_between(subscription: dict[str, Any], channels: Channels) -> list[dict[str, Any]]:
    """Return what each two paths between clouds share, as far as their clouds tell of it."""
    paths = [path for path in subscription["paths"] if "pieces" in path]
    found = []
    for (one, first), (other, second) in combinations(enumerate(paths, start=1), 2):
        routers = [name for name in first["routers"] if name in second["routers"]]
        links, risks = (
            sorted(of(first, channels) & of(second, channels)) for of in (_links, _risks)
        )
        if routers or links or risks:
            shared = {"routers": routers, "links": links, "risks": risks}
            found.append({"paths": [one, other], **shared})
    return found


def _links(path: dict[str, Any], channels: Channels) -> set[str]:
    return {
        channel["link"]
        for piece in path["pieces"]
        for channel in channels_of(piece, channels)
        if "link" in channel
    }


def _risks(path: dict[str, Any], channels: Channels) -> set[str]:
    """Return the risks of a path, each with the broker whose file names it."""
    return {
        f"{piece['owner']}:{risk}"
        for piece in path["pieces"]
        for channel in channels_of(piece, channels)
        for risk in channel.get("risks", ())
    }


def shared_texts(shared: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield what each two paths share."""
    for pair in shared:
        one, other = pair["paths"]
        parts = [
            f"{what} {', '.join(pair[key])}"
            for key, what in (("routers", "routers"), ("links", "links"), ("risks", "risks"))
            if pair.get(key)
        ]
        yield f"    paths {one} and {other} share {'; '.join(parts)}"


def band_texts(subscription: dict[str, Any]) -> Iterator[str]:
    """Yield the band of a contract, for whom it was lowered, and whom it has lowered.

    A broker of the release before does not tell them.
    """
    for mode, (best, worst) in sorted(subscription.get("band", {}).items(), key=_by_mode):
        when = "" if int(mode) == 0 else f" in mode {mode}"
        yield f"    agreed{when}: from every {best}. to every {worst}. slot"
    cause = subscription.get("lowered_for")
    if cause is not None:
        yield f"    lowered for {_contract_text(cause)}"
    for each in subscription.get("lowered", ()):
        yield f"    has lowered {_contract_text(each)} to every {each['every']}. slot"


def _by_mode(item: tuple[str, Any]) -> int:
    return int(item[0])


def _contract_text(contract: dict[str, Any]) -> str:
    if "name" not in contract and "contract" in contract:
        return str(contract["contract"])
    number = f"subscription {contract['subscription_id']}"
    if "contract" in contract:
        number = f"contract {contract['contract']}"
    if "name" not in contract:
        return f"{number}, which has ended"
    return (
        f"{number} of {contract['subscriber']} to {contract['name']} "
        f"(priority {contract['priority']})"
    )


def detection_text(detection_ms: int | None) -> str:
    if detection_ms is None:
        return (
            "how soon a dead channel is noticed is unknown: a broker or router does not report it"
        )
    if detection_ms == 0:
        return "no channel between routers can fail"
    return f"a dead channel is noticed after {detection_ms:,} ms of silence"


def counted_on(way: dict[str, Any], ledger: dict[str, Any] | None) -> Iterator[str]:
    """Yield the subscriber's counts of a path; with one path only, the counts of the whole
    contract."""
    if ledger is None:
        return
    names = {key: way[key] for key in ("routers", "channel_names") if key in way}
    paths = ledger.get("paths") or [{**ledger, **names, "first": ledger["delivered"]}]
    for path in paths:
        if way_text(path) == way_text(way):
            yield f"      came by it: {path_counts(path)}"


def left_paths(ledger: dict[str, Any] | None) -> Iterator[str]:
    for path in ledger.get("paths", ()) if ledger else ():
        if not path["is_open"]:
            way = way_text(path) or path["name"]
            yield f"    earlier: {way}: {path_counts(path)}"


def path_counts(path: dict[str, Any]) -> str:
    if not path.get("is_counted", True):
        return "its copies cannot be distinguished from those of the other paths yet"
    replies = [name for name in PATH_COUNTS_SHOWN if path.get(name) is not None]
    counts = ", ".join(f"{path[name]:,} {name}" for name in replies)
    one_in = path.get("one_in", 1)
    return counts if one_in == 1 else f"{counts} (reckoned, at times from one in {one_in} slots)"


def channel_text(channel: dict[str, Any]) -> str:
    promised = f"{channel['bytes_per_s']:,.0f} bytes/s promised"
    capacity = channel["bandwidth_bytes_per_s"]
    of = f" of {capacity:,}" if capacity else ", bandwidth undeclared"
    of += probe_text(channel)
    marks = "" if channel["is_up"] else ", DOWN"
    marks += ", BACK-PRESSURED: admits nothing" if channel["is_back_pressured"] else ""
    marks += f", {PLAIN} (security none)" if channel.get("security") == NONE else ""
    marks += f", risks {', '.join(channel['risks'])}" if channel.get("risks") else ""
    return f"{channel['label']}: {promised}{of}{marks}"


def probe_text(channel: dict[str, Any]) -> str:
    """Return the rate of a channel's probes and its silence limit; an older broker does not send
    them."""
    if "silent_ms_max" not in channel:
        return ""
    charge = channel["probe_bytes_per_s"]
    taken = f", probes take {charge:,.0f}" if charge else ""
    return f"{taken}, dead after {channel['silent_ms_max']:,} ms of silence"


def described(variable: dict[str, Any]) -> str:
    period = variable.get("period")
    if period is None:
        return "aperiodic" + (", an alert" if variable.get("is_alert") else "")
    every = f"every {period['seconds']}/{period['per_seconds']} s"
    speed = variable.get("replay_speed")
    return f"replayed, {every}, up to {speed} times as fast" if speed else f"published {every}"
