"""Loads and stores: subscripts of tensors, hl.load and hl.store."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from ..errors import Loc, ParseError, TypingError, stored_to_jax
from ..ir import Dim, Expr, Gather, Load, Scalar, Store, Tensor, Type, map_index, map_stmt
from ..language.build import binary, broadcast, cast
from ..language.build import where as select
from ..language.dtypes import is_float
from ..language.handles import BlockHandle, TensorHandle, TileHandle
from ..language.shapes import expand_dims, squeeze
from ..language.values import as_expr, called, const, show
from . import observed
from .hosting import is_value, kind_of, on_device, reading
from .indexing import Entries, Place, items, of_value, place
from .lookup import box_of, looked_up
from .positions import inside
from .scope import Here, Rules, as_written, assign, evaluate, loaded
from .tensors import current

Combine = Literal["add", "maximum", "minimum"]


# ---------------------------------------------------------------- subscripts


def subscript(here: Here, node: ast.Subscript) -> object:
    """base[index]: a load, a new dimension of a value, or an item of a host value."""
    base, loc = evaluate(here, node.value), here.loc(node)
    if isinstance(base, TensorHandle):
        value = load(here, base, items(here, node.slice), loc)
        return value if node is here.whole else _gathered(here, value, loc)
    if is_value(base):
        return of_value(base, items(here, node.slice), loc)
    if isinstance(base, TileHandle | BlockHandle):
        name = base.user if isinstance(base, TileHandle) else "tile"
        raise ParseError("a tile is indexed", loc, f"{name}.index[:, None] adds a dimension")
    index = evaluate(here, node.slice)
    if not on_device(index):
        return reading(loc, observed.item, base, index)
    kind, loc = kind_of(base), here.loc(node.slice)
    if hasattr(base, "shape") and hasattr(base, "dtype"):
        hint = "pass it to the kernel as an argument"
        raise ParseError(f"{kind} from outside of the kernel is indexed", loc, hint)
    hint = "hl.static_range gives indices that are known while compiling"
    if not hasattr(base, "__getitem__"):
        hint = "pass an array where a kernel loads from its argument"
    raise ParseError(f"{kind} is indexed with a value that is not known while compiling", loc, hint)


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
    guard = _mask(here, mask, where.shape, loc, not inside(here.draft, tensor, where.index))
    read = Load(tensor.name, where.index, kind, guard, _other(other, kind, loc), loc)
    value: Expr = loaded(here, read, loc)
    if not here.loops and kind.rank:
        hint = "load it in the loop that uses it, which is one of hl.tile or hl.grid (a range is "
        hint += "written out); before the loops only single elements are read"
        raise ParseError(f"{tensor.name} is loaded outside of a loop", loc, hint)
    if not here.loops:  # for the bounds of loops
        here.draft.early.append((here.draft.root(tensor.name).name, loc))
    if where.added:
        value = _gathered(here, value, loc)
    for axis in where.added:
        value = expand_dims(value, axis, loc)
    return value


def _gathered(here: Here, value: Expr, loc: Loc) -> Expr:
    """Rows that an index tile picks have a name: they are fetched by a statement of their own."""
    if isinstance(value, Load) and any(isinstance(i, Gather) for i in value.index):
        return assign(here, f"{value.tensor}_rows", value, loc)
    return value


def _mask(
    here: Here, mask: Any, shape: tuple[Dim, ...], loc: Loc, under: bool = True
) -> Expr | None:
    """The mask that was asked for, `under` the dynamic `if` around it."""
    around = here.condition if under else None
    if mask is None:
        return around
    guard = as_expr(mask, loc)
    if guard.type.dtype != "bool":
        hint = "compare it, as in mask=x > 0"
        raise TypingError(f"mask is {called(guard)}, not bool", loc, hint)
    _fitting(guard, shape, f"the mask is {called(guard)}, for a block", loc)
    return guard if around is None else binary("logical_and", around, guard, loc)


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
    guard = _mask(here, mask, where.shape, loc)
    _emit(here, Store(tensor.name, where.index, stored, loc, guard))


def update(
    here: Here, op: Combine, handle: TensorHandle, given: Mapping[str, Any], loc: Loc
) -> None:
    """Emits tensor[index] = op(tensor[index], value), which other iterations may do as well."""
    tensor, mask = current(here, handle), given["mask"]
    entries = of_index(given["index"], loc, mask is not None)
    where = place(here, handle, entries, loc, mask is not None)
    _check_store(here, tensor, where, loc)
    new = _stored(here, tensor, where, given["value"], loc)
    value = binary(op, load(here, handle, entries, loc, mask), new, loc)
    guard = _mask(here, mask, where.shape, loc)
    _emit(here, Store(tensor.name, where.index, value, loc, guard, op))


def _emit(here: Here, store: Store) -> None:
    def visit(expr: Expr) -> Expr:
        return as_written(here, expr)

    here.into.append(map_stmt(store, visit, lambda entry: map_index(entry, visit)))
    here.draft.stores.append(here.draft.root(store.tensor).name)


def _check_store(here: Here, tensor: Tensor, where: Place, loc: Loc) -> None:
    if not here.loops:
        hint = "write it in a loop of the kernel: for i in hl.grid(1): ..."
        raise ParseError(f"{tensor.name} is stored to outside of a loop", loc, hint)
    if where.added:
        raise ParseError("None in the index of a store", loc, "leave it out")
    _mutate(here, tensor.name, loc)


def _stored(here: Here, tensor: Tensor, where: Place, value: Any, loc: Loc) -> Expr:
    """The value in the dtype of the tensor and the shape of the block."""
    stored, dtype = _gathered(here, as_expr(value, loc), loc), tensor.dtype
    if is_float(stored.type.dtype) and not is_float(dtype):  # no fraction is dropped unasked
        hint = f"convert it: value.to(hl.{'bool_' if dtype == 'bool' else dtype})"
        what = f"{called(stored)} is stored to {tensor.name}, which is {dtype}"
        raise TypingError(what, loc, hint)
    stored = cast(stored, dtype, loc)
    what = f"{called(stored)} is stored to a block of {tensor.name}"
    return _fitting(stored, where.shape, what, loc)


def _mutate(here: Here, name: str, loc: Loc) -> None:
    """Marks a parameter as changed; JAX arrays never are."""
    owner = here.draft.root(name)
    if owner.dtype == "int64":
        hint = "make it int32: int64 tensors are read only"
        raise ParseError(f"{name} is stored to, and is int64", loc, hint)
    if owner.role != "input":
        return
    if not owner.shape:
        hint = f"pass an array of one element, or make an output, {owner.name} = hl.zeros([])"
        raise ParseError(f"{owner.name} is stored to, and has no dimensions", loc, hint)
    if here.draft.frameworks.get(owner.name) == "jax":
        raise stored_to_jax(owner.name, loc)
    here.draft.tensors[owner.name] = replace(owner, mutated=True)


def _fitting(value: Expr, shape: tuple[Dim, ...], what: str, loc: Loc) -> Expr:
    """The value with the shape of a block of memory."""
    while value.type.rank > len(shape) and value.type.shape[0] == 1:
        value = squeeze(value, 0, loc)
    try:
        return broadcast(value, shape, loc)
    except TypingError:
        rank, hint = value.type.rank, "the shapes must match; a dimension of length 1 is repeated"
        if 0 < rank < len(shape) and value.type.shape == shape[:rank]:
            behind = ", ".join([*":" * rank, *["None"] * (len(shape) - rank)])
            hint = f"give it the dimensions that it lacks, of length 1: (...)[{behind}]"
        elif shape == value.type.shape[::-1]:
            hint = "turn it: (...).T"
        elif len({*value.type.shape}) < rank:
            hint = (
                "x[t, i[t]] has each position of t with each: one number a row is "
                "flat[t.index * N + i[t]], of flat = x.reshape(-1) with rows of N"
            )
        elif over := [d for d in value.type.shape if isinstance(d, str) and d not in shape]:
            hint = f"{over[0]} is no dimension there: index with it, or fold over it"
        raise TypingError(f"{what} of shape {show(shape)}", loc, hint) from None


def of_index(index: Any, loc: Loc, masked: bool) -> Entries:
    """The entries of hl.load(x, index): a list, a tuple or a single one."""
    several = index if isinstance(index, tuple | list) else (index,)
    if masked and None in several:
        raise ParseError("None in the index of a masked load", loc, "add dimensions afterwards")
    return [(entry, loc) for entry in several]


RULES: Rules = {ast.Subscript: subscript}
