"""Keys of a `[[channel]]` table that tell channels apart: its name, and the risks that it runs.

They are the same in a cloud's file and in that of a broker above clouds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Generic, NamedTuple, Protocol, TypeVar

from pydantic import AfterValidator

from gridstat.console.config.config_errors import complaint
from gridstat.model.cloud import RISKS_MAX, check_host, check_word
from gridstat.model.errors import LayoutError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gridstat.model.errors import ConfigurationError

ANOTHER_NAME: Final = (
    "remove one (`both_ways` declares the way back as well), or give the channel beside it a name: "
    'name = "north"'
)


def _channel_name(value: str) -> str:
    return _word(value, "channel name") if value else value


def _risk(value: str) -> str:
    return _word(value, "risk")


def _address(value: str) -> str:
    try:
        return check_host(value, of="the channel")
    except LayoutError as error:
        raise ValueError(f"not an IP address|{error.hint}") from error


def _word(value: str, what: str) -> str:
    try:
        return check_word(value, what)
    except LayoutError as error:
        problem = str(error.args[0]).removeprefix(f"{what} {value[:80]!r} ")
        raise ValueError(f"{problem}|{error.hint}") from error


def _all_different(risks: list[str]) -> list[str]:
    if len(set(risks)) < len(risks):
        raise ValueError("a risk is there twice|name it once")
    if len(risks) > RISKS_MAX:
        raise ValueError(
            f"{RISKS_MAX} risks are the most|give one name to what always fails together"
        )
    return risks


ChannelName = Annotated[str, AfterValidator(_channel_name)]
"""Name of a channel beside others between the same two routers; empty for one."""
Risks = Annotated[list[Annotated[str, AfterValidator(_risk)]], AfterValidator(_all_different)]


Address = Annotated[str, AfterValidator(_address)]
"""Where an end of the channel is reached by it, if not where its router listens."""


class AnyChannelSection(Protocol):
    """What the checks need of a `[[channel]]` table."""

    @property
    def from_router(self) -> str: ...
    @property
    def to_router(self) -> str: ...
    @property
    def both_ways(self) -> bool: ...
    @property
    def name(self) -> str: ...
    @property
    def from_address(self) -> str | None: ...
    @property
    def to_address(self) -> str | None: ...


AnySection = TypeVar("AnySection", bound=AnyChannelSection)


class Direction(NamedTuple, Generic[AnySection]):
    """One of the channels of a table: its ends, and where the second one is reached."""

    from_router: str
    to_router: str
    to_host: str
    section: AnySection


def directions(section: AnySection) -> Iterator[Direction[AnySection]]:
    """Yield the one or two channels that a table declares."""
    one, other = section.from_router, section.to_router
    yield Direction(one, other, section.to_address or "", section)
    if section.both_ways:
        yield Direction(other, one, section.from_address or "", section)


def name_complaints(
    sections: Sequence[AnyChannelSection], *, file: str
) -> Iterator[ConfigurationError]:
    """Yield the errors of channels that cannot be told apart."""
    users: dict[tuple[str, str, str], int] = {}
    for index, section in enumerate(sections):
        if section.from_address is not None and not section.both_ways:
            yield complaint(
                file,
                f"channel[{index}].from_address",
                "nothing is sent there, since the channel leads one way",
                hint="leave it out, or write both_ways = true",
            )
        for from_router, to_router, *_ in directions(section):
            before = users.setdefault((from_router, to_router, section.name), index)
            if before != index:
                named = f' named "{section.name}"' if section.name else ""
                yield complaint(
                    file,
                    f"channel[{index}]",
                    f'from "{from_router}" to "{to_router}"{named} is already channel[{before}]',
                    hint=ANOTHER_NAME,
                )
