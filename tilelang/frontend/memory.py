"""Loads and stores: subscripts of tensors, hl.load and hl.store."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from ..errors import Loc, ParseError, TypingError
from ..ir import Dim, Expr, Gather, Load, Scalar, Store, Tensor, Type
from ..language.build import binary, broadcast, cast
from ..language.build import where as select
from ..language.dtypes import is_float
from ..language.handles import BlockHandle, TensorHandle, TileHandle
from ..language.shapes import expand_dims, squeeze
from ..language.values import as_expr, called, const, show
from . import observed
from .hosting import is_value, kind_of, on_device, reading
from .indexing import Place, items, of_value, place
from .lookup import box_of, looked_up
from .naming import assign
from .ranges import inside
from .scope import Here, evaluate
from .tensors import current, root

Entries = list[tuple[Any, Loc]]
Combine = Literal["add", "maximum", "minimum"]


# ---------------------------------------------------------------- subscripts


def subscript(here: Here, node: ast.Subscript) -> object:
    """base[index]: a load, a new dimension of a value, or an item of a host value."""
    base, loc = evaluate(here, node.value), here.loc(node)
    if isinstance(base, TensorHandle):
        value = load(here, base, items(here, node.slice), loc)
        return value if node is here.whole else _picked(here, value, loc)
    if is_value(base):
        return of_value(base, items(here, node.slice), loc)
    if isinstance(base, TileHandle | BlockHandle):
        name = base.user if isinstance(base, TileHandle) else "tile"
        raise ParseError("a tile is indexed", loc, f"{name}.index[:, None] adds a dimension")
    index = evaluate(here, node.slice)
    if on_device(index):
        raise _host_indexed(base, here.loc(node.slice))
    return reading(loc, observed.item, base, index)


def _host_indexed(base: object, loc: Loc) -> ParseError:
    kind = kind_of(base)
    if hasattr(base, "shape") and hasattr(base, "dtype"):
        hint = "pass it to the kernel as an argument"
        return ParseError(f"{kind} from outside of the kernel is indexed", loc, hint)
    hint = "hl.static_range gives indices that are known while compiling"
    return ParseError(f"{kind} is indexed with a value that depends on data", loc, hint)


# ---------------------------------------------------------------- loads


def load(
    here: Here, handle: TensorHandle, entries: Entries, loc: Loc, mask: Any = None, other: Any = 0
) -> Expr:
    """The block that the entries pick, with a dimension of length 1 for every None."""
    if (box := box_of(entries)) is not None and here.loops:
        read = partial(load, here, handle, loc=loc)
        found = looked_up(here, current(here, handle), entries, box, read)
        return found if mask is None else select(mask, found, other, loc)
    where = place(here, handle, entries, loc, mask is not None)
    tensor = current(here, handle)
    kind = Type(where.shape, "int32" if tensor.dtype == "int64" else tensor.dtype)
    guard = None if mask is None else _mask(mask, where.shape, loc)
    if not inside(here.draft, tensor, where.index):
        guard = _where_it_runs(here, guard, loc)
    value: Expr = Load(tensor.name, where.index, kind, guard, _other(other, kind, loc), loc)
    if not here.loops:
        _early(here, value, loc)
    if where.added:
        value = _picked(here, value, loc)
    for axis in where.added:
        value = expand_dims(value, axis, loc)
    return value


def _picked(here: Here, value: Expr, loc: Loc) -> Expr:
    """Rows that an index tile picks have a name: they are fetched by a statement of their own."""
    if isinstance(value, Load) and any(isinstance(i, Gather) for i in value.index):
        return assign(here, f"{value.tensor}_rows", value, loc)
    return value


def _early(here: Here, value: Expr, loc: Loc) -> None:
    """Host code may read single elements, for the bounds of loops."""
    assert isinstance(value, Load)
    if value.type.rank:
        hint = "load it in the loop that uses it; before the loops only single elements are read"
        raise ParseError(f"{value.tensor} is loaded outside of a loop", loc, hint)
    here.draft.early.append((root(here, value.tensor).name, loc))


def _mask(mask: Any, shape: tuple[Dim, ...], loc: Loc) -> Expr:
    guard = as_expr(mask, loc)
    if guard.type.dtype != "bool":
        hint = "compare it, as in mask=x > 0"
        raise TypingError(f"mask is {called(guard)}, not bool", loc, hint)
    _fitting(guard, shape, f"the mask is {called(guard)}, for a block", loc)
    return guard


def _where_it_runs(here: Here, guard: Expr | None, loc: Loc) -> Expr | None:
    """A mask together with the dynamic `if` around it."""
    if here.condition is None or guard is None:
        return guard if here.condition is None else here.condition
    return binary("logical_and", here.condition, guard, loc)


def _other(other: Any, kind: Type, loc: Loc) -> Scalar:
    if not isinstance(other, bool | int | float):
        hint = "hl.where(mask, value, other) takes any value"
        raise ParseError("`other` is not a number", loc, hint)
    if kind.dtype == "bool":
        return bool(other)
    if isinstance(other, float) and not is_float(kind.dtype):
        hint = "write a whole number"
        raise TypingError(f"other={other} for a tensor of {kind.dtype}", loc, hint)
    return const(other, like=kind.dtype).value


# ---------------------------------------------------------------- stores


def store(
    here: Here, handle: TensorHandle, where: Place, value: Any, loc: Loc, mask: Any = None
) -> None:
    """Emits tensor[index] = value, converted to the tensor's dtype and shaped as the block."""
    tensor = current(here, handle)
    _check_store(here, tensor, where, loc)
    stored = _stored(here, tensor, where, value, loc)
    guard = None if mask is None else _mask(mask, where.shape, loc)
    guard = _where_it_runs(here, guard, loc)
    here.into.append(Store(tensor.name, where.index, stored, loc, guard))


def update(
    here: Here, op: Combine, handle: TensorHandle, given: Mapping[str, Any], loc: Loc
) -> None:
    """Emits tensor[index] = op(tensor[index], value), which other iterations may do as well."""
    tensor, mask = current(here, handle), given["mask"]
    entries = of_index(here, handle, given["index"], loc, mask is not None)
    where = place(here, handle, entries, loc, mask is not None)
    _check_store(here, tensor, where, loc)
    new = _stored(here, tensor, where, given["value"], loc)
    value = binary(op, load(here, handle, entries, loc, mask), new, loc)
    guard = None if mask is None else _mask(mask, where.shape, loc)
    guard = _where_it_runs(here, guard, loc)
    here.into.append(Store(tensor.name, where.index, value, loc, guard, op))


def _check_store(here: Here, tensor: Tensor, where: Place, loc: Loc) -> None:
    if not here.loops:
        hint = "write it in a loop: for i in hl.grid(1): ..."
        raise ParseError(f"{tensor.name} is stored to outside of a loop", loc, hint)
    if where.added:
        raise ParseError("None in the index of a store", loc, "leave it out")
    _mutate(here, tensor.name, loc)
    here.draft.stores.append(loc)


def _stored(here: Here, tensor: Tensor, where: Place, value: Any, loc: Loc) -> Expr:
    """The value in the dtype of the tensor and the shape of the block."""
    stored = _picked(here, as_expr(value, loc), loc)
    stored = _converted(stored, tensor.dtype, tensor.name, loc)
    what = f"{called(stored)} is stored to a block of {tensor.name}"
    return _fitting(stored, where.shape, what, loc)


def _mutate(here: Here, name: str, loc: Loc) -> None:
    """Marks a parameter as changed; JAX arrays never are."""
    owner = root(here, name)
    if owner.dtype == "int64":
        hint = "make it int32: int64 tensors are read only"
        raise ParseError(f"{name} is stored to, and is int64", loc, hint)
    if owner.role != "input":
        return
    if not owner.shape:
        hint = f"pass an array of one element, or make an output, {owner.name} = hl.zeros([])"
        raise ParseError(f"{owner.name} is stored to, and has no dimensions", loc, hint)
    if here.draft.frameworks.get(owner.name) == "jax":
        hint = f"store to a new output, hl.empty_like({owner.name}), and return it"
        raise ParseError(f"{owner.name} is stored to, and JAX arrays cannot be changed", loc, hint)
    here.draft.tensors[owner.name] = replace(owner, mutated=True)


def _converted(value: Expr, dtype: str, name: str, loc: Loc) -> Expr:
    """The value in the tensor's dtype, unless that would drop a fraction unasked."""
    if is_float(value.type.dtype) and not is_float(dtype):
        hint = f"convert it: value.to(hl.{'bool_' if dtype == 'bool' else dtype})"
        raise TypingError(f"{called(value)} is stored to {name}, which is {dtype}", loc, hint)
    return cast(value, dtype, loc)


def _fitting(value: Expr, shape: tuple[Dim, ...], what: str, loc: Loc) -> Expr:
    """The value with the shape of a block of memory."""
    try:
        return broadcast(_no_ones_in_front(value, len(shape), loc), shape, loc)
    except TypingError:
        hint = "the shapes must match; a dimension of length 1 is repeated"
        raise TypingError(f"{what} of shape {show(shape)}", loc, hint) from None


def _no_ones_in_front(value: Expr, rank: int, loc: Loc) -> Expr:
    while value.type.rank > rank and value.type.shape[0] == 1:
        value = squeeze(value, 0, loc)
    return value


def of_index(here: Here, handle: TensorHandle, index: Any, loc: Loc, masked: bool) -> Entries:
    """The entries of hl.load(x, index): a list, a tuple or a single one."""
    several = index if isinstance(index, tuple | list) else (index,)
    if masked and None in several:
        raise ParseError("None in the index of a masked load", loc, "add dimensions afterwards")
    return [(entry, loc) for entry in several]


MEMORY: Mapping[type[ast.expr], Callable[[Here, Any], object]] = {ast.Subscript: subscript}
