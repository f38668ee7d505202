"""Reads a topology file: TOML, then settings, then a `Grid` whose every name is known.

What the settings cannot see (a channel to a router that is not there, one written twice, a port
used twice) is found here and told in the same form.
"""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_settings import SettingsError

from gridstat.console.config.complaints import complaint, complaint_of, unknown_key_hint
from gridstat.console.config.settings import (
    GridSettings,
    PmuSettings,
    RouterSettings,
    SubscriberSettings,
)
from gridstat.console.grid import Endpoint, EventChannel, Grid, Pmu, Router, Subscriber
from gridstat.model.rate_law import Period

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gridstat.model.errors import ConfigurationError

DEFAULT_GRID = "default_grid.toml"
DEFAULT_GRID_FILE = f"built-in {DEFAULT_GRID}"


def load_grid(path: Path) -> Grid:
    """The grid that a file describes; raises `ConfigurationError` naming file, key and remedy."""
    return grid_from_text(read_grid_text(path), file=str(path))


def read_grid_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise complaint(
            str(path),
            "",
            str(reason).lower(),
            hint="`gridstat up` without a file starts the built-in grid; "
            "`gridstat up --show-default` prints it, to begin your own from",
        ) from error


def default_grid_text() -> str:
    return resources.files(__package__).joinpath(DEFAULT_GRID).read_text(encoding="utf-8")


def grid_from_text(text: str, *, file: str) -> Grid:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise complaint(
            file,
            "",
            f"not TOML: {error}",
            hint="mend that line; text needs quotes, a table is written [[router]]",
        ) from error
    settings = _settings_of(document, file=file)
    for problem in _complaints(settings, file=file):
        raise problem
    return _grid_of(settings, file=file)


def _settings_of(document: dict[str, Any], *, file: str) -> GridSettings:
    # The settings library gives keys with a leading underscore a meaning of its own.
    known = list(GridSettings.model_fields)
    for key in document.keys() - set(known):
        raise complaint(file, key, "unknown key", hint=unknown_key_hint(key, known))
    try:
        return GridSettings(**document)
    except ValidationError as error:
        raise complaint_of(error, document, file=file, model=GridSettings) from error
    except SettingsError as error:
        raise complaint(
            "environment", "GRIDSTAT_GRID_…", str(error), hint="unset it, or write valid JSON"
        ) from error


def period_of(rate: str) -> Period:
    """`30/s` is thirty a second; `1/5s` is one in five seconds."""
    events, seconds = re.fullmatch(r"(\d+)/(\d*)s", rate).groups()  # type: ignore[union-attr]
    return Period(int(seconds or 1), int(events))


def _complaints(settings: GridSettings, *, file: str) -> Iterator[ConfigurationError]:
    yield from _names_twice(settings, file=file)
    yield from _unknown_routers(settings, file=file)
    yield from _bad_channels(settings, file=file)
    yield from _ports_twice(settings, file=file)
    yield from _unmatched_patterns(settings, file=file)


def _names_twice(settings: GridSettings, *, file: str) -> Iterator[ConfigurationError]:
    tables: dict[str, Sequence[str]] = {
        "router": [entry.name for entry in settings.router],
        "pmu": [entry.name for entry in settings.pmu],
        "subscriber": [entry.name for entry in settings.subscriber],
    }
    for table, names in tables.items():
        for index, name in enumerate(names):
            if name in names[:index]:
                yield complaint(
                    file,
                    f"{table}[{index}].name",
                    f'"{name}" is already {table}[{names.index(name)}]',
                    hint=f"give every {table} its own name",
                )


def _unknown_routers(settings: GridSettings, *, file: str) -> Iterator[ConfigurationError]:
    known = [router.name for router in settings.router]
    named = [
        *((f"channel[{i}].from", entry.from_router) for i, entry in enumerate(settings.channel)),
        *((f"channel[{i}].to", entry.to_router) for i, entry in enumerate(settings.channel)),
        *((f"pmu[{i}].router", entry.router) for i, entry in enumerate(settings.pmu)),
        *((f"subscriber[{i}].router", entry.router) for i, entry in enumerate(settings.subscriber)),
    ]
    for key, name in named:
        if name not in known:
            yield complaint(
                file,
                key,
                f'there is no router "{name}"',
                hint=f"routers of this file: {', '.join(known)}; or add a [[router]] of that name",
            )


def _bad_channels(settings: GridSettings, *, file: str) -> Iterator[ConfigurationError]:
    ends = [(entry.from_router, entry.to_router) for entry in settings.channel]
    for index, (from_router, to_router) in enumerate(ends):
        if from_router == to_router:
            yield complaint(
                file,
                f"channel[{index}].to",
                f'"{to_router}" is where the channel begins',
                hint="a channel joins two routers",
            )
        if ends[index] in ends[:index]:
            yield complaint(
                file,
                f"channel[{index}]",
                f'from "{from_router}" to "{to_router}" is already '
                f"channel[{ends.index(ends[index])}]",
                hint="remove one; the way back is a channel of its own, with from and to swapped",
            )


def _ports_twice(settings: GridSettings, *, file: str) -> Iterator[ConfigurationError]:
    users: dict[tuple[str, int], str] = {}
    entries: list[tuple[str, RouterSettings | SubscriberSettings]] = [
        *((f"router[{index}]", entry) for index, entry in enumerate(settings.router)),
        *((f"subscriber[{index}]", entry) for index, entry in enumerate(settings.subscriber)),
    ]
    for key, entry in entries:
        ports = {"data_port": entry.data_port, "urgent_port": entry.urgent_port}
        for port_key, port in ports.items():
            place = (entry.host or settings.host, port)
            if port and place in users:
                yield complaint(
                    file,
                    f'{key}.{port_key} ("{entry.name}")',
                    f"port {port} of {place[0]} is already {users[place]}",
                    hint="give each its own, or write 0 to have one chosen",
                )
            users.setdefault(place, f"{key}.{port_key}")


def _unmatched_patterns(settings: GridSettings, *, file: str) -> Iterator[ConfigurationError]:
    names = [name for pmu in settings.pmu for name in _pmu_of(pmu).variable_names()]
    for index, entry in enumerate(settings.subscriber):
        for position, pattern in enumerate(entry.variables):
            lone = Subscriber(entry.name, entry.router, (pattern,), entry.every, Endpoint(""))
            if not any(lone.wants(name) for name in names):
                near = ", ".join(names[:3]) or "none, as the file has no [[pmu]]"
                yield complaint(
                    file,
                    f'subscriber[{index}].variables[{position}] ("{entry.name}")',
                    f'"{pattern}" names no variable',
                    hint=f"`*` stands within one level, `**` for any number; variables: {near} …",
                )


def _grid_of(settings: GridSettings, *, file: str) -> Grid:
    def endpoint(host: str | None, data_port: int, urgent_port: int) -> Endpoint:
        return Endpoint(host or settings.host, data_port, urgent_port)

    return Grid(
        name=settings.name,
        routers=tuple(
            Router(entry.name, endpoint(entry.host, entry.data_port, entry.urgent_port))
            for entry in settings.router
        ),
        channels=tuple(EventChannel(**entry.model_dump()) for entry in settings.channel),
        pmus=tuple(_pmu_of(entry) for entry in settings.pmu),
        subscribers=tuple(
            Subscriber(
                name=entry.name,
                router=entry.router,
                patterns=tuple(entry.variables),
                every=entry.every,
                endpoint=endpoint(entry.host, entry.data_port, entry.urgent_port),
            )
            for entry in settings.subscriber
        ),
        source=file,
    )


def _pmu_of(entry: PmuSettings) -> Pmu:
    return Pmu(
        name=entry.name,
        router=entry.router,
        period=period_of(entry.rate),
        quantities=tuple(dict.fromkeys(entry.quantities)),
        phase_ns=entry.phase_ns,
    )
