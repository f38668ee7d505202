"""Problems in a survey, as lines for a person, the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gridstat.console.live.survey_tables import dropped, router_state, worst_path
from gridstat.console.live.tree_view import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gridstat.console.live.grid_survey import GridSurvey

IN_STEP = "in step"
GRANTED = "granted"
NAMED_MAX: Final = 5
"""Identities that a line names."""


def grid_problems(grid_survey: GridSurvey) -> list[str]:
    """Return the problems of a whole grid: silent brokers, the tree, then those of each cloud."""
    away = [f"broker {name} is AWAY: {reason}" for name, reason in grid_survey.away.items()]
    tree = [line for facts in grid_survey.surveys.values() for line in _tree_problems(facts)]
    return [*away, *tree, *sorted_problems(*grid_survey.clouds)]


def sorted_problems(*surveys: Mapping[str, Any]) -> list[str]:
    """Return the problems of some clouds: stopped parts, then broken contracts, then lost
    events."""
    found = [problem for survey in surveys for problem in _cloud_problems(survey)]
    return [text for _, text in sorted(found, key=lambda problem: problem[0])]


def _tree_problems(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a broker above clouds; the survey of a cloud has none of these."""
    if "cloud" in facts:
        return
    for child in facts["children"]:
        if not child["is_joined"]:
            yield f"{child['name']} has NOT JOINED {facts['broker']}"
    for channel in facts["channels"]:
        if channel["is_open"] and not channel["is_up"]:
            yield f"channel {channel['channel']} is DOWN"
        if channel["is_pressed"]:
            yield f"channel {channel['channel']} is congested, and admits nothing"
    keys = facts.get("keys", {})
    yield from keys.get("closed", ())
    for label in keys.get("overdue", ()):
        yield f"channel {label} has had no fresh seed for long: it stops 24 h after its last one"
    if facts["broken"]:
        yield f"{counted(facts['broken'], 'contract')} of {facts['broker']} impaired"


def _cloud_problems(survey: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Each with its rank."""
    for router in survey["routers"]:
        state = router_state(router)
        if state != IN_STEP:
            yield (1 if router["is_up"] else 0), f"router {router['name']}: {state}"
        if lost := dropped(router["counters"]):
            stamps = _stamps_text(router["counters"])
            yield 5, f"router {router['name']} has dropped {counted(lost, 'event')}{stamps}"
    for channel in survey["channels"]:
        if not channel["is_up"]:
            yield 0, f"channel {channel['label']} is DOWN"
        if channel["is_back_pressured"]:
            yield 1, f"channel {channel['label']} is congested, and admits nothing"
        if channel["loss_ratio"]:
            yield 5, f"channel {channel['label']} loses {100 * channel['loss_ratio']:.2f} %"
    yield from _key_problems(survey)
    for subscription in survey["subscriptions"]:
        yield from _subscription_problems(subscription)
    yield from _access_problems(survey)


def _access_problems(survey: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield that a cloud lets everybody do everything, or nobody anything."""
    access = survey.get("access")  # A broker of the release before has no rules.
    if access is None:
        return
    cloud = survey["cloud"]
    if access["mode"] == "observe":
        would = counted(access["observed"], "request")
        yield (
            1,
            f"cloud {cloud} does NOT ENFORCE access rules; {would} would be refused: "
            "gridstat access why --observed",
        )
        if lost := not_kept_text(access):
            yield 1, f"cloud {cloud}: {lost}"
    elif not access["rule_count"]:
        yield 1, f"cloud {cloud} has no access rules, and admits nobody: gridstat access --help"


def not_kept_text(access: Mapping[str, Any]) -> str:
    """Return whose refused wishes a cloud that observes has counted only; empty if nobody's."""
    facts = access.get("not_kept")  # A broker of an earlier release does not say it.
    if not facts or not facts["refusals"]:
        return ""
    most = [f"{each['count']:,} of {each['who']}" for each in facts["most"][:NAMED_MAX]]
    left = facts["identities"] - len(most)
    more = f" and of {left:,} more" if left else ""
    return (
        f"{counted(facts['refusals'], 'wish', 'wishes')} that would be refused NOT LISTED, since "
        f"there are too many different ones: {', '.join(most)}{more}"
    )


def _key_problems(survey: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield channels that stay closed or run out of keys; an older broker reports none."""
    keys = survey.get("keys", {})
    for reason in keys.get("closed", ()):
        yield 0, reason
    for label in keys.get("overdue", ()):
        yield 1, f"channel {label} has had no fresh seed for long: it stops 24 h after its last one"
    for edge, count in keys.get("plain_end_points", {}).items():
        yield (
            6,
            f"router {edge}: {counted(count, 'end-point')} with security none, whose events "
            "anybody can read and forge",
        )
    for router in survey["routers"]:
        keyless = router["counters"].get("channels_long_without_key")
        if keyless:
            yield (
                0,
                f"router {router['name']}: {counted(keyless, 'channel')} without a key, which "
                "carry no events: check the sessions of their ends",
            )
        overdue = router["counters"].get("seeds_overdue")
        if overdue:
            yield 1, f"router {router['name']}: {counted(overdue, 'channel')} without a fresh seed"


def _subscription_problems(subscription: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    whose = f"{subscription['subscriber']} with {subscription['name']}"
    state = subscription.get("state", GRANTED)
    if state != GRANTED:
        yield 2, f"{whose}: {state}"
    ledger = subscription.get("ledger") or {}
    counts = [
        f"{ledger[name]:,} {text}"
        for name, text in (("lost", "lost"), ("late", "late"), ("dropped", "dropped unread"))
        if ledger.get(name)
    ]
    if counts:
        yield 3, f"{whose}: {', '.join(counts)} of {ledger['expected']:,}{_clock_text(ledger)}"
    elif worst := worst_path(ledger.get("paths", ())):
        yield 4, f"{whose}: nothing lost, but by {worst}"


def _clock_text(ledger: Mapping[str, Any]) -> str:
    lost = ledger.get("lost_to_clock")
    return f"; {lost:,} of the lost as the publisher's clock was set: look at it" if lost else ""


def _stamps_text(counters: Mapping[str, int]) -> str:
    refused = counters.get("policed_stamp")
    if not refused:
        return ""
    return (
        f", {refused:,} of them with stamps far from its clock: compare its clock with the "
        "publishers'"
    )
