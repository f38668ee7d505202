"""An identifier is of one variable, or everything would be charged to the wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.errors import VariableExists

if TYPE_CHECKING:
    from gridstat.broker.capacity.resources import Resources
    from gridstat.broker.records.registry import Registry
    from gridstat.model.status import StatusVariable


def check_identifier(registry: Registry, resources: Resources, variable: StatusVariable) -> None:
    """Raises if another is published here, crosses the cloud or floods it by the same number."""
    number = variable.variable_id
    known = registry.publication_by_id(number) or resources.tariffs.get(number)
    if known is not None and known.variable != variable:
        raise VariableExists(
            f"identifier {number} is of {known.variable.name} here, and of {variable.name} "
            "elsewhere",
            hint="clouds of one tree take their identifiers from its root",
        )
