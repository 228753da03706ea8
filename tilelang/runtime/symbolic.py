"""with_symbols(values, ...) -> Any: a call whose numbers of rows are symbols of `jax.export`.

Blocks and windows are planned for numbers.  So the program is that of the most rows that the
symbols allow (`constraints=["rows <= 65536"]`): arguments are padded, as for `buckets`, and results
are cut.  What is proved is that more rows change nothing but how many there are: the kernel is
parsed for two lengths, and is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import CallError
from ..ir import KernelIR
from .buckets import bucket, ending, ends, ragged_rows, same_but_for_rows
from .recompiles import Rows
from .tensors import is_symbolic

Parse = Callable[[tuple[Any, ...]], KernelIR]
MOST = 1 << 31


@dataclass(frozen=True)
class Symbol:
    """A length that is a symbol, or is computed of some; the program is made for `most`."""

    length: Any
    most: int
    other: int  # a second length, of no other symbol

    def stands_for(self, size: Any) -> bool:
        """Whether a length is this one."""
        return size is self.length or bool(size == self.length)


def _is_number(size: Any) -> bool:
    return isinstance(size, int)


def with_symbols(
    names: Sequence[str], values: Sequence[Any], rows: Rows, parse: Parse, call: Callable[..., Any]
) -> Any:
    """The results of `call`; CallError where lengths must be numbers."""
    given = dict(zip(names, values, strict=True))
    moving = {n: v.shape for n, v in given.items() if is_symbolic(v)}
    if rows != "bucket":
        name, shape = next(iter(moving.items()))
        raise CallError(
            f"{name} has the symbolic shape {shape}",
            hint="kernels are compiled for shapes that are known: mark the sizes as static; rows "
            'may be symbols that have a bound, with @tile.kernel(rows="bucket")',
        )
    symbols = _symbols(moving)
    one, two = (_specialised(given, symbols, first, parse) for first in (True, False))
    _check(one, two, moving)
    results = call(**{n: _padded(v, symbols) for n, v in _ended(one, given).items()})
    lengths = [_lengths(one, two, name, symbols) for name in one.returns]
    several = results if isinstance(results, tuple) else (results,)
    cut = [r[tuple(map(slice, shape))] for r, shape in zip(several, lengths, strict=True)]
    return tuple(cut) if isinstance(results, tuple) else cut[0]


# ---------------------------------------------------------------- how many there may be


def _symbols(moving: Mapping[str, Sequence[Any]]) -> list[Symbol]:
    """Each length that is no number, once."""
    found: list[Symbol] = []
    for name, shape in moving.items():
        for size in shape:
            if _is_number(size) or any(s.stands_for(size) for s in found):
                continue
            most = bucket(_bound(name, size))
            found.append(Symbol(size, most, most + 1 + len(found)))
    return found


def _bound(name: str, size: Any) -> int:
    """The most that a length may be, by its constraints."""
    if not _at_most(size, MOST):
        raise CallError(
            f"{name} has {size} rows, and nothing says how many these may be",
            hint=f'jax.export.symbolic_shape(..., constraints=["{size} <= 65536"])',
        )
    low, high = 0, MOST
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _at_most(size, middle) else (middle + 1, high)
    return high


def _at_most(size: Any, number: int) -> bool:
    try:
        return bool(size <= number)
    except Exception:  # what JAX raises where the constraints do not say
        return False


def _of(size: Any, symbols: Sequence[Symbol]) -> Symbol:
    return next(s for s in symbols if s.stands_for(size))


# ---------------------------------------------------------------- the same for any number


def _specialised(
    given: Mapping[str, Any], symbols: Sequence[Symbol], first: bool, parse: Parse
) -> KernelIR:
    """The kernel for numbers in the place of symbols."""

    def known(value: Any) -> Any:
        if not is_symbolic(value):
            return value
        found = (s if _is_number(s) else _of(s, symbols) for s in value.shape)
        shape = [s if isinstance(s, int) else (s.most if first else s.other) for s in found]
        return jax.ShapeDtypeStruct(shape, value.dtype)

    return parse(tuple(map(known, given.values())))


def _check(one: KernelIR, two: KernelIR, moving: Mapping[str, Sequence[Any]]) -> None:
    """CallError where a symbol is no number of rows, or the kernel computes with it."""
    rows = ragged_rows(one)
    tensors = {p.name: p.tensor for p in one.params}
    for name, shape in moving.items():
        for dim, size in enumerate(shape):
            if not _is_number(size) and dim not in rows[tensors[name]]:
                raise CallError(
                    f"dimension {dim} of {name} is the symbol {size}, and kernel {one.name} "
                    "reads it by other means than moved tiles, or tiles over ranges read from "
                    "tensors",
                    hint="give it a number",
                )
    if not same_but_for_rows(one, two):
        raise CallError(
            f"kernel {one.name} computes with how many rows there are, and they are symbols",
            hint="give them a number, or pass it as a tensor",
        )


def _lengths(
    one: KernelIR, two: KernelIR, result: str, symbols: Sequence[Symbol]
) -> tuple[Any, ...]:
    """The shape of a result: where two kernels differ, a symbol."""
    pairs = zip(one.tensor(result).shape, two.tensor(result).shape, strict=True)
    found: list[Any] = []
    for own, other in pairs:
        same = [s.length for s in symbols if (s.most, s.other) == (own, other)]
        if own != other and not same:
            raise CallError(
                f"kernel {one.name} makes a result of {own} rows, which are no argument's",
                hint="give the symbols numbers",
            )
        found.append(own if own == other else same[0])
    return tuple(found)


def _ended(ir: KernelIR, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with offsets that end where the rows of arguments do."""
    tensors = {p.name: p.tensor for p in ir.params if p.tensor}
    shapes = {tensors[n]: v.shape for n, v in given.items() if n in tensors}
    known, made = ends(ir), dict(given)
    for name, tensor in tensors.items():
        for other, dim in known.get(tensor, ()):
            if other in shapes:
                made[name] = ending(made[name], shapes[other][dim])
    return made


def _padded(value: Any, symbols: Sequence[Symbol]) -> Any:
    if not is_symbolic(value):
        return value
    shape = [s if _is_number(s) else _of(s, symbols).most for s in value.shape]
    return jax.lax.dynamic_update_slice(jnp.zeros(shape, value.dtype), value, (0,) * value.ndim)
