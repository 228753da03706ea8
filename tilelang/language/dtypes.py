"""Element types: one canonical name each, whichever framework the author took it from.

canonical(torch.bfloat16) == canonical(jnp.bfloat16) == canonical("bfloat16") == "bfloat16"
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ..errors import TypingError
from ..reads import in_library

FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int32", "int16", "int8", "uint8", "uint32")
SUPPORTED = frozenset((*FLOATS, *INTEGERS, "bool"))

# Known by name, and not computed with: what to use instead.
REFUSED = {
    "float64": "use float32: the devices have no 64-bit floats",
    "complex64": "keep the real and the imaginary part in two float32 tensors",
    "complex128": "keep the real and the imaginary part in two float32 tensors",
    "int64": "use int32: int64 tensors are accepted as inputs and read as int32",
    "uint64": "use uint32",
    "uint16": "use int32",
}

_ALIASES = {
    "float": "float32",
    "half": "float16",
    "bf16": "bfloat16",
    "int": "int32",
    "short": "int16",
    "double": "float64",
    "long": "int64",
    "cfloat": "complex64",
}
_PYTHON = {bool: "bool", int: "int32", float: "float32"}
_WIDE = {name: getattr(ml_dtypes, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}


@dataclass(frozen=True, eq=False, repr=False)
class DType:
    """An element type of the language; equal to the torch, JAX or NumPy dtype of the same name.

    >>> import numpy as np
    >>> hl.float32 == np.dtype("float32"), hl.bfloat16.itemsize
    (True, 2)
    """

    name: str

    def __eq__(self, other: object) -> bool:
        return canonical(other) == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"hl.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __call__(self, value: object) -> np.ndarray:
        """The value as a NumPy array of this type; inside a kernel, a cast."""
        return np.asarray(value).astype(self.dtype)

    @property
    def dtype(self) -> np.dtype:
        """The NumPy dtype; NumPy and JAX look here, so that a DType may be passed to them."""
        return to_numpy(self.name)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return itemsize(self.name)

    @property
    def is_floating_point(self) -> bool:
        return is_float(self.name)


def wide_of(name: str) -> str:
    """The dtype of 32 bits that holds what a narrow one does.

    >>> wide_of("bfloat16"), wide_of("int8"), wide_of("float32")
    ('float32', 'int32', 'float32')
    """
    return "float32" if name in FLOATS else "int32"


def canonical(obj: object) -> str | None:
    """The name of a dtype given as any framework's object, a Python type or a string.

    Names of REFUSED are returned too, so that a message can say what was asked for; None means
    that the object is no dtype.
    """
    if isinstance(obj, DType):
        return obj.name
    if isinstance(obj, str):
        name = _ALIASES.get(obj, obj)
        return name if name in SUPPORTED or name in REFUSED else None
    if isinstance(obj, type) and obj in _PYTHON:
        return _PYTHON[obj]
    if type(obj).__module__ == "torch" and type(obj).__name__ == "dtype":
        return canonical(str(obj).removeprefix("torch."))
    return _of_numpy(obj)


def _of_numpy(obj: object) -> str | None:
    if isinstance(obj, np.dtype):
        return canonical(obj.name)
    if not isinstance(obj, type) or not in_library(obj):  # a class of the author's may change
        return None
    inner = getattr(obj, "dtype", None)  # jnp.float32 is a class that carries its dtype
    if isinstance(inner, np.dtype):
        return canonical(inner.name)
    if issubclass(obj, np.generic) or obj in _WIDE.values():
        return canonical(np.dtype(obj).name)
    return None


def to_numpy(name: str) -> np.dtype:
    """The NumPy dtype of a canonical name; ml_dtypes has the ones that NumPy lacks."""
    return np.dtype(_WIDE.get(name, name))


def itemsize(name: str) -> int:
    """Bytes of one element."""
    return to_numpy(name).itemsize


def is_float(name: str) -> bool:
    return name in FLOATS


def is_integer(name: str) -> bool:
    """Whether the elements are integers; bool is not."""
    return name in INTEGERS or name in ("int64", "uint64", "uint16")


def is_float8(name: str) -> bool:
    return name.startswith("float8")


def is_narrow(name: str) -> bool:
    """Whether it is a float of 16 bits or less, which is summed in float32."""
    return is_float(name) and itemsize(name) <= 2


def promote(a: str, b: str) -> str:
    """The dtype of an operation on both, as JAX promotes: the narrowest that can hold either.

    >>> promote("bfloat16", "int32"), promote("bfloat16", "float16"), promote("int8", "uint8")
    ('bfloat16', 'float32', 'int16')
    """
    if a == b:
        return a
    if "bool" in (a, b):
        return b if a == "bool" else a
    if is_float8(a) or is_float8(b):
        raise TypingError(
            f"{a} and {b} have no common dtype",
            hint="cast both operands to the dtype to compute in, such as .to(hl.float32)",
        )
    if is_float(a) != is_float(b):
        return a if is_float(a) else b
    return "float32" if is_float(a) else _promote_integers(a, b)


def _promote_integers(a: str, b: str) -> str:
    """JAX with 32-bit integers: int32 stands for whatever would need more."""
    if a.startswith("u") == b.startswith("u"):
        return max(a, b, key=itemsize)
    signed, unsigned = (b, a) if a.startswith("u") else (a, b)
    if itemsize(signed) > itemsize(unsigned):
        return signed
    return {1: "int16", 2: "int32"}.get(itemsize(unsigned), "int32")


def default_dtype(value: bool | int | float) -> str:
    """The dtype of a Python number that stands alone."""
    return _PYTHON[type(value)]


float32 = DType("float32")
bfloat16 = DType("bfloat16")
float16 = DType("float16")
float8_e4m3fn = DType("float8_e4m3fn")
float8_e5m2 = DType("float8_e5m2")
int32 = DType("int32")
int16 = DType("int16")
int8 = DType("int8")
uint8 = DType("uint8")
uint32 = DType("uint32")
int64 = DType("int64")  # of inputs, which are read as int32
float64 = DType("float64")  # refused wherever it is used, with the reason
bool_ = DType("bool")
