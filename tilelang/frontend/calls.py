"""Calls: ops of the language, outputs, the author's functions, Python's own functions.

    invoke(here, fn, given) -> value

What is called is evaluated first; what it *is* decides, not how it is spelled.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any

from ..errors import ParseError
from ..ir import Load, Type, Var
from ..language.calls import Builder, creation, creation_method, marker, method, operator, resolve
from ..language.dtypes import DType, canonical, to_numpy
from ..language.handles import MethodHandle, TensorHandle, TileHandle
from ..language.values import name_of
from ..reads import is_kernel
from . import observed, tensors
from .attributes import attribute_of
from .containers import check_comparable, check_mutable, consumed, items, keywords, own
from .hosting import check_iterable, is_value, iterated, kind_of, on_device, reading, really
from .inlining import inlinable, inline, uses_language
from .instead import in_language, unknown_call
from .markers import MARKERS
from .scope import Arguments, Here, Nested, Rules, evaluate, named, settled

# Python functions that take values of the kernel as they are, without looking into them.
OPAQUE = (zip, enumerate, tuple, list, dict, reversed, isinstance, type, callable, slice, partial)
COPYING = (list, tuple, set, dict)
ITERATING = (*COPYING, zip, enumerate, reversed)
# fmt: off
CHANGES = frozenset((
    "append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add",
    "discard", "sort", "reverse", "popitem", "__setitem__", "intersection_update",
    "difference_update", "symmetric_difference_update",
))
CONSUMING = frozenset((  # take the items of their arguments
    "extend", "update", "union", "intersection", "difference", "symmetric_difference", "issubset",
    "issuperset", "isdisjoint", "intersection_update", "difference_update",
    "symmetric_difference_update",
))
# fmt: on
# Methods that compare with their first argument, or hash it; the first three compare items.
LOOKING_UP = ("index", "count", "remove", "get", "pop", "setdefault", "add", "discard")
TERMS = 32  # of a sum in one expression: longer ones are computed in steps
HOST_MODULES = ("builtins", "math", "numpy", "jax.experimental.pallas", "triton")


def call(here: Here, node: ast.Call) -> object:
    fn, loc = evaluate(here, node.func), here.loc(node)
    args = list(items(here, node.args))
    given = Arguments(args, keywords(here, node.keywords), loc, ast.unparse(node.func))
    inner, before = here, len(here.draft.stores)
    if node is here.whole:
        lone = isinstance(fn, Nested) and isinstance(fn.node, ast.Lambda)
        inner = replace(here, whole=fn.node.body if lone else None)
    value = invoke(inner, fn, given)
    if len(here.draft.stores) > before and node is not here.whole:
        hint = "assign what it returns to a variable, in a statement of its own"
        raise ParseError("a function that stores is called in an expression", loc, hint)
    return value


def invoke(here: Here, fn: Any, given: Arguments) -> Any:
    """The value of a call."""
    if isinstance(fn, partial):
        before, named_ = observed.whole_attributes(fn, "args", "keywords")
        given = replace(given, args=[*before, *given.args], kwargs={**named_, **given.kwargs})
        return invoke(here, observed.attribute(fn, "func"), given)
    if isinstance(fn, Nested):
        return inline(here, fn, given)
    special = next((rule for python, rule in _SPECIAL if python is fn), None)
    if special is not None:
        return special(here, given)
    if isinstance(fn, MethodHandle):
        return _method(here, fn, _plain(given))
    if (name := marker(fn)) is not None:
        return MARKERS[name](here, _plain(given))
    if (builder := resolve(fn)) is not None:
        return _op(here, fn, builder, given)
    return _python(here, fn, given)


def _plain(given: Arguments) -> Arguments:
    """The call as an op of the language gets it, which looks into lists and tuples."""
    args = [observed.plain(arg) for arg in given.args]
    return replace(given, args=args, kwargs={n: observed.plain(v) for n, v in given.kwargs.items()})


def _on_device(given: Arguments) -> bool:
    return on_device(given.args) or on_device(given.kwargs)


# ---------------------------------------------------------------- ops


def _op(here: Here, fn: Any, builder: Builder, given: Arguments) -> Any:
    """An op of the language; on host values Python's and NumPy's functions are themselves."""
    kind = creation(fn)
    module, _, name = builder.name.rpartition(".")
    makes_values = kind is not None or name == "arange"
    if not _on_device(given) and not makes_values and (not module or module in HOST_MODULES):
        return _hosted(fn, module, given)
    given = _plain(given)
    if kind is not None and not here.loops:
        made = tensors.output(here, kind, given)
        if made is not None:
            return made
    if given.args and isinstance(given.args[0], TensorHandle) and not makes_values:
        return tensors.rearranged(here, builder, given)
    return _made(here, builder, given)


def _made(here: Here, builder: Builder, given: Arguments) -> Any:
    """What an op makes.  Where it makes several values of one, that one is computed once."""
    made = builder(given.loc, *given.args, **given.kwargs)
    if isinstance(made, tuple) and on_device(made) and given.args and _is_computed(given.args[0]):
        whole = named(here, "whole", given.args[0], given.loc)
        made = builder(given.loc, whole, *given.args[1:], **given.kwargs)
    return settled(made)


def _is_computed(value: object) -> bool:
    return is_value(value) and not isinstance(value, Load)


def _hosted(fn: Any, module: str, given: Arguments) -> Any:
    dtype = canonical(fn) if not module and fn not in (int, float, bool) else None
    if dtype is not None and len(given.args) == 1 and not given.kwargs:
        return really(given.loc, to_numpy(dtype).type, given.args[0])  # jnp.float32(0.5)
    return really(given.loc, fn, *given.args, **given.kwargs)


def _method(here: Here, bound: MethodHandle, given: Arguments) -> Any:
    receiver: Any = bound.receiver
    name, builder = bound.name, method(bound.name)
    if isinstance(receiver, TensorHandle):
        kind = creation_method(name)
        if kind is not None and not here.loops:
            given = replace(given, args=[receiver, *given.args])
            return tensors.output(here, kind, given)
        if kind is not None:  # in a loop x.new_zeros(shape) is a value of x's dtype
            receiver = Var(receiver.tensor.name, Type((), receiver.tensor.dtype))
        else:
            return tensors.called(here, name, builder, replace(given, args=[receiver, *given.args]))
    if builder is None:
        raise ParseError(f"a value of the kernel has no method {name}", given.loc)
    return _made(here, builder, replace(given, args=[receiver, *given.args]))


# ---------------------------------------------------------------- Python functions


def _python(here: Here, fn: Any, given: Arguments) -> Any:
    """The author's functions are inlined; others are called, if all they need is on the host."""
    loc, is_on_device = given.loc, _on_device(given)
    if not callable(fn):
        hint = in_language(given.text)
        raise ParseError(f"{given.text} is called, and is {kind_of(fn)}", loc, hint)
    if is_kernel(fn):
        hint = "call it before this one, and pass what it returns; functions are inlined"
        raise ParseError(f"the kernel {given.text} is called inside of a kernel", loc, hint)
    found = inlinable(fn)
    if found is not None and (is_on_device or uses_language(found[0]) or on_device(found[1])):
        return inline(here, found[0], replace(given, args=[*found[1], *given.args]))
    owner = getattr(fn, "__self__", None)
    name = getattr(fn, "__name__", "")
    if name in LOOKING_UP and isinstance(owner, list | tuple | dict | set | frozenset):
        check_comparable(loc, given.args[:1], owner if name in LOOKING_UP[:3] else ())
    if name in CONSUMING and isinstance(owner, list | dict | set | frozenset):
        given = replace(given, args=[consumed(loc, owner, arg) for arg in given.args])
    if name in CHANGES and isinstance(owner, list | dict | set):
        check_mutable(here, owner, loc)
        return really(loc, fn, *given.args, **given.kwargs)
    if is_on_device and not _takes_anything(fn):
        raise unknown_call(given.text, loc)
    if is_on_device and (hook := _own_hook(fn)):
        what = f"{hook} of {given.text} is run by Python, on values of the kernel"
        hint = "pass it host values, or write a function of what it computes"
        raise ParseError(what, loc, hint)
    if any(fn is python for python in ITERATING):
        return _iterating(here, fn, given)
    return really(loc, fn, *_of_framework(fn, given.args), **given.kwargs)


def _iterating(here: Here, fn: Any, given: Arguments) -> Any:
    """list(items), zip(a, b): the kernel's own sequences, of items that are read one by one."""
    for arg in given.args:
        check_iterable(given.loc, arg)
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


def _own_hook(fn: Any) -> str:
    """What of the author's runs when an object of the class is made; "" if nothing."""
    for name in ("__new__", "__init__", "__post_init__") if isinstance(fn, type) else ():
        hook = getattr(fn, name, None)
        if isinstance(hook, FunctionType) and not hook.__code__.co_filename.startswith("<"):
            return name
    return ""


def _of_framework(fn: Any, args: list[Any]) -> list[Any]:
    """torch.finfo and its kin know their own dtypes only."""
    if not str(getattr(fn, "__module__", "")).startswith("torch"):
        return args
    torch = sys.modules["torch"]
    return [getattr(torch, a.name) if isinstance(a, DType) else a for a in args]


# ---------------------------------------------------------------- Python functions with a meaning


def _len(here: Here, given: Arguments) -> Any:
    value = given.args[0] if len(given.args) == 1 else None
    if isinstance(value, TensorHandle):
        if not value.tensor.shape:
            what = f"{value.tensor.name} has no dimensions, and so no length"
            raise ParseError(what, given.loc)
        return value.tensor.shape[0]
    if isinstance(value, TileHandle):
        hint = f"{value.user}.end - {value.user}.begin is how many positions it covers; "
        hint += f"in shapes it stands for its length: hl.zeros([{value.user}])"
        what = f"the length of tile {value.user} is not known while compiling"
        raise ParseError(what, given.loc, hint)
    if is_value(value):
        raise ParseError("len of a value of the kernel", given.loc, "its shape is value.shape")
    return really(given.loc, len, *given.args)


def _range(here: Here, given: Arguments) -> Any:
    if _on_device(given):
        hint = "loop with hl.grid(...), or with hl.tile(...) over tiles"
        raise ParseError("range has a bound that is not known while compiling", given.loc, hint)
    return really(given.loc, range, *given.args)


def _sum(here: Here, given: Arguments) -> Any:
    """sum([a, b, c]) of values; of one value it would be a reduction."""
    if not _on_device(given) or not given.args:
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


def _getattr(here: Here, given: Arguments) -> Any:
    if _on_device(given) and len(given.args) > 1:
        return attribute_of(here, given.loc, given.args[0], given.args[1])
    if len(given.args) == 2:
        return reading(given.loc, observed.attribute, *given.args)
    return really(given.loc, getattr, *given.args)


def _print(here: Here, given: Arguments) -> Any:
    hint = "print what the kernel returns, or use Kernel.explain(...) and print_source(...)"
    raise ParseError("print is not in the language", given.loc, hint)


def _extreme(fn: Any) -> Callable[[Here, Arguments], Any]:
    """max([a, b]) is max(a, b); one value alone would be a reduction."""

    def rule(here: Here, given: Arguments) -> Any:
        if not _on_device(given):
            return really(given.loc, fn, *given.args, **given.kwargs)
        args = given.args
        if len(args) == 1 and not given.kwargs and not is_value(args[0]):
            args = iterated(given.loc, args[0])
            if len(args) == 1:
                return args[0]
        builder = resolve(fn)
        assert builder is not None
        return settled(builder(given.loc, *args, **given.kwargs))

    return rule


_SPECIAL: tuple[tuple[Any, Callable[[Here, Arguments], Any]], ...] = (
    (len, _len),
    (range, _range),
    (sum, _sum),
    (max, _extreme(max)),
    (min, _extreme(min)),
    (getattr, _getattr),
    (print, _print),
)
RULES: Rules = {ast.Call: call}
