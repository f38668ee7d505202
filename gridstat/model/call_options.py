"""Checked calls: an unknown option is refused with a hint that names the nearest known one.

Python refuses an unknown keyword if a function names its parameters, but suggests no other one; a
function with `**options` accepts every keyword. The decorators below turn both into `WrongCall`,
for functions, for the public methods of a class, and for its constructor. A correct call costs one
additional Python call.
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
OPTIONS_LISTED_MAX: Final = 24
"""Maximum number of options in a hint; no call of gridstat has more."""
_NO_PARTS: Final[Mapping[str, type]] = MappingProxyType({})


class _LeftOut:
    """Default of an optional option, as `help` shows it."""

    def __repr__(self) -> str:
        return "…"


def checked_call(
    *, options: type | None = None, parts: Mapping[str, type] = _NO_PARTS
) -> Callable[[Callable[Params, Result]], Callable[Params, Result]]:
    """Return a decorator for functions that refuse wrong arguments with `WrongCall`.

    `options` is the TypedDict behind `**options`, if the function has them. `parts` says which
    parameter consists of which options (a TypedDict): with `{"qos": QosOptions}` the hint for
    `redundancy` points to `qos`.
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
                    raise  # Raised inside the call: its arguments were correct.
                refusal = _refusal(_name(call), signature, args, kwargs, parts)
            raise refusal

        found: Callable[Params, Result] = checked
        if inspect.iscoroutinefunction(call):
            found = _as_coroutine_function(checked)
        found.__signature__ = signature  # type: ignore[attr-defined]
        return found

    return decorate


def checked_calls(
    *, but: Collection[str] = (), parts: Mapping[str, type] = _NO_PARTS
) -> Callable[[Class], Class]:
    """Return a decorator for classes: public methods and the constructor refuse wrong arguments.

    `but` names methods that are called too often for an additional Python call; they keep Python's
    own refusal. A class without a constructor keeps the inherited one.
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


def _as_coroutine_function(checked: Callable[Params, Any]) -> Callable[Params, Any]:
    """Return a function that `inspect` and frameworks see as a coroutine function.

    Its refusal comes when it is awaited.
    """

    @wraps(checked)
    async def awaited(*args: Params.args, **kwargs: Params.kwargs) -> object:
        return await checked(*args, **kwargs)

    return awaited


def unknown_option(call: Callable[..., Any], given: Mapping[str, object]) -> WrongCall:
    """Return the refusal of options that `call` does not have.

    It serves functions that are called too often to be wrapped: `**unknown: Never` costs a tenth
    of a wrapper.
    """
    return _refusal(_name(call), inspect.signature(call), (), given, _NO_PARTS)


def _signature(call: Callable[..., Any], options: type | None) -> inspect.Signature:
    """Return the signature that `help` shows, with the options of a TypedDict as parameters."""
    found = inspect.signature(call)
    if options is None:
        return found
    named = [each for each in found.parameters.values() if each.kind is not each.VAR_KEYWORD]
    named += [
        inspect.Parameter(
            option,
            inspect.Parameter.KEYWORD_ONLY,
            default=_LeftOut(),
            annotation=kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind,
        )
        for option, kind in options.__annotations__.items()
    ]
    return found.replace(parameters=named)


def _name(call: Callable[..., Any]) -> str:
    """Return the name in the caller's code: for a constructor, that of its class."""
    *_, owner, name = ("", *call.__qualname__.split("."))
    return owner if name == "__init__" else name


def _refusal(
    name: str,
    signature: inspect.Signature,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    parts: Mapping[str, type],
) -> WrongCall:
    names = _option_names(signature)
    for option, value in kwargs.items():
        if option not in names:
            return WrongCall(
                f"{name}() has no option {_short(option)}", hint=_hint(option, value, names, parts)
            )
    try:
        signature.bind(*args, **kwargs)
    except TypeError as problem:
        reason = str(problem)
    else:
        reason = "these arguments do not fit"
    return WrongCall(f"{name}(): {reason}", hint=f"write {name}({_parameters_text(signature)})")


def _hint(given: str, value: object, names: list[str], parts: Mapping[str, type]) -> str:
    inside = [
        (part, option)
        for part, options in parts.items()
        if part in names
        for option in get_close_matches(given, list(options.__annotations__), 1, SIMILARITY_MIN)
    ]
    near = get_close_matches(given, names, 1, SIMILARITY_MIN)
    if near and all(option != given for _, option in inside):
        return f"did you mean {near[0]!r}?"
    for part, option in inside:
        return f"it belongs into {part}=gridstat.{part}({option}={_short(value)})"
    listed = names[:OPTIONS_LISTED_MAX]
    return f"its options are {', '.join(listed)}" if listed else "it has no options"


def _option_names(signature: inspect.Signature) -> list[str]:
    """Return the names of all parameters that may be given as keywords."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        option
        for option, each in signature.parameters.items()
        if each.kind in by_name and option != "self"
    ]


def _parameters_text(signature: inspect.Signature) -> str:
    """Return the parameters of the call as text, with defaults and without types."""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for option, each in signature.parameters.items()
        if option != "self"
    ]
    plain = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    return str(plain)[1:-1]


def _short(value: object) -> str:
    return reprlib.repr(value)
