"""Checked calls: an option that a call does not have is refused in words, with the nearest one.

Python refuses an unknown keyword by itself where a function names its parameters, but says nothing
of what was meant; and a function with `**options` accepts every word. The decorators below turn
both into `WrongCall`, for functions, for the public methods of a class, and for its constructor.
A call that is right costs one more Python call and nothing else.
"""

from __future__ import annotations

import inspect
import reprlib
from difflib import get_close_matches
from functools import wraps
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, ForwardRef, ParamSpec, TypeVar

from gridstat.model.errors import WrongCall

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

Params = ParamSpec("Params")
Result = TypeVar("Result")
Class = TypeVar("Class", bound=type)

SIMILARITY_MIN: Final = 0.7
WORDS_MAX: Final = 24
"""Options that a hint lists; no call of ours has more."""
_NO_PARTS: Final[Mapping[str, type]] = MappingProxyType({})


class _LeftOut:
    """The default of an option that need not be given, as `help` shows it."""

    def __repr__(self) -> str:
        return "…"


def checked_call(
    *, options: type | None = None, parts: Mapping[str, type] = _NO_PARTS
) -> Callable[[Callable[Params, Result]], Callable[Params, Result]]:
    """Decorates a function that refuses wrong arguments with `WrongCall`.

    `options` is the TypedDict behind its `**options`, if it has them. `parts` says which parameter
    is made of which options (a TypedDict): `{"qos": QosOptions}` sends `redundancy` into `qos`.
    """

    def decorate(call: Callable[Params, Result]) -> Callable[Params, Result]:
        signature = _signature(call, options)
        known = None if options is None else frozenset(signature.parameters)

        @wraps(call)
        def checked(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            if known is not None and not known.issuperset(kwargs):
                raise _refusal(_name(call), signature, args, kwargs, parts)
            try:
                return call(*args, **kwargs)
            except TypeError as problem:
                if problem.__traceback__ is None or problem.__traceback__.tb_next is not None:
                    raise  # Raised inside the call, whose arguments were right.
                refusal = _refusal(_name(call), signature, args, kwargs, parts)
            raise refusal

        checked.__signature__ = signature  # type: ignore[attr-defined]
        return checked

    return decorate


def checked_calls(
    *, but: Collection[str] = (), parts: Mapping[str, type] = _NO_PARTS
) -> Callable[[Class], Class]:
    """Decorates a class whose public methods and constructor refuse wrong arguments likewise.

    `but` names methods that are called too often for one more Python call; they keep Python's own
    refusal. A class without a constructor of its own keeps the one that it inherits.
    """
    check = checked_call(parts=parts)

    def decorate(decorated: Class) -> Class:
        for name, found in tuple(vars(decorated).items()):
            is_public = not name.startswith("_") or name == "__init__"
            is_checked = hasattr(found, "__signature__")
            if is_public and isinstance(found, FunctionType) and name not in but and not is_checked:
                setattr(decorated, name, check(found))
        return decorated

    return decorate


def unknown_option(call: Callable[..., Any], given: Mapping[str, object]) -> WrongCall:
    """The refusal of options that `call` does not have; for one that is called too often to be
    wrapped: its own `**unknown: Never` costs a tenth of that."""
    return _refusal(_name(call), inspect.signature(call), (), given, _NO_PARTS)


def _signature(call: Callable[..., Any], options: type | None) -> inspect.Signature:
    """The signature that `help` shows: options of a TypedDict are parameters like any other."""
    found = inspect.signature(call)
    if options is None:
        return found
    named = [each for each in found.parameters.values() if each.kind is not each.VAR_KEYWORD]
    named += [
        inspect.Parameter(
            word,
            inspect.Parameter.KEYWORD_ONLY,
            default=_LeftOut(),
            annotation=kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind,
        )
        for word, kind in options.__annotations__.items()
    ]
    return found.replace(parameters=named)


def _name(call: Callable[..., Any]) -> str:
    """The name that a caller has written: a constructor's is that of its class."""
    *_, owner, name = ("", *call.__qualname__.split("."))
    return owner if name == "__init__" else name


def _refusal(
    name: str,
    signature: inspect.Signature,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    parts: Mapping[str, type],
) -> WrongCall:
    words = _words(signature)
    for word, value in kwargs.items():
        if word not in words:
            return WrongCall(
                f"{name}() has no option {_short(word)}", hint=_hint(word, value, words, parts)
            )
    try:
        signature.bind(*args, **kwargs)
    except TypeError as problem:
        reason = str(problem)
    else:
        reason = "these arguments do not fit"
    return WrongCall(f"{name}(): {reason}", hint=f"write {name}({_written(signature)})")


def _hint(word: str, value: object, words: list[str], parts: Mapping[str, type]) -> str:
    inside = [
        (part, option)
        for part, options in parts.items()
        if part in words
        for option in get_close_matches(word, list(options.__annotations__), 1, SIMILARITY_MIN)
    ]
    near = get_close_matches(word, words, 1, SIMILARITY_MIN)
    if near and all(option != word for _, option in inside):
        return f"did you mean {near[0]!r}?"
    for part, option in inside:
        return f"it belongs into {part}=gridstat.{part}({option}={_short(value)})"
    return f"its options are {', '.join(words[:WORDS_MAX])}" if words else "it has no options"


def _words(signature: inspect.Signature) -> list[str]:
    """What may be given by name."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        word
        for word, each in signature.parameters.items()
        if each.kind in by_name and word != "self"
    ]


def _written(signature: inspect.Signature) -> str:
    """How the call is written, without types; what may be left out has its default."""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for word, each in signature.parameters.items()
        if word != "self"
    ]
    plain = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    return str(plain)[1:-1]


def _short(value: object) -> str:
    return reprlib.repr(value)
