"""Views of a cloud or a grid, as the screens of `gridstat top` and `gridstat up` show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridstat.console.fitted_table import Column, FittedTable
from gridstat.console.live.pages import Section, View
from gridstat.console.live.pipeline_view import pipeline_line, pipeline_tables
from gridstat.console.live.problems import grid_problems, sorted_problems
from gridstat.console.live.survey_tables import dropped, shown_of, survey_head, survey_tables
from gridstat.console.live.tree_view import counted, tree_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gridstat.console.live.grid_survey import GridSurvey


def cloud_view(facts: Mapping[str, Any], problem: str = "") -> View:
    """One cloud; `problem` is why the facts are not of this moment, if so."""
    wrong = sorted_problems(facts)
    return View(
        title=f"gridstat top: cloud {facts['cloud']}",
        problems=[problem, *wrong] if problem else wrong,
        totals=["", survey_head(facts), *_totals(facts)],
        sections=[*_cloud_sections(facts)],
    )


def grid_view(grid_survey: GridSurvey, messages: Sequence[str], guide: str) -> View:
    """A whole grid: its clouds, the brokers above them, and the pipeline."""
    totals = [""]
    for survey in grid_survey.clouds:
        name = f"{survey['cloud']}: " if grid_survey.has_tree else ""
        totals += [f"{name}{line}" for line in _totals(survey)]
    view = grid_survey.pipeline
    if view is not None:
        totals.append(pipeline_line(view))
    sections = [Section("brokers", list(tree_lines(grid_survey)))] if grid_survey.has_tree else []
    for survey in grid_survey.clouds:
        name = f"{survey['cloud']}: " if grid_survey.has_tree else ""
        sections += _cloud_sections(survey, name)
    if view is None:
        sections.append(Section("newest values", value_table(grid_survey.values)))
    else:
        sections += [Section(title, table) for title, table in pipeline_tables(view).items()]
    return View(
        title="gridstat up",
        problems=grid_problems(grid_survey),
        totals=[*totals, *(["", *messages] if messages else [])],
        sections=[*sections, Section("guide", guide.splitlines())],
    )


def value_table(values: Mapping[str, float]) -> FittedTable:
    table = FittedTable(Column("variable"), Column("newest value", justify="right"))
    for name, value in sorted(values.items()):
        table.add_row(name, f"{value:,.4f}")
    return table


def survey_line(survey: Mapping[str, Any]) -> str:
    """The survey in one line: who is up, and the sum of all ledgers."""
    routers = survey["routers"]
    up = sum(router["is_up"] for router in routers)
    channels_up = sum(channel["is_up"] for channel in survey["channels"])
    ledgers = [one["ledger"] for one in survey["subscriptions"] if one["ledger"]]
    sums = {
        name: sum(ledger.get(name, 0) for ledger in ledgers)
        for name in ("delivered", "late", "lost", "duplicate")
    }
    counts = ", ".join(f"{count:,} {name}" for name, count in sums.items())
    return (
        f"{up}/{len(routers)} routers, {channels_up}/{len(survey['channels'])} channels up, "
        f"{len(survey['subscriptions'])} subscriptions: {counts}"
    )


def _totals(survey: Mapping[str, Any]) -> list[str]:
    events = sum(dropped(router["counters"]) for router in survey["routers"])
    shown = shown_of(len(survey["subscriptions"]), survey["totals"]["subscriptions"])
    line = f"{survey_line(survey)}; {counted(events, 'event')} dropped by routers"
    return [line, shown] if shown else [line]


def _cloud_sections(survey: Mapping[str, Any], name: str = "") -> Iterator[Section]:
    for title, table in survey_tables(survey).items():
        yield Section(f"{name}{title}", table)
