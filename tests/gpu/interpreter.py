"""Kernels in Triton's interpreter, on torch tensors on the CPU.  Import this before triton.

The interpreter has faults of its own, which are mended here (Triton 3.6 to 3.9): products of
bfloat16 multiply the bits as integers; casts to narrower floats cut bits off, where GPUs round to
the nearest; loop bounds that are tensors fail with NumPy 2.4; the index of a loop is a Python
number, which has no dtype; products of any length are taken, and descriptors of any shape; a call
of a function prepares the whole language anew.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

import tilelang as tile
from tests.frameworks import from_torch
from tests.subjects import Subject
from tilelang.codegen.source import Source

torch.set_num_threads(1)
TARGET = "cuda:sm90"


# Floats that NumPy has no dtype for: the interpreter holds their bits.
BITS = {
    tl.bfloat16: ml_dtypes.bfloat16,
    tl.float8e4nv: ml_dtypes.float8_e4m3fn,
    tl.float8e5: ml_dtypes.float8_e5m2,
}


def _numbers(data: np.ndarray, dtype: Any) -> np.ndarray:
    """What the interpreter holds, as an array that knows its dtype."""
    return data.view(BITS[dtype]) if dtype in BITS else data


def _cast(self: Any, src: Any, dst_type: Any, *rounding: Any) -> Any:
    """Every cast between floats rounds to the nearest number, and to the even one of two."""
    source, target = src.dtype.scalar, dst_type.scalar
    if source not in BITS and target not in BITS:
        return _cast_impl(self, src, dst_type)
    made, held = _numbers(src.data, source).astype(np.float32), interpreter._get_np_dtype(target)
    made = made.astype(BITS[target]).view(held) if target in BITS else made.astype(held)
    return interpreter.TensorHandle(made, target)


def _bfloat16(self: Any, value: float) -> Any:
    """A number of it, which the interpreter has a type for and no way to make."""
    held = np.array([value], BITS[tl.bfloat16])
    return interpreter.TensorHandle(held.view(np.uint16), tl.bfloat16)


def _float32(handle: Any) -> np.ndarray:
    return _numbers(handle.data, handle.dtype.scalar).astype(np.float32)


_cast_impl = interpreter.InterpreterBuilder.cast_impl
_create_dot = interpreter.InterpreterBuilder.create_dot
_create_splat = interpreter.InterpreterBuilder.create_splat
_create_descriptor = interpreter.InterpreterBuilder.create_make_tensor_descriptor
_patch_lang_tensor = interpreter._patch_lang_tensor


def _dot(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
    if not {a.dtype.scalar, b.dtype.scalar} & BITS.keys():
        return _create_dot(self, a, b, d, *options)
    product = np.matmul(_float32(a), _float32(b))
    return interpreter.TensorHandle(product + d.data, d.dtype.scalar)


def _described(self: Any, base: Any, shape: Any, strides: Any, box: Any, *more: Any) -> Any:
    """A descriptor as hardware takes it: a length of 0 would be one of 2**32."""
    assert all(1 <= one.data.item() < 2**31 for one in shape), (
        "a dimension of a descriptor is empty"
    )
    assert len(box) <= 5 and max(box) <= 256, f"boxes of {box} are not copied"
    assert all(one.data.item() >= 0 for one in strides), "strides are not negative"
    return _create_descriptor(self, base, shape, strides, box, *more)


def _patched(tensor: Any, *scope: Any) -> None:
    _patch_lang_tensor(tensor, *scope)
    tensor.__index__ = lambda self: int(self.handle.data.item())


def _range(first: Any, last: Any = None, step: Any = 1, **options: Any) -> Iterator[Any]:
    """The numbers of a loop as scalars of int32, as the compiler has them."""
    begin, end = (0, first) if last is None else (first, last)
    for number in range(begin, end, step):
        yield interpreter.interpreter_semantic.to_tensor(number, False)


def _patched_core(lang: Any, scope: Any) -> None:
    _patch_lang_core(lang, scope)
    scope.set_attr(lang, "range", _range)


def _reduced(self: Any, value: Any) -> Any:
    """The extremes of the generated code at once: the interpreter takes element after element."""
    name = getattr(getattr(self.combine_fn, "fn", None), "__name__", "")
    if name not in EXTREMES or value[0].dtype.scalar == tl.bfloat16:
        return _apply_impl(self, value)
    return self.min_max(value[0], val_reduce_op=EXTREMES[name])


def _prepared(function: Any) -> Any:
    """At the begin of a launch; what was prepared for the last one is no more."""
    READY.clear()
    READY.add(function.__module__)
    return _patch_lang(function)


def _called(self: Any, *args: Any, **options: Any) -> Any:
    """A function that a kernel calls: the language is prepared once for each of its modules."""
    if self.fn.__module__ not in READY:
        READY.add(self.fn.__module__)
        _patch_lang(self.fn)
    return self.rewrite()(*args, **options)


READY: set[str] = set()  # modules


EXTREMES = {"_nan_max": np.max, "_nan_min": np.min}


def _splat(self: Any, form: Any, value: Any) -> Any:
    """Conditions stay conditions: Triton 3.9 makes numbers of them, and refuses those as masks."""
    made = _create_splat(self, form, value)
    if np.asarray(value.data).dtype != bool:
        return made
    return interpreter.TensorHandle(made.data.astype(bool), tl.int1)


_apply_impl = interpreter.ReduceOps.apply_impl
_patch_lang = interpreter._patch_lang
_patch_lang_core = interpreter._patch_lang_core
interpreter.ReduceOps.apply_impl = _reduced
interpreter._patch_lang = _prepared
interpreter.InterpretedFunction.__call__ = _called
interpreter.InterpreterBuilder.create_dot = _dot
interpreter.InterpreterBuilder.get_bf16 = _bfloat16
interpreter.InterpreterBuilder.create_splat = _splat
interpreter.InterpreterBuilder.create_make_tensor_descriptor = _described
interpreter.InterpreterBuilder.cast_impl = _cast
interpreter.InterpreterBuilder.create_fp_to_fp = _cast
interpreter._patch_lang_tensor = _patched
interpreter._patch_lang_core = _patched_core


def _least_product(a: Any, b: Any) -> tuple[int, int, int]:
    """Of the nvidia back end."""
    return 1, 1, 32 if a.scalar.primitive_bitwidth == 8 else 16


interpreter.interpreter_builder.codegen_fns["min_dot_size"] = _least_product


def _spoiled(*args: Any, **options: Any) -> Any:
    """torch.empty whose floats are NaN: nothing may rely on what memory held."""
    made = _empty(*args, **options)
    return made.fill_(float("nan")) if made.is_floating_point() else made.fill_(-7)


_empty = torch.empty


def call(kernel: tile.Kernel, config: tile.Config | None, target: str = TARGET) -> Callable:
    """The generated module as a function of NumPy arrays and static values."""

    def run(*args: Any) -> Any:
        return host(kernel.lower(*args, config=config, target=target).source)(*args)

    return run


def host(source: Source) -> Callable:
    """The function of a generated module as one of NumPy arrays and static values."""
    loaded = source.load()

    def run(*args: Any) -> Any:
        torch.empty = _spoiled
        try:
            return from_torch(loaded, [a for a in args if isinstance(a, np.ndarray)])
        finally:
            torch.empty = _empty

    return run


def small(subject: Subject, target: str = TARGET, **options: Any) -> Callable:
    """An example with blocks so small that small arguments have several tiles."""
    return call(subject.kernel, tile.Config(subject.blocks, **options), target)
