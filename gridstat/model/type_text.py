"""Value types as text, for logs and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.status import BuiltinType

if TYPE_CHECKING:
    from gridstat.model.status import ValueType


def type_text(value_type: ValueType) -> str:
    """Return a type as text: `float64`, or a record's name and fields."""
    if isinstance(value_type, BuiltinType):
        return value_type.value
    fields = ", ".join(
        f"{field.name} {field.kind.value}[{field.size_bytes}]" for field in value_type.fields
    )
    return f"{value_type.name}({fields})"
