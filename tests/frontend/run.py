"""Parses a kernel for NumPy arrays and evaluates the IR tile by tile."""

from __future__ import annotations

import inspect

import numpy as np

from tilelang.frontend import parse
from tilelang.ir import TensorSpec
from tilelang.reference import evaluate


def specs(fn, args, kwargs, framework="numpy"):
    """The arguments by name, arrays as their specs."""
    bound = inspect.signature(fn).bind(*args, **kwargs)
    bound.apply_defaults()
    return {name: _spec(value, framework) for name, value in bound.arguments.items()}


def _spec(value, framework):
    if isinstance(value, np.ndarray):
        return TensorSpec(value.shape, value.dtype.name, framework)
    return value


def parsed(fn, *args, framework="numpy", **kwargs):
    return parse(fn, specs(fn, args, kwargs, framework))


def dump(fn, *args, **kwargs):
    """The IR without its header and declarations."""
    text = str(parsed(fn, *args, **kwargs))
    return text.partition("\n\n")[2]


def run(fn, *args, blocks=None, **kwargs):
    """What the kernel returns: one array, or a tuple of them; None if it only changes arguments."""
    ir = parsed(fn, *args, **kwargs)
    bound = inspect.signature(fn).bind(*args, **kwargs).arguments
    arrays = {p.name: bound[p.name] for p in ir.params if p.tensor}
    found = evaluate(ir, arrays, blocks=blocks or {a.name: 4 for a in ir.axes})
    for tensor in ir.tensors:
        if tensor.mutated:
            bound[tensor.name][...] = found[tensor.name]
    results = tuple(found.get(n, bound.get(n)) for n in ir.returns)
    return results[0] if ir.structure == "single" else (results or None)


def array(*shape, dtype=np.float32, seed=0):
    """Small whole numbers, so that sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)
