"""Calls: ops of the language, outputs, the author's functions, Python's own functions.

    invoke(here, fn, args, kwargs, call) -> value

What is called is evaluated first; what it *is* decides, not how it is spelled.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any

from ..errors import Loc, ParseError
from ..ir import Type, Var
from ..language.calls import (
    Builder,
    creation,
    creation_method,
    marker,
    method,
    operator,
    resolve,
)
from ..language.dtypes import DType, canonical, to_numpy
from ..language.handles import TensorHandle, TileHandle
from ..language.values import name_of
from . import observed, tensors
from .attributes import Method, attribute_of
from .containers import check_mutable, items, mapping, own
from .hosting import is_value, kind_of, on_device, reading, really
from .inlining import inlinable, inline, uses_language
from .markers import MARKERS
from .naming import named, settled
from .refusals import unknown_call
from .scope import Here, Nested, evaluate
from .unrolled import iterated

# Python functions that take values of the kernel as they are, without looking into them.
OPAQUE = (zip, enumerate, tuple, list, dict, reversed, isinstance, type, callable, slice, partial)
COPYING = (list, tuple, set, dict)
ITERATING = (*COPYING, zip, enumerate, reversed)
# fmt: off
CHANGES = frozenset((
    "append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add",
    "discard", "sort", "reverse", "popitem", "__setitem__",
))
# fmt: on
TERMS = 32  # of a sum in one expression: longer ones are computed in steps
HOST_MODULES = ("builtins", "math", "numpy")


@dataclass(frozen=True)
class Call:
    """A call with its arguments evaluated; `text` is how the author wrote the function."""

    args: list[Any]
    kwargs: dict[str, Any]
    loc: Loc
    text: str

    def whole(self) -> Call:
        """The call as an op of the language gets it, which looks into lists and tuples."""
        args = [observed.whole(arg) for arg in self.args]
        return replace(
            self, args=args, kwargs={n: observed.whole(v) for n, v in self.kwargs.items()}
        )

    @property
    def on_device(self) -> bool:
        return on_device(self.args) or on_device(self.kwargs)


def call(here: Here, node: ast.Call) -> object:
    fn = evaluate(here, node.func)
    args = list(items(here, node.args))
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        value = evaluate(here, keyword.value)
        if keyword.arg is None:
            kwargs.update(mapping(here.loc(keyword.value), value))
        else:
            kwargs[keyword.arg] = value
    inner = here if node is not here.whole else replace(here, whole=_body(fn))
    before = len(here.draft.stores)
    value = invoke(inner, fn, Call(args, kwargs, here.loc(node), ast.unparse(node.func)))
    if len(here.draft.stores) > before and node is not here.whole:
        hint = "assign what it returns to a variable, in a statement of its own"
        raise ParseError("a function that stores is called in an expression", here.loc(node), hint)
    return value


def _body(fn: Any) -> ast.expr | None:
    """The expression that is all that a lambda does."""
    return fn.node.body if isinstance(fn, Nested) and isinstance(fn.node, ast.Lambda) else None


def invoke(here: Here, fn: Any, given: Call) -> Any:
    """The value of a call."""
    if isinstance(fn, partial):
        before, named = observed.whole_attributes(fn, "args", "keywords")
        given = replace(given, args=[*before, *given.args], kwargs={**named, **given.kwargs})
        return invoke(here, observed.attribute(fn, "func"), given)
    if isinstance(fn, Nested):
        return inline(here, fn, given.args, given.kwargs, given.loc)
    special = next((rule for python, rule in _SPECIAL if python is fn), None)
    if special is not None:
        return special(here, given)
    if isinstance(fn, Method):
        return _method(here, fn, given.whole())
    if (name := marker(fn)) is not None:
        inner = given.whole()
        return MARKERS[name](here, inner.loc, inner.args, inner.kwargs)
    if (builder := resolve(fn)) is not None:
        return _op(here, fn, builder, given.whole())
    return _python(here, fn, given)


# ---------------------------------------------------------------- ops


def _op(here: Here, fn: Any, builder: Builder, given: Call) -> Any:
    """An op of the language; on host values Python's and NumPy's functions are themselves."""
    kind = creation(fn)
    if kind is not None and not here.loops:
        made = tensors.output(here, given.loc, kind, given.args, given.kwargs)
        if made is not None:
            return made
    module, _, name = builder.name.rpartition(".")
    makes_values = kind is not None or name == "arange"
    if not given.on_device and not makes_values and (not module or module in HOST_MODULES):
        return _hosted(fn, module, given)
    if given.args and isinstance(given.args[0], TensorHandle) and not makes_values:
        handle, *rest = given.args
        return tensors.rearranged(here, given.loc, handle, builder, rest, given.kwargs)
    return settled(builder(given.loc, *given.args, **given.kwargs))


def _hosted(fn: Any, module: str, given: Call) -> Any:
    dtype = canonical(fn) if not module and fn not in (int, float, bool) else None
    if dtype is not None and len(given.args) == 1 and not given.kwargs:
        return really(given.loc, to_numpy(dtype).type, given.args[0])  # jnp.float32(0.5)
    return really(given.loc, fn, *given.args, **given.kwargs)


def _method(here: Here, bound: Method, given: Call) -> Any:
    receiver, name, loc = bound.receiver, bound.name, given.loc
    kind = creation_method(name)
    if isinstance(receiver, TensorHandle):
        if kind is not None:
            return _new(here, receiver, kind, given)
        if name in ("numel", "nelement"):
            return tensors.numel(receiver)
        builder = method(name)
        if builder is None:
            raise ParseError(f"{receiver.tensor.name} has no method {name}", loc)
        return tensors.called(here, loc, receiver, name, builder, given.args, given.kwargs)
    builder = method(name)
    if builder is None:
        raise ParseError(f"a value of the kernel has no method {name}", loc)
    return settled(builder(loc, receiver, *given.args, **given.kwargs))


def _new(here: Here, receiver: TensorHandle, kind: str, given: Call) -> Any:
    """x.new_zeros(shape): a tensor in host code; in a loop a value of x's dtype."""
    if not here.loops:
        return tensors.output(here, given.loc, kind, [receiver, *given.args], given.kwargs)
    builder = method(kind)
    assert builder is not None
    dtype = Type((), receiver.tensor.dtype)
    scalar = Var(receiver.tensor.name, dtype)
    return settled(builder(given.loc, scalar, *given.args, **given.kwargs))


# ---------------------------------------------------------------- Python functions


def _python(here: Here, fn: Any, given: Call) -> Any:
    """The author's functions are inlined; others are called, if all they need is on the host."""
    loc = given.loc
    if not callable(fn):
        raise ParseError(f"{given.text} is called, and is {kind_of(fn)}", loc)
    if type(fn).__module__ == "tilelang.api":
        hint = "call the function without the decorator, or call one kernel after the other"
        raise ParseError(f"the kernel {given.text} is called inside of a kernel", loc, hint)
    found = inlinable(fn)
    if found is not None and (given.on_device or uses_language(found[0]) or on_device(found[1])):
        return inline(here, found[0], [*found[1], *given.args], given.kwargs, loc)
    owner = getattr(fn, "__self__", None)
    if getattr(fn, "__name__", "") in CHANGES and isinstance(owner, list | dict | set):
        check_mutable(here, owner, loc)
        return really(loc, fn, *given.args, **given.kwargs)
    if given.on_device and not _takes_anything(fn):
        raise unknown_call(given.text, loc)
    if any(fn is python for python in ITERATING):
        return _iterating(here, fn, given)
    return really(loc, fn, *_of_framework(fn, given.args), **given.kwargs)


def _iterating(here: Here, fn: Any, given: Call) -> Any:
    """list(items), zip(a, b): the kernel's own sequences, of items that are read one by one."""
    if fn not in COPYING:
        args = [observed.listed(arg) for arg in given.args]
        return really(given.loc, fn, *args, **given.kwargs)
    made = observed.whole(really(given.loc, fn, *given.args, **given.kwargs))
    return made if fn is tuple else own(here, made)


def _takes_anything(fn: Any) -> bool:
    if any(fn is python for python in OPAQUE):
        return True
    if isinstance(fn, type):
        return issubclass(fn, tuple) or is_dataclass(fn)
    return isinstance(getattr(fn, "__self__", None), list | tuple | dict)


def _of_framework(fn: Any, args: list[Any]) -> list[Any]:
    """torch.finfo and its kin know their own dtypes only."""
    if not str(getattr(fn, "__module__", "")).startswith("torch"):
        return args
    torch = sys.modules["torch"]
    return [getattr(torch, a.name) if isinstance(a, DType) else a for a in args]


# ---------------------------------------------------------------- Python functions with a meaning


def _len(here: Here, given: Call) -> Any:
    value = given.args[0] if len(given.args) == 1 else None
    if isinstance(value, TensorHandle):
        return tensors.length(given.loc, value)
    if isinstance(value, TileHandle):
        hint = f"{value.user}.end - {value.user}.begin is how many positions it covers"
        raise ParseError(f"the length of tile {value.user} depends on data", given.loc, hint)
    if is_value(value):
        raise ParseError("len of a value of the kernel", given.loc, "its shape is value.shape")
    return really(given.loc, len, *given.args)


def _range(here: Here, given: Call) -> Any:
    if given.on_device:
        hint = "loop with hl.grid(...), or with hl.tile(...) over tiles"
        raise ParseError("range has a bound that depends on data", given.loc, hint)
    return really(given.loc, range, *given.args)


def _sum(here: Here, given: Call) -> Any:
    """sum([a, b, c]) of values; of one value it would be a reduction."""
    if not given.on_device or not given.args:
        return really(given.loc, sum, *given.args, **given.kwargs)
    if is_value(given.args[0]):
        hint = f"write {name_of(given.args[0], 'x')}.sum(0)"
        raise ParseError("Python's sum of one value of the kernel", given.loc, hint)
    found = iterated(given.loc, given.args[0])
    total = given.args[1] if len(given.args) > 1 else given.kwargs.get("start", 0)
    if total == 0 and isinstance(total, int) and found:
        total, *found = found
    for place, item in enumerate(found):
        total = settled(operator("+")(given.loc, total, item))
        if place % TERMS == TERMS - 1:
            total = named(here, "total", total, given.loc)
    return total


def _getattr(here: Here, given: Call) -> Any:
    if given.on_device and len(given.args) > 1:
        return attribute_of(here, given.loc, given.args[0], given.args[1])
    if len(given.args) == 2:
        return reading(given.loc, observed.attribute, *given.args)
    return really(given.loc, getattr, *given.args)


def _print(here: Here, given: Call) -> Any:
    hint = "print what the kernel returns, or use Kernel.explain(...) and print_source(...)"
    raise ParseError("print is not in the language", given.loc, hint)


def _extreme(fn: Any) -> Callable[[Here, Call], Any]:
    """max([a, b]) is max(a, b); one value alone would be a reduction."""

    def rule(here: Here, given: Call) -> Any:
        many = len(given.args) == 1 and not given.kwargs and not is_value(given.args[0])
        if not given.on_device:
            return really(given.loc, fn, *given.args, **given.kwargs)
        args = iterated(given.loc, given.args[0]) if many else given.args
        builder = resolve(fn)
        assert builder is not None
        return (
            args[0]
            if many and len(args) == 1
            else settled(builder(given.loc, *args, **given.kwargs))
        )

    return rule


_SPECIAL: tuple[tuple[Any, Callable[[Here, Call], Any]], ...] = (
    (len, _len),
    (range, _range),
    (sum, _sum),
    (max, _extreme(max)),
    (min, _extreme(min)),
    (getattr, _getattr),
    (print, _print),
)
CALLS: Mapping[type[ast.expr], Callable[[Here, Any], object]] = {ast.Call: call}
