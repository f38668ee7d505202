"""Alarm rules: a TOML file, read into laws.

An error names the file, the rule, the key and what to write. `default_alarm_rules.toml` beside this
module shows every kind; docs/reference/alarm-rules.md explains it.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from gridstat.model.cloud import check_pattern, matches
from gridstat.model.errors import ConfigurationError, LayoutError
from gridstat.pipeline.alarm_kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gridstat.model.alarms.runs import AlarmLaw, Finding

RULES_MAX: Final = 256
PATTERNS_MAX: Final = 64
FILE_BYTES_MAX: Final = 1024 * 1024
SEVERITIES: Final = ("notice", "warning", "critical")
DEFAULT_FILE: Final = "default_alarm_rules.toml"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
_COMMON: Final = ("name", "kind", "variables", "severity")


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """A law, the variables that it watches, and how bad it is when it finds something."""

    name: str
    kind: str
    patterns: tuple[str, ...]
    severity: str
    law: AlarmLaw
    words: str

    def watches(self, variable: str) -> bool:
        return any(matches(pattern, variable) for pattern in self.patterns)

    def text(self, variable: str, finding: Finding) -> str:
        """Return the text of an alarm; it is always the same for the same finding."""
        text_of_finding = self.words.format(value=finding.value, limit=finding.limit)
        return f"{variable}: {text_of_finding}" + (f" ({finding.note})" if finding.note else "")


def load_rules(path: Path | None = None) -> tuple[AlarmRule, ...]:
    """The rules of a file, or the default ones; raises what is wrong with it."""
    if path is None:
        return rules_from_text(default_text(), file=DEFAULT_FILE)
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise _complaint(str(path), "too large for a file of rules", "split it")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        hint = "give a file of alarm rules; docs/reference/alarm-rules.md shows one"
        raise _complaint(str(path), str(reason).lower(), hint) from error
    return rules_from_text(text, file=str(path))


def default_text() -> str:
    """The shipped file, to copy and change."""
    return files("gridstat.pipeline").joinpath(DEFAULT_FILE).read_text(encoding="utf-8")


def rules_from_text(text: str, *, file: str) -> tuple[AlarmRule, ...]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = "mend that line; text needs quotes, a rule is written [[rule]]"
        raise _complaint(file, f"not TOML: {error}", hint) from error
    # Beside its own error the library lets pass those of numbers and of nesting without end.
    except (ValueError, OverflowError, RecursionError) as error:
        hint = "no rule needs a number of hundreds of digits, nor lists of lists of lists"
        raise _complaint(file, "a value that cannot be read", hint) from error
    unknown = [key for key in document if key != "rule"]
    tables = document.get("rule", [])
    if unknown or not isinstance(tables, list):
        hint = "the file is a list of [[rule]] tables"
        raise _complaint(file, f"unknown key `{(unknown or ['rule'])[0]}`", hint)
    if len(tables) > RULES_MAX:
        hint = f"one file may have {RULES_MAX}; one rule may watch many variables by a pattern"
        raise _complaint(file, f"{len(tables)} rules", hint)
    rules: list[AlarmRule] = []
    for index, table in enumerate(tables):
        rules += _read_rule(table, index, file=file)
    _check_names(rules, file=file)
    return tuple(rules)


def _read_rule(table: Any, index: int, *, file: str) -> list[AlarmRule]:  # noqa: ANN401 - TOML.
    where = f"{file}: rule[{index}]"
    if not isinstance(table, dict):
        raise _complaint(where, "not a table", "a rule is written [[rule]]")
    name = table.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        hint = "a name is 1 to 48 small letters, digits and dashes"
        raise _complaint(where, f"name {name!r}", hint)
    where = f'{where} ("{name}")'
    kind = str(table.get("kind"))
    if kind not in KINDS:
        raise _complaint(where, f"kind {kind!r}", _choices(kind, tuple(KINDS)))
    parameters = {key: value for key, value in table.items() if key not in _COMMON}
    patterns = _read_patterns(table, where)
    severity = _read_severity(table, where)
    try:
        parts = KINDS[kind](parameters)
    except ConfigurationError as error:
        raise _complaint(where, str(error.args[0]), error.hint) from None
    return [
        AlarmRule(
            name=f"{name}-{number}" if len(parts) > 1 else name,
            kind=kind,
            patterns=patterns,
            severity=_read_severity({"severity": part.severity or severity}, where),
            law=part.law,
            words=part.words,
        )
        for number, part in enumerate(parts, start=1)
    ]


def _read_patterns(table: Mapping[str, Any], where: str) -> tuple[str, ...]:
    given = table.get("variables")
    hint = 'give variables or patterns: variables = ["c1/*/*/frequency"]'
    if not isinstance(given, list) or not given or not all(isinstance(one, str) for one in given):
        raise _complaint(where, f"variables {given!r}", hint)
    if len(given) > PATTERNS_MAX:
        raise _complaint(where, f"{len(given)} patterns", f"a rule may have {PATTERNS_MAX}")
    try:
        return tuple(check_pattern(pattern) for pattern in given)
    except LayoutError as error:
        raise _complaint(where, str(error.args[0]), error.hint) from error


def _read_severity(table: Mapping[str, Any], where: str) -> str:
    severity = table.get("severity", "warning")
    if severity not in SEVERITIES:
        raise _complaint(where, f"severity {severity!r}", _choices(str(severity), SEVERITIES))
    return str(severity)


def _check_names(rules: list[AlarmRule], *, file: str) -> None:
    seen: set[str] = set()
    for rule in rules:
        if rule.name in seen:
            hint = "alarms are distinguished by their rule's name; choose another"
            raise _complaint(file, f'two rules are called "{rule.name}"', hint)
        seen.add(rule.name)


def _choices(given: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(given, known, n=1)
    listed = f"one of {', '.join(known)}"
    return f"did you mean {near[0]}? {listed}" if near else listed


def _complaint(where: str, problem: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"{where}: {problem}", hint=hint)
