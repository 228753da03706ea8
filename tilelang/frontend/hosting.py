"""Host code: Python objects computed with Python itself, its exceptions at the author's line."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from inspect import ismodule
from typing import Any

from ..errors import Loc, ParseError, TileError
from ..ir import Expr
from ..language.build import binary
from ..language.handles import BlockHandle, MethodHandle, TensorHandle, TileHandle
from ..language.values import EXPRS, number_of
from ..reads import MOST  # more items are certainly meant for a loop of the kernel
from . import observed
from .instead import alike, in_language, instead_of
from .scope import Here, Nested

HANDLES = (TensorHandle, TileHandle, BlockHandle, MethodHandle)


def really(loc: Loc, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs host code; what it raises becomes a ParseError."""
    return reading(loc, observed.call, call, *args, **kwargs)


def reading(loc: Loc, read: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The same for one of the reads of `observed`."""
    try:
        return read(*args, **kwargs)
    except TileError as error:
        raise type(error)(error.what, error.loc or loc, error.hint) from None
    except Exception as error:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ParseError(text, loc, _advice(error, args, loc)) from None


def _advice(error: Exception, args: tuple[Any, ...], loc: Loc) -> str:
    """What to write instead of host code that failed with these arguments."""
    module = str(getattr(args[0], "__module__", "")) if args else ""
    if isinstance(error, TypeError) and args[1:] == ((),) and isinstance(args[0], int | float):
        return "without [()] it may be a number, or an array without dimensions"
    if module.startswith("triton.") or "pallas" in module:
        return "x[t] loads what a tile covers, y[t] = ... stores it; t.begin and t.index say where"
    if isinstance(error, AttributeError) and error.name in ("shape", "dtype", "ndim"):
        return f"an array is needed here, and this is {kind_of(error.obj)}: {error.obj!r}"
    if isinstance(error, AttributeError) and error.name:
        if not ismodule(error.obj):  # objects have names of their own
            return alike(error.name, dir(error.obj))
        return in_language(error.name) or instead_of(error.name, dir(error.obj))
    if isinstance(error, IndexError) and args and isinstance(args[0], tuple | list):
        whose, of_shape, _ = loc.text[loc.col : loc.end_col].rpartition(".shape[")
        if not of_shape:
            verb = "is" if len(args[0]) == 1 else "are"
            return f"there {verb} {counted(len(args[0]), 'item')}, counted from 0"
        number = "" if args[0] else ": it is one number, or what jax.jit makes of one"
        return f"{whose} has {counted(len(args[0]), 'dimension')}, its shape is {args[0]}{number}"
    return ""


def iterated(loc: Loc, value: object) -> list[object]:
    """The items of a host value; ParseError for what has none."""
    check_iterable(loc, value)
    if not hasattr(value, "__iter__") and not hasattr(value, "__getitem__"):
        raise ParseError(f"{kind_of(value)} is iterated over", loc, "a sequence is needed here")
    found: list[object] = reading(loc, observed.items, value)
    if len(found) > MOST:
        hint = "hl.grid or hl.tile makes a loop in the kernel"
        raise ParseError(f"a Python loop of over {MOST} iterations would be unrolled", loc, hint)
    return found


def check_iterable(loc: Loc, value: object) -> None:
    """ParseError for what is the kernel's own: its elements are not known one by one."""
    match value:
        case TensorHandle(tensor):
            hint = f"loop over its indices: for i in hl.grid({tensor.name}.shape[0])"
            raise ParseError(f"the tensor {tensor.name} is iterated over", loc, hint)
        case TileHandle(_, user):
            hint = f"index with it as a whole: x[{user}], or {user}.index"
            raise ParseError(f"the tile {user} is iterated over", loc, hint)
        case _:
            pass  # a value, or an object of the author's
    if is_value(value):
        hint = "hl.grid and hl.tile loop over lengths that depend on data"
        raise ParseError("a value of the kernel is iterated over", loc, hint)


# ---------------------------------------------------------------- what values are


def is_value(value: object) -> bool:
    """Whether the value is an expression of the kernel."""
    return isinstance(value, EXPRS)


def computed(value: object) -> bool:
    """Whether an operator on the value is an op of the language."""
    return isinstance(value, (*EXPRS, *HANDLES))


def on_device(value: object) -> bool:
    """Whether Python cannot compute with the value: it is of the kernel, or holds what is."""
    return _holds(value, (*EXPRS, *HANDLES, Nested))


def holds_value(value: object) -> bool:
    """Whether the value is an expression of the kernel, or holds one."""
    return _holds(value, EXPRS)


def _holds(value: object, kinds: tuple[type, ...], around: tuple[int, ...] = ()) -> bool:
    if id(value) in around:  # objects may hold each other
        return False
    parts: tuple[object, ...] = ()
    match value:
        case tuple() | list() | set() | frozenset():
            parts = tuple(value)
        case dict():
            parts = (*value, *value.values())
        case slice():
            parts = (value.start, value.stop, value.step)
        case partial():
            parts = (value.func, value.args, value.keywords)
        case _ if isinstance(value, (*EXPRS, *HANDLES, Nested)):
            return isinstance(value, kinds)
        case _ if is_dataclass(value) and not isinstance(value, type):
            parts = tuple(getattr(value, f.name, None) for f in fields(value))
        case _:
            pass  # what holds nothing
    return any(_holds(part, kinds, (*around, id(value))) for part in parts)


def kind_of(value: object) -> str:
    """What a message calls a value of any kind: "None", "an int", "the tensor x"."""
    match value:
        case None:
            return "None"
        case TensorHandle() | TileHandle() | BlockHandle() | MethodHandle():
            return repr(value)
        case Nested(name):
            return f"the function {name}"
        case _:
            if isinstance(value, EXPRS):
                return f"a value of type {value.type}"
            name = type(value).__name__
            return f"{'an' if name[0].lower() in 'aeiou' or name == 'ndarray' else 'a'} {name}"


def counted(number: int, noun: str) -> str:
    """1 name, 2 names."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def static_int(loc: Loc, value: Any, what: str) -> int:
    """A whole number that is known while compiling."""
    if isinstance(value, MethodHandle):
        hint = f"call it: .{value.name}(...); x.shape[0] is a length"
        raise ParseError(f"{what} is the method {value.name}", loc, hint)
    if computed(value):
        hint = "write a number, or compute it of shapes and of arguments that are no tensors"
        raise ParseError(f"{what} is not known while compiling", loc, hint)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        hint = "// divides whole numbers" if isinstance(value, float) else "a length is an int"
        raise ParseError(f"{what} is {value!r}, not a whole number", loc, hint)
    return int(really(loc, operator.index, value))


# ---------------------------------------------------------------- conditions


def truth(loc: Loc, value: Any, what: str) -> bool | Expr:
    """A condition: decided now for host values, an expression of type () for scalars."""
    value = number_of(value, loc)
    if isinstance(value, EXPRS):
        if value.type.rank:
            chooses = "hl.where(condition, a, b) chooses for each element"
            hint = "~ negates elements: ~(a > 0)" if what == "not" else chooses
            raise ParseError(f"{what} has a condition of type {value.type}", loc, hint)
        return value
    match value:
        case TensorHandle(tensor):
            hint = f"load an element of it: {tensor.name}[{', '.join('0' for _ in tensor.shape)}]"
            raise ParseError(f"{what} has the tensor {tensor.name} as its condition", loc, hint)
        case TileHandle(_, user):
            hint = f"{user}.begin, {user}.end and {user}.id are scalars"
            raise ParseError(f"{what} has the tile {user} as its condition", loc, hint)
        case _:
            return really(loc, bool, value)


def condition(loc: Loc, value: object, what: str) -> bool | Expr:
    """`truth` with scalars of any dtype compared to zero."""
    answer = truth(loc, value, what)
    if isinstance(answer, bool) or answer.type.dtype == "bool":
        return answer
    return binary("ne", answer, 0, loc)


def under(here: Here, answer: Expr, loc: Loc) -> Here:
    """The same place where, besides, the condition holds."""
    before = here.condition
    both = answer if before is None else binary("logical_and", before, answer, loc)
    return replace(here, condition=both)
