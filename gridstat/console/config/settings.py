"""The keys of a topology file, as they may be written; docs/reference/config.md explains each.

Values are taken strictly (a port in quotes is an error) and an unknown key is an error, since a
misspelt key that is silently ignored is found much too late.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

QUANTITIES: Final = ("voltage-magnitude", "voltage-angle", "frequency", "frequency-change")
_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"


def _plain_name(value: str) -> str:
    if not re.fullmatch(_WORD, value):
        raise ValueError("a name is letters, digits, `.`, `_` and `-`|write it as in `west-1`")
    return value


def _device_name(value: str) -> str:
    if not re.fullmatch(rf"{_WORD}/{_WORD}/{_WORD}", value):
        raise ValueError(
            "a PMU's name has three levels, cloud/substation/device"
            "|write it as in `north/hill/pmu-1`; variables are called `north/hill/pmu-1/frequency`"
        )
    return value


def _literal_address(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError as error:
        raise ValueError("not an IP address|write it in digits, `127.0.0.1` or `::1`") from error
    return value


def _rate(value: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,8}/([1-9]\d{0,8})?s", value):
        raise ValueError("not a rate|write `30/s`, or `1/5s` for one event in five seconds")
    return value


def _quantity(value: str) -> str:
    if value not in QUANTITIES:
        raise ValueError(f"a simulated PMU has no such quantity|choose of {', '.join(QUANTITIES)}")
    return value


Name = Annotated[str, AfterValidator(_plain_name)]
Host = Annotated[str, AfterValidator(_literal_address)]
Port = Annotated[int, Field(ge=0, le=65_535)]


class _Section(BaseModel):
    """What all tables share: no unknown keys, no guessed types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RouterSettings(_Section):
    """One `[[router]]`."""

    name: Name
    host: Host | None = None
    data_port: Port = 0
    urgent_port: Port = 0


class ChannelSettings(_Section):
    """One `[[channel]]`, one way."""

    from_router: Name = Field(alias="from")
    to_router: Name = Field(alias="to")
    level: int = Field(default=1, ge=0, le=255)
    floods: bool = False
    mtu_bytes: int = Field(default=1_232, ge=64, le=65_000)
    bandwidth_bytes_per_s: int = Field(default=0, ge=0, le=10**12)
    queue_events_max: int = Field(default=1_024, ge=1, le=1_000_000)


class PmuSettings(_Section):
    """One `[[pmu]]`."""

    name: Annotated[str, AfterValidator(_device_name)]
    router: Name
    rate: Annotated[str, AfterValidator(_rate)]
    quantities: list[Annotated[str, AfterValidator(_quantity)]] = Field(min_length=1)
    phase_ns: int = Field(default=0, ge=0, le=10**18)


class SubscriberSettings(_Section):
    """One `[[subscriber]]`."""

    name: Name
    router: Name
    variables: list[str] = Field(min_length=1)
    every: int = Field(default=1, ge=1, le=2**31 - 1)
    host: Host | None = None
    data_port: Port = 0
    urgent_port: Port = 0


class GridSettings(BaseSettings):
    """A whole file; `name` and `host` may also come from the environment, which then wins."""

    model_config = SettingsConfigDict(
        extra="forbid", strict=True, frozen=True, env_prefix="GRIDSTAT_GRID_"
    )

    name: Name = "grid"
    host: Host = "127.0.0.1"
    router: list[RouterSettings] = Field(min_length=1, max_length=64)
    channel: list[ChannelSettings] = Field(default=[], max_length=1_000)
    pmu: list[PmuSettings] = Field(default=[], max_length=1_000)
    subscriber: list[SubscriberSettings] = Field(default=[], max_length=500)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings
