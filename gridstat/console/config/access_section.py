"""Access rules in a cloud's file: `access` says whether they hold, `[[access_rule]]` is each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from gridstat.console.config.config_errors import complaint
from gridstat.console.config.toml_file import Section
from gridstat.model.access_rules import (
    COUNT_MAX,
    DELAY_MS_DEFAULT,
    DELAY_MS_MAX,
    RESERVED_MAX,
    SESSIONS_MAX,
    TOML_KEYS,
    AccessRule,
)
from gridstat.model.errors import LayoutError
from gridstat.model.qos import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN

if TYPE_CHECKING:
    from collections.abc import Sequence

AccessWord = Literal["enforce", "observe"]
ActionWord = Literal["publish", "subscribe", "find", "flood"]
RULES_IN_FILE_MAX = 20_000


class AccessRuleSection(Section):
    """One `[[access_rule]]`: who may do what, by names or patterns of full names."""

    name: str = Field(min_length=1, max_length=100)
    who: str = Field(min_length=1, max_length=255)
    may: list[ActionWord] = Field(min_length=1, max_length=4)
    what: str = Field(min_length=1, max_length=255)
    priority_best: int = Field(default=PRIORITY_DEFAULT, ge=PRIORITY_MIN, le=PRIORITY_MAX)
    reserved_bytes_per_s: int | None = Field(default=None, ge=0, le=RESERVED_MAX)
    owner: bool = False
    exported: bool = False
    delay_ms_max: int = Field(default=DELAY_MS_DEFAULT, ge=1, le=DELAY_MS_MAX)
    capacity_share: float | None = Field(default=None, ge=0, le=1, strict=False)
    commands_per_s: int | None = Field(default=None, ge=0, le=COUNT_MAX)
    variables: int | None = Field(default=None, ge=0, le=COUNT_MAX)
    subscriptions: int | None = Field(default=None, ge=0, le=COUNT_MAX)
    sessions: int | None = Field(default=None, ge=0, le=SESSIONS_MAX)
    preempt: bool = False

    def rule(self) -> AccessRule:
        """Return the rule; raises `LayoutError` for names that are none."""
        fields = {key: name for name, key in TOML_KEYS.items()}
        values = {fields.get(key, key): value for key, value in self.model_dump().items()}
        return AccessRule(**{**values, "may": tuple(self.may)})


def access_rules_of(sections: Sequence[AccessRuleSection], *, file: str) -> tuple[AccessRule, ...]:
    """Return the rules of a file; raises `ConfigurationError` naming file, key and remedy."""
    found: dict[str, AccessRule] = {}
    for index, section in enumerate(sections):
        key = f'access_rule[{index}] ("{section.name[:80]}")'
        try:
            rule = section.rule()
        except LayoutError as error:
            hint = error.hint or "`gridstat access grant --help` explains a rule"
            raise complaint(file, key, str(error.args[0]), hint=hint) from None
        if rule.identifier in found:
            problem = "another rule of the file has this name"
            raise complaint(file, key, problem, hint="give every rule its own name")
        found[rule.identifier] = rule
    return tuple(found.values())
