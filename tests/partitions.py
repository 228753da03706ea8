"""divided(ir, arrays): where the parts of a kernel, put together in NumPy, are not the kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from tilelang.analysis import analyze
from tilelang.errors import Loc, TileError
from tilelang.ir import Apply, KernelIR, every_expr, every_store
from tilelang.ir.verify import verify
from tilelang.language.dtypes import FLOATS, is_float
from tilelang.reference import GARBAGE, evaluate
from tilelang.transforms.local import local, more
from tilelang.transforms.partition import Factor, factors
from tilelang.transforms.stages import Stage, staged
from tilelang.transforms.whole import over_whole, taken_whole

Arrays = Mapping[str, np.ndarray]
COUNTS = (2, 3, 4)
NARROW = frozenset(FLOATS) - {"float32"}


def divided(ir: KernelIR, arrays: Arrays) -> Iterator[str]:
    """Every factor that may be split, into all of its divisors up to 4: what is not the whole.

    A kernel of narrow floats is divided as it is, and as one of float32, in which rounding hides
    nothing.  What is taken whole, by `:`, is divided as a loop.
    """
    yield from _every_way(ir, arrays)
    wide = _widened(ir, {})
    if wide != ir:
        given = {t.name: arrays[t.name].astype(t.dtype) for t in wide.tensors if t.name in arrays}
        yield from _every_way(wide, {**arrays, **given})


def _every_way(ir: KernelIR, arrays: Arrays) -> Iterator[str]:
    whole = evaluate(ir, arrays)
    yield from _divided(ir, arrays, whole)
    for place in taken_whole(ir):
        made = over_whole(ir, place)
        if made is not ir:
            yield from _divided(verify(made), arrays, whole, place)


def _widened(value: Any, known: dict[int, Any]) -> Any:
    """The IR with float32 in the place of all narrow floats; what is shared stays shared."""
    if id(value) in known:
        return known[id(value)]
    made = value
    if isinstance(value, tuple):
        made = tuple(_widened(v, known) for v in value)
    elif is_dataclass(value) and not isinstance(value, type | Loc):
        own = {f.name: getattr(value, f.name) for f in fields(value)}
        made = replace(value, **{name: _widened(v, known) for name, v in own.items()})
    elif isinstance(value, str) and value in NARROW:
        made = "float32"
    known[id(value)] = made
    return made


def _divided(
    ir: KernelIR, arrays: Arrays, whole: Arrays, place: tuple[str, int] | None = None
) -> Iterator[str]:
    """The same of the kernel as it is; only of the factor of `place`, where one is given."""
    facts = analyze(ir)
    every = factors(ir, facts)
    for factor in (f for f in every if place is None or place in f.dims):
        stages = (Stage(ir, every),) if factor.kind else staged(ir, facts, [factor])
        counts = [n for n in COUNTS if stages and factor.size and factor.splits(n)]
        for count in counts:
            made = dict(arrays)
            try:
                for stage in stages:
                    made |= _by_devices(stage, factor, count, made)
            except TileError as error:  # the whole had nothing that was refused
                yield f"{ir.name}, {sorted(factor.axes)} in {count}: {error.what}"
                continue
            for name in ir.returns:
                added = dict(factor.added).get(name)
                if not _alike(made[name], whole[name], added, _between(ir)):
                    yield f"{name} of {ir.name}, {sorted(factor.axes)} in {count}"


def _by_devices(stage: Stage, factor: Factor, count: int, arrays: Arrays) -> Arrays:
    """The results of a stage on `count` devices, put together."""
    ir, own = stage.ir, next((f for f in stage.factors if f.dims & factor.dims), None)
    known = {name: arrays[name] for p in ir.params if (name := p.tensor)}
    if own is None:
        return evaluate(ir, known)
    assert own.kind, f"{ir.name}: {own.why}"
    each = [_device(ir, own, count, part, known) for part in range(count)]
    found = {name: _together(own, name, [r[name] for r in each]) for name in ir.returns}
    if own == factor:
        return found
    return {name: array.astype(each[0][name].dtype) for name, array in found.items()}


def _between(ir: KernelIR) -> float:
    """The coarsest unit of floats that values are rounded to before they are stored."""
    stored = {id(store.value) for store in every_store(ir.body)}
    every = (e for e in every_expr(ir.body, ir.axes) if id(e) not in stored)
    narrow = {e.type.dtype for e in every if isinstance(e, Apply) and e.op == "cast"}
    return max((float(ml_dtypes.finfo(d).eps) for d in narrow if is_float(d)), default=0.0)


def _alike(mine: np.ndarray, whole: np.ndarray, added: str | None, inner: float) -> bool:
    """Sums of parts, of dtype `added`, become of the whole's when they are added up, not here.

    NumPy adds up products of other sizes in another order: a narrow result is rounded to the next
    number, then, and what is rounded on its way is by a unit of `inner`.
    """
    exact = whole.astype(np.float64)
    if added is not None and is_float(added) and not is_float(str(whole.dtype)):
        found, unspecified = np.nan_to_num(mine), int.from_bytes([GARBAGE] * whole.itemsize)
        apart = np.abs(found - exact) >= 1 + 1e-5  # less is cut off
        if whole.dtype == bool:  # whatever is left over by rounding may be seen or not
            apart = np.where(found == 0, whole, (np.abs(found) > 1e-5) & ~whole)
        return not apart[whole.view(f"u{whole.itemsize}") != unspecified].any()
    narrow = is_float(str(whole.dtype)) and whole.dtype.itemsize < 4
    made = ml_dtypes.finfo(whole.dtype) if narrow else None
    rounding = 1e-5 if made is None else float(made.eps)
    most = max(1e-5, inner) * np.abs(exact).max(initial=1, where=np.isfinite(exact))
    most += 0 if made is None else float(made.smallest_subnormal)
    exact = np.nan_to_num(exact) if added else exact
    mine = mine if made is None else mine.astype(whole.dtype).astype(np.float64)
    mine = np.nan_to_num(mine) if added else mine
    return np.allclose(mine, exact, rounding, most, equal_nan=True)


def _device(
    ir: KernelIR, factor: Factor, count: int, part: int, arrays: Arrays
) -> dict[str, np.ndarray]:
    """The results of one of `count` devices."""
    own, also = factor.size // count, more(ir, [factor])
    given: dict[str, np.ndarray] = {name: np.array([part * own], np.int32) for name in also.firsts}
    for name, array in arrays.items():
        for dim in range(array.ndim):
            if (name, dim) in factor.dims:
                array = np.split(array, count, dim)[part]
            if (name, dim) in factor.edges:
                array = array.take(np.arange(own + 1) + part * own, dim)
        for twin in (t for t, of in also.wholes.items() if of == name):
            given[twin] = array
        if name in factor.clipped:
            array = np.clip(array - part * own, 0, own)
        given[name] = array
    return evaluate(local(ir, {factor: count}), given)


def _together(factor: Factor, name: str, parts: Sequence[np.ndarray]) -> np.ndarray:
    """A result of all devices."""
    if name in dict(factor.added) and factor.kind in ("max", "min"):
        return (np.fmax if factor.kind == "max" else np.fmin).reduce(parts)
    if name in dict(factor.added):
        return np.sum([np.nan_to_num(p.astype(np.float64)) for p in parts], axis=0)
    dims = [dim for tensor, dim in factor.dims if tensor == name]
    assert len(dims) <= 1
    return np.concatenate(parts, dims[0]) if dims else parts[0]
