"""The file of `gridstat up`: one cloud, or several under a tree of brokers.

A file with `cloud = "c1"` is a cloud's file with end-points in it (`cloud_grid.py`). One with
`[[cloud]]` has such a table for each, `[[broker]]` for those above, and `[[channel]]` between.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

from pydantic import Field

from gridstat.console.config.access_section import (
    RULES_IN_FILE_MAX,
    AccessRuleSection,
    AccessWord,
)
from gridstat.console.config.cloud_file import ChannelSection, Host, Name, RouterSection
from gridstat.console.config.cloud_grid import (
    GridSettings,
    PipelineSection,
    PmuSection,
    RecorderSection,
    SubscriberSection,
    cloud_grid,
)
from gridstat.console.config.config_errors import complaint
from gridstat.console.config.toml_file import Section, document_of, settings_of
from gridstat.console.config.tree_file import (
    BorderChannelSection,
    border_channels,
    border_complaints,
    cloud_of,
)
from gridstat.console.grid import Grid, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gridstat.model.errors import ConfigurationError

DEFAULT_GRID: Final = "default_grid.toml"
DEFAULT_GRID_FILE: Final = f"built-in {DEFAULT_GRID}"
HINT: Final = (
    "`gridstat up` without a file starts the built-in grid; "
    "`gridstat up --show-default` prints it, to begin your own from"
)


class BrokerSection(Section):
    """One `[[broker]]` above others; the root is the one without a parent."""

    name: Name
    parent: Name | None = None


class CloudSection(Section):
    """One `[[cloud]]`; without a parent it stands below the root."""

    name: Name
    parent: Name | None = None
    router: list[RouterSection] = Field(min_length=1, max_length=10_000)
    channel: list[ChannelSection] = Field(default=[], max_length=100_000)
    pmu: list[PmuSection] = Field(default=[], max_length=1_000)
    subscriber: list[SubscriberSection] = Field(default=[], max_length=500)
    recorder: RecorderSection | None = None
    pipeline: PipelineSection | None = None
    access: AccessWord | None = None
    access_rule: list[AccessRuleSection] = Field(default=[], max_length=RULES_IN_FILE_MAX)


class TreeGridSettings(Section):
    """The whole file of several clouds."""

    host: Host = "127.0.0.1"
    broker: list[BrokerSection] = Field(min_length=1, max_length=1_000)
    cloud: list[CloudSection] = Field(min_length=1, max_length=1_000)
    channel: list[BorderChannelSection] = Field(default=[], max_length=100_000)


def default_grid_text() -> str:
    return resources.files(__package__).joinpath(DEFAULT_GRID).read_text(encoding="utf-8")


def grid_from_text(text: str, *, file: str) -> Grid:
    """The grid that a file describes; raises `ConfigurationError` naming file, key and remedy."""
    document = document_of(text, file=file)
    if not isinstance(document.get("cloud"), list):
        return cloud_grid(settings_of(document, GridSettings, file=file), file=file)
    settings = settings_of(document, TreeGridSettings, file=file)
    for problem in _name_complaints(settings, file=file):
        raise problem
    clouds = [
        cloud_grid(
            _as_one(section, settings.host), file=f'{file}: cloud[{index}] ("{section.name}")'
        )
        for index, section in enumerate(settings.cloud)
    ]
    for problem in _complaints(settings, clouds, file=file):
        raise problem
    first, *others = clouds
    return Grid(
        host=settings.host,
        topology=first.topology,
        pmus=tuple(pmu for grid in clouds for pmu in grid.pmus),
        subscribers=tuple(one for grid in clouds for one in grid.subscribers),
        source=file,
        recorder=next((grid.recorder for grid in clouds if grid.recorder), None),
        pipeline=next((grid.pipeline for grid in clouds if grid.pipeline), None),
        tree=_tree(settings, others),
    )


def _as_one(section: CloudSection, host: str) -> GridSettings:
    """The same cloud as the only one of a file."""
    return GridSettings(
        cloud=section.name,
        host=host,
        router=section.router,
        channel=section.channel,
        pmu=section.pmu,
        subscriber=section.subscriber,
        recorder=section.recorder,
        pipeline=section.pipeline,
        access=section.access,
        access_rule=section.access_rule,
    )


def _tree(settings: TreeGridSettings, others: Sequence[Grid]) -> Tree:
    parents = _parents(settings)
    names = [broker.name for broker in settings.broker]
    owned: dict[str, list[BorderChannelSection]] = {}
    for section in settings.channel:
        owner = _owner(cloud_of(section.from_router), cloud_of(section.to_router), parents)
        owned.setdefault(owner, []).append(section)
    return Tree(
        further=tuple(grid.topology for grid in others),
        brokers=tuple(sorted(names, key=lambda name: len(_line(name, parents)))),
        parents=parents,
        channels={owner: border_channels(sections) for owner, sections in owned.items()},
    )


def _parents(settings: TreeGridSettings) -> dict[str, str]:
    """The parent of every broker but the root."""
    (root,) = (broker.name for broker in settings.broker if broker.parent is None)
    above = {broker.name: broker.parent for broker in settings.broker if broker.parent}
    return above | {cloud.name: cloud.parent or root for cloud in settings.cloud}


def _line(name: str, parents: Mapping[str, str]) -> list[str]:
    """The broker and all above it, the root last."""
    line = [name]
    while (parent := parents.get(line[-1])) is not None and parent not in line:
        line.append(parent)
    return line


def _owner(cloud: str, other: str, parents: Mapping[str, str]) -> str:
    """The lowest broker above both."""
    above = _line(other, parents)
    return next(name for name in _line(cloud, parents) if name in above)


def _name_complaints(settings: TreeGridSettings, *, file: str) -> Iterator[ConfigurationError]:
    """Names that stand for two things or for none, and trees that are not one."""
    brokers = [broker.name for broker in settings.broker]
    users: dict[str, str] = {}
    placed: list[tuple[str, BrokerSection | CloudSection]] = [
        *((f"broker[{index}]", broker) for index, broker in enumerate(settings.broker)),
        *((f"cloud[{index}]", cloud) for index, cloud in enumerate(settings.cloud)),
    ]
    for key, section in placed:
        before = users.setdefault(section.name, key)
        if before != key:
            hint = "brokers and clouds have names of their own; a cloud is its leaf broker's name"
            yield complaint(file, f"{key}.name", f'"{section.name}" is {before} already', hint=hint)
        if section.parent is not None and section.parent not in brokers:
            hint = f"brokers of this file: {', '.join(brokers)}"
            problem = f'there is no broker "{section.parent}"'
            yield complaint(file, f"{key}.parent", problem, hint=hint)
    roots = [broker.name for broker in settings.broker if broker.parent is None]
    if len(roots) != 1:
        found = f"{len(roots)} brokers have no parent: {', '.join(roots)}" if roots else "no root"
        yield complaint(file, "broker", found, hint="one broker, the root, has no parent")
        return
    parents = _parents(settings)
    for index, broker in enumerate(settings.broker):
        key = f'broker[{index}] ("{broker.name}")'
        if _line(broker.name, parents)[-1] != roots[0]:
            yield complaint(file, key, "stands above itself", hint="parents lead up to the root")
        if broker.name not in parents.values():
            yield complaint(file, key, "nothing is below it", hint="remove it, or be its child")


def _complaints(
    settings: TreeGridSettings, clouds: Sequence[Grid], *, file: str
) -> Iterator[ConfigurationError]:
    known = [router.name for grid in clouds for router in grid.routers]
    for index, channel in enumerate(settings.channel):
        for key, name in (("from", channel.from_router), ("to", channel.to_router)):
            if name not in known:
                yield complaint(
                    file,
                    f"channel[{index}].{key}",
                    f'there is no router "{name}"',
                    hint="between clouds, write full names, as in `c1/b0`",
                )
    yield from border_complaints(settings.channel, file=file)
    for word in ("recorder", "pipeline"):
        owners = [grid.cloud for grid in clouds if getattr(grid, word) is not None]
        if len(owners) > 1:
            problem = f"clouds {', '.join(owners)} have one each"
            yield complaint(
                file, f"cloud.{word}", problem, hint="one of them may record all clouds"
            )
