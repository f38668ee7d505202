"""Calls and configuration files that cannot be fulfilled."""
# ruff: noqa: N818
# A name says what happened (`Refused`, `LinkDown`); an ending `Error` would add only noise.

from __future__ import annotations

from gridstat.model.errors.root import GridStatError


class Misuse(GridStatError):
    """A call or a file that asks for what cannot be."""

    code = 4000


class InvalidPeriod(Misuse):
    """A period that is not a positive rational of two 32-bit numbers."""

    code = 4001
    remedy = "thirty a second is Period(1, 30); 29.97 a second is Period(1001, 30_000)"


class LayoutError(Misuse):
    """Values that do not fit the layout they are meant for."""

    code = 4002
    remedy = "compare the values with the declared fields and limits"


class LimitReached(Misuse):
    """A bound that was fixed at the start is full."""

    code = 4003
    remedy = "start with a higher limit, or remove what is no longer used"


class UnknownName(Misuse):
    """There is no such variable, channel or code."""

    code = 4004
    remedy = "check the spelling against what is registered or open"


class WrongCall(Misuse, TypeError):
    """A call with an option that it does not have, or without one that it needs.

    It is a `TypeError` too, as Python's own refusal of such a call.
    """

    code = 4005
    remedy = "`help` of the function lists its options"


class NotReadOnly(Misuse):
    """A statement in SQL that does more than read the pipeline's tables."""

    code = 4006
    remedy = "ask by `select` over the tables that `show tables` lists"


class ConfigurationError(Misuse):
    """A settings file that cannot be used; the message names file and key."""

    code = 4100
