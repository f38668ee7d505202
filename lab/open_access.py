"""A rule by which everybody may do everything, for grids whose tests are about something else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gridstat.broker.settings import AccessSettings
from gridstat.model.access_rules import ACTIONS, DELAY_MS_MAX, AccessRule

if TYPE_CHECKING:
    from gridstat.broker.settings import BrokerSettings

OPEN_RULE: Final = AccessRule(
    identifier="open",
    who="**",
    may=ACTIONS,
    what="**",
    priority_best=1,
    is_exported=True,
    delay_ms_max=DELAY_MS_MAX,
)
"""Quotas stay as the settings say: simulations and measurements have their own."""
OPEN_ACCESS: Final = AccessSettings(rules=(OPEN_RULE,))
OPEN_TOML: Final = """
[[access_rule]]
name = "open"
who = "**"
may = ["publish", "subscribe", "find", "flood"]
what = "**"
priority_best = 1
exported = true
delay_ms_max = 10000
capacity_share = 1.0
commands_per_s = 0
variables = 1000000
subscriptions = 10000000
"""
CLOUD_TOML: Final = OPEN_TOML.replace("[[access_rule", "[[cloud.access_rule")
"""The same in a cloud of a file that has several."""


def with_open_access(settings: BrokerSettings) -> BrokerSettings:
    """Return settings in which everything is allowed, unless they say something of their own."""
    if settings.access != AccessSettings():
        return settings
    return replace(settings, access=OPEN_ACCESS)
