"""Interning of values that many contracts share: equal paths, gates and qualities are one object.

Interned values must not be changed. Each cache is bounded; an evicted value merely exists twice.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar, cast

from gridstat.model.qos import ModalQos, Qos, QosRequest

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

KEPT_MAX: Final = 65_536
QUALITIES_MAX: Final = 4_096

ValueT = TypeVar("ValueT", bound="Hashable")


def same(value: ValueT) -> ValueT:
    """Return the first value that was equal to this one."""
    return cast("ValueT", _kept(value))


def same_quality(granted: Mapping[int, Qos]) -> dict[int, Qos]:
    return _quality(tuple(granted.items()))


def same_qos(qos: ModalQos) -> ModalQos:
    return _qos(tuple(qos.modes.items()))


@lru_cache(maxsize=KEPT_MAX)
def _kept(value: Hashable) -> Hashable:
    return value


@lru_cache(maxsize=QUALITIES_MAX)
def _quality(modes: tuple[tuple[int, Qos], ...]) -> dict[int, Qos]:
    return dict(modes)


@lru_cache(maxsize=QUALITIES_MAX)
def _qos(modes: tuple[tuple[int, QosRequest], ...]) -> ModalQos:
    return ModalQos(dict(modes))
