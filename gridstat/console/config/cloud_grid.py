"""One cloud of `gridstat up`: a cloud's file with simulated PMUs and subscribers in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field

from gridstat.console.config.cloud_file import CloudSettings, Name, topology_of
from gridstat.console.config.config_errors import complaint
from gridstat.console.config.toml_file import Section
from gridstat.console.grid import Grid, PipelineOptions, Pmu, Subscriber
from gridstat.model.access_rules import AccessRule, toml_of
from gridstat.model.cloud import check_name, check_pattern, is_pattern
from gridstat.model.errors import LayoutError
from gridstat.model.qos import PRESETS, QosRequest
from gridstat.model.rate_law import Period

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gridstat.model.errors import ConfigurationError

OBEYED: Final = frozenset({"cloud", "x", "y", "host", "router", "channel", "access", "access_rule"})
"""Keys of a cloud's file that `gridstat up` obeys; it writes the others itself for each broker."""
QUANTITIES: Final = ("voltage-magnitude", "voltage-angle", "frequency", "frequency-change")
US_PER_MS: Final = 1_000


def _hierarchical(value: str) -> str:
    try:
        return check_pattern(value) if is_pattern(value) else check_name(value)
    except LayoutError as error:
        raise ValueError(f"{error.args[0]}|{error.hint}") from error


def _rate(value: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,8}/([1-9]\d{0,8})?s", value):
        raise ValueError("not a rate|write `30/s`, or `1/5s` for one event in five seconds")
    return value


def _quantity(value: str) -> str:
    if value not in QUANTITIES:
        raise ValueError(f"a simulated PMU has no such quantity|choose of {', '.join(QUANTITIES)}")
    return value


def _preset(value: str) -> str:
    if value not in PRESETS:
        raise ValueError(f"there is no such preset|choose of {', '.join(PRESETS)}")
    return value


Hierarchical = Annotated[str, AfterValidator(_hierarchical)]
Rate = Annotated[str, AfterValidator(_rate)]
Edges = Annotated[list[Name], Field(min_length=1, max_length=2)]


class PmuSection(Section):
    """One `[[pmu]]`, named below the cloud."""

    name: Hierarchical
    edges: Edges
    rate: Rate
    quantities: list[Annotated[str, AfterValidator(_quantity)]] = Field(min_length=1)
    phase_ns: int = Field(default=0, ge=0, le=10**18)


class SubscriberSection(Section):
    """One `[[subscriber]]`, named below the cloud; the preset has the values that are left out."""

    name: Hierarchical
    edges: Edges
    variables: list[Hierarchical] = Field(min_length=1, max_length=1_000)
    preset: Annotated[str, AfterValidator(_preset)] = "control-centre"
    rate: Rate | None = None
    every: int | None = Field(default=None, ge=1, le=2**31 - 1)
    latency_ms: float | None = Field(default=None, gt=0, le=3_600_000, strict=False)
    redundancy: int | None = Field(default=None, ge=1, le=4)
    priority: int | None = Field(default=None, ge=1, le=6)


class RecorderSection(SubscriberSection):
    """The `[recorder]`: a subscriber that writes all that it receives to a log."""

    name: Hierarchical = "recorder"


class PipelineSection(Section):
    """The `[pipeline]`: where Spark runs, and by which rules it raises alarms."""

    edges: Edges
    master: str = Field(default="local[2]", min_length=1, max_length=1_000)
    driver_memory: str = Field(default="1g", pattern=r"^[1-9]\d{0,5}[mg]$")
    rules: str = Field(default="", max_length=4_096)


class GridSettings(CloudSettings):
    """The whole file."""

    pmu: list[PmuSection] = Field(default=[], max_length=1_000)
    subscriber: list[SubscriberSection] = Field(default=[], max_length=500)
    recorder: RecorderSection | None = None
    pipeline: PipelineSection | None = None


def cloud_grid(settings: GridSettings, *, file: str) -> Grid:
    """The grid of one cloud; raises `ConfigurationError` naming file, key and remedy."""
    topology = topology_of(settings, file=file)
    for problem in _complaints(settings, file=file):
        raise problem
    return Grid(
        host=settings.host,
        topology=topology,
        pmus=tuple(_pmu_of(section, settings.cloud) for section in settings.pmu),
        subscribers=tuple(
            _subscriber_of(section, settings.cloud) for section in settings.subscriber
        ),
        source=file,
        recorder=_recorder_of(settings),
        pipeline=_pipeline_of(settings),
    )


def period_of(rate: str) -> Period:
    """`30/s` is thirty a second; `1/5s` is one in five seconds."""
    events, seconds = re.fullmatch(r"(\d+)/(\d*)s", rate).groups()  # type: ignore[union-attr]
    return Period(int(seconds or 1), int(events))


def _pmu_of(section: PmuSection, cloud: str) -> Pmu:
    return Pmu(
        name=f"{cloud}/{section.name}",
        edges=tuple(f"{cloud}/{edge}" for edge in section.edges),
        period=period_of(section.rate),
        quantities=tuple(dict.fromkeys(section.quantities)),
        phase_ns=section.phase_ns,
    )


def _subscriber_of(section: SubscriberSection, cloud: str) -> Subscriber:
    return Subscriber(
        name=f"{cloud}/{section.name}",
        edges=tuple(f"{cloud}/{edge}" for edge in section.edges),
        patterns=tuple(section.variables),
        qos=qos_of(section),
    )


def _recorder_of(settings: GridSettings) -> Subscriber | None:
    return None if settings.recorder is None else _subscriber_of(settings.recorder, settings.cloud)


def _pipeline_of(settings: GridSettings) -> PipelineOptions | None:
    wish = settings.pipeline
    if wish is None:
        return None
    edges = tuple(f"{settings.cloud}/{edge}" for edge in wish.edges)
    return PipelineOptions(
        edges, master=wish.master, driver_memory=wish.driver_memory, rules=wish.rules
    )


def qos_of(section: SubscriberSection) -> QosRequest:
    """Return the preset, changed by the values of the section."""
    usual = PRESETS[section.preset]
    latency_us = usual.latency_us
    if section.latency_ms is not None:
        latency_us = round(section.latency_ms * US_PER_MS)
    return QosRequest(
        every=section.every or usual.every,
        interval=None if section.rate is None else period_of(section.rate),
        latency_us=latency_us,
        redundancy=section.redundancy or usual.redundancy,
        redundancy_worst=1,
        priority=section.priority or usual.priority,
    )


def _complaints(settings: GridSettings, *, file: str) -> Iterator[ConfigurationError]:
    for key in sorted(settings.model_fields_set & set(CloudSettings.model_fields) - OBEYED):
        if getattr(settings, key) is not None:
            yield complaint(
                file,
                key,
                "`gridstat up` does not obey it",
                hint="leave it out; it has its place in the file of `gridstat broker`",
            )
    edges = [router.name for router in settings.router if router.role == "edge"]
    users: dict[str, str] = {}
    for key, section in _end_points(settings):
        before = users.setdefault(section.name, key)
        if before != key:
            yield complaint(
                file,
                f"{key}.name",
                f'"{section.name}" is already {before}',
                hint="give every end-point its own name",
            )
        yield from _edge_complaints(section.edges, edges, f'("{section.name}")', key, file)
        if isinstance(section, SubscriberSection) and section.rate and section.every:
            yield complaint(
                file,
                f'{key} ("{section.name}")',
                "rate and every say the same thing twice",
                hint="leave one of them out",
            )
    if settings.pipeline is not None:
        yield from _edge_complaints(settings.pipeline.edges, edges, "", "pipeline", file)
        if settings.recorder is None:
            yield complaint(
                file, "pipeline", "there is no recorder", hint="a [recorder] writes what it reads"
            )
    if _admits_nobody(settings):
        yield complaint(
            file,
            "access_rule",
            "without rules nobody may publish or subscribe, and the file has end-points",
            hint=f"write, for example:\n\n{_usual_rules(settings.cloud)}",
        )


def _admits_nobody(settings: GridSettings) -> bool:
    has_rules = settings.access_rule or settings.access == "observe"
    return not has_rules and bool(settings.pmu or settings.subscriber or settings.recorder)


def _usual_rules(cloud: str) -> str:
    """Rules by which the end-points of a cloud may do what most grids let them.

    Names have no owner by these: end-points of any depth publish, so no depth of a name is theirs.
    """
    everyone = f"{cloud}/**"
    rules = (
        AccessRule("publishers", everyone, ("publish",), everyone),
        AccessRule("readers", everyone, ("subscribe", "find"), "**"),
    )
    return "\n\n".join(map(toml_of, rules))


def _end_points(settings: GridSettings) -> Iterator[tuple[str, PmuSection | SubscriberSection]]:
    """All that attach, and where each stands in the file."""
    for index, pmu in enumerate(settings.pmu):
        yield f"pmu[{index}]", pmu
    for index, subscriber in enumerate(settings.subscriber):
        yield f"subscriber[{index}]", subscriber
    if settings.recorder is not None:
        yield "recorder", settings.recorder


def _edge_complaints(
    wanted: Sequence[str], edges: Sequence[str], whose: str, key: str, file: str
) -> Iterator[ConfigurationError]:
    for place, edge in enumerate(wanted):
        if edge not in edges:
            yield complaint(
                file,
                f"{key}.edges[{place}] {whose}".rstrip(),
                f'there is no edge router "{edge}"',
                hint=f"end-points attach to edge routers: {', '.join(edges) or 'none'}",
            )
