"""describe(name, value) -> Described | None: where a tensor lives, its shape and dtype; None if the
value is static.

`FIELDS` is the same in short: what a call is specialised on, made without touching the data.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from ..errors import CallError
from ..ir import TensorSpec
from ..language.dtypes import REFUSED, canonical

Home = Literal["numpy", "torch", "jax", "traced", "shape"]
Framework = Literal["numpy", "torch", "jax"]

INPUTS = (
    "float32, bfloat16, float16, float8_e4m3fn, float8_e5m2, "
    "int64 (as indices), int32, int16, int8, uint32, uint8 and bool"
)


# Known by package and class name, so that no framework is imported to look.  The order matters: a
# FakeTensor is a torch.Tensor too.
CLASSES: tuple[tuple[Home, frozenset[str]], ...] = (
    ("shape", frozenset(("jax.ShapeDtypeStruct", "torch.FakeTensor", "torch.FunctionalTensor"))),
    ("torch", frozenset(("torch.Tensor",))),
    ("traced", frozenset(("jax.Tracer",))),
    ("jax", frozenset(("jaxlib.ArrayImpl", "jax.ArrayImpl", "jax.Array"))),
    ("numpy", frozenset(("numpy.ndarray",))),
)


@dataclass(frozen=True)
class Described:
    """A tensor argument.

    home    where its values are: "numpy", "torch", "jax"; "traced" in a JAX transformation;
            "shape" if there are none
    device  "cpu", "tpu", "cuda", ...; "" if there are no values or they are traced
    """

    spec: TensorSpec
    home: Home
    device: str = ""


@cache
def home_of(kind: type) -> Home | None:
    """Where values of that type live; None if it is no tensor type.  Imports no framework."""
    if kind is TensorSpec:
        return "shape"
    names = {f"{base.__module__.split('.')[0]}.{base.__name__}" for base in kind.__mro__}
    return next((home for home, classes in CLASSES if names & classes), None)


def shape_key(value: Any) -> Hashable:
    """What a call is specialised on of a tensor without data."""
    if not isinstance(value, TensorSpec) and type(value).__module__.startswith("torch"):
        raise TypeError("its sizes may be symbols, which must not be compared")
    return (tuple(value.shape), str(value.dtype), getattr(value, "framework", ""))


# What a call is specialised on of a tensor, besides its home: as written into functions, because a
# call of a function for each tensor costs as much as all that it reads.  None touches the data.
FIELDS: dict[Home, tuple[str, ...]] = {
    "numpy": ("{0}.shape", "{0}.dtype"),
    "torch": ("{0}.shape", "{0}.dtype", "{0}.device"),
    "jax": ("{0}.aval.shape", "{0}.aval.dtype", "{0}.platform()"),  # its own cost twice that
    "traced": ("{0}.shape", "{0}.dtype"),
    "shape": ("_shape({0})",),
}


def describe(name: str, value: Any) -> Described | None:
    """What the compiler needs of a tensor argument; None if the value is no tensor.

    Raises CallError naming the argument for dtypes and layouts that no kernel takes.
    """
    home = home_of(type(value))
    if home is None and type(value).__name__ == "_DimExpr":  # a length that jax.export leaves open
        what = f"{name} is the symbol {value}, and kernels are made for numbers"
        hint = 'pass an array of that many rows, whose shape the kernel reads, with rows="bucket"'
        raise CallError(what, hint=hint)
    if home is None:
        return None
    if home == "torch":
        return _torch(name, value)
    if home == "shape":
        return _shape(name, value)
    if home == "numpy":
        return _numpy(name, value)
    device = value.platform() if home == "jax" else ""
    device = "cuda" if device == "gpu" else device  # as JAX calls what it lowers for, and torch
    return Described(_spec(name, value.shape, value.dtype, "jax"), home, device)


def is_symbolic(value: Any) -> bool:
    """Whether JAX traces an array that has a length which is no number."""
    if home_of(type(value)) != "traced":
        return False
    return any(not isinstance(size, int) for size in value.shape)


def _numpy(name: str, value: np.ndarray) -> Described:
    if isinstance(value, np.ma.MaskedArray):
        hint = "pass its data and its mask as two arguments"
        raise CallError(f"{name} is a masked NumPy array", hint=hint)
    if not value.dtype.isnative:
        raise CallError(
            f"{name} has its bytes in the order of another machine ({value.dtype.str})",
            hint=f"pass {name}.astype({name}.dtype.newbyteorder('='))",
        )
    return Described(_spec(name, value.shape, value.dtype, "numpy"), "numpy", "cpu")


def _torch(name: str, value: Any) -> Described:
    spec = spec_of_torch(name, value)
    if value.device.type == "meta":
        return Described(spec, "shape")
    return Described(spec, "torch", value.device.type)


def spec_of_torch(name: str, value: Any, number: Callable[[Any], int] | None = None) -> TensorSpec:
    """A torch tensor as kernels are parsed for it; CallError for one that kernels do not take.

    `number` gives the sizes that are symbols; without it they are refused.
    """
    if value.is_nested:
        jagged = str(value.layout) == "torch.jagged"
        hint = f"values, offsets = tile.from_njt({name})" if jagged else "pass its tensors apart"
        raise CallError(f"{name} is a nested torch tensor", hint=hint)
    if str(value.layout) != "torch.strided":
        raise CallError(
            f"{name} is a sparse torch tensor ({value.layout})", hint=f"pass {name}.to_dense()"
        )
    if type(value).__name__ == "DTensor":
        raise CallError(
            f"{name} is a DTensor, whose parts are on several devices",
            hint=f"pass {name}.to_local(), or call the kernel in "
            "torch.distributed.tensor.experimental.local_map",
        )
    if hasattr(type(value), "__tensor_flatten__"):
        hint = "pass the plain tensors that it holds"
        raise CallError(f"{name} is a {type(value).__name__}, which wraps other tensors", hint=hint)
    shape = value.shape if number is None else tuple(map(number, value.shape))
    return _spec(name, shape, value.dtype, "torch")


def _shape(name: str, value: Any) -> Described:
    if isinstance(value, TensorSpec):
        return Described(_spec(name, value.shape, value.dtype, value.framework), "shape")
    framework = "torch" if type(value).__module__.startswith("torch") else "jax"
    return Described(_spec(name, value.shape, value.dtype, framework), "shape")


def _spec(name: str, shape: Any, dtype: Any, framework: str) -> TensorSpec:
    return TensorSpec(_sizes(name, shape), _dtype(name, dtype, framework), framework)


def _sizes(name: str, shape: Any) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in shape)
    except Exception:  # symbolic sizes of torch and JAX raise errors of their own kinds
        raise CallError(
            f"{name} has the symbolic shape {tuple(shape)}",
            hint="kernels are compiled for shapes that are known: mark the sizes as static",
        ) from None


def _dtype(name: str, dtype: Any, framework: str) -> str:
    found = canonical(dtype)
    if found == "float64":
        fix = {"torch": ".float()", "jax": ".astype(jnp.float32)"}
        hint = f"pass {name}{fix.get(framework, '.astype(np.float32)')}"
        hint = hint if framework else 'write "float32"'
        raise CallError(f"{name} is float64, which no kernel computes in", hint=hint)
    if found is None or (found in REFUSED and found != "int64"):
        hint = REFUSED.get(found or "", f"kernels take {INPUTS}")
        raise CallError(f"{name} has dtype {dtype}, which no kernel takes", hint=hint)
    return found


def spec(shape: tuple[int, ...] | list[int] | int, dtype: object) -> TensorSpec:
    """A tensor of which only shape and dtype are known, for `.source`, `.lower` and `.explain`."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    bad = [s for s in sizes if isinstance(s, bool) or not hasattr(s, "__index__") or s < 0]
    if bad:
        raise CallError(f"spec: {bad[0]!r} is not a size", hint="sizes are integers >= 0")
    return TensorSpec(tuple(int(s) for s in sizes), _dtype("spec", dtype, ""))
