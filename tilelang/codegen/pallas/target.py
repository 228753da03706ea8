"""Target: what a device allows, as data.  Nothing here asks a device anything."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from tilelang.errors import unknown_target
from tilelang.ir import Span
from tilelang.language.dtypes import itemsize

MIB = 1024 * 1024

# What libtpu 0.0.42.1 compiled ahead of time: 8-bit products from v5e on.
WIDE = frozenset({"float32", "bfloat16"})
PRODUCTS = WIDE | {"int8", "float8_e4m3fn", "float8_e5m2"}
ANY = PRODUCTS | {"float16", "int16", "int32", "uint8", "uint32", "bool"}


@dataclass(frozen=True)
class Target:
    """Limits of one TPU generation (or of the CPU, which interprets v5e's source).

    device_kind      what JAX calls the chip
    cores            TensorCores that one program may be split over (v5p: megacore)
    vmem_default     bytes of vector memory that the compiler grants without being asked
    vmem_physical    bytes that `vmem_limit_bytes` may ask for
    smem             bytes of scalar memory that a kernel's tables may use
    lanes, sublanes  the shape of a vector register of 32-bit values
    wide             the matrix units are 256 lanes wide
    products         dtypes of which it multiplies matrices
    refused          dtypes that it does not compute in at all
    strides          each row of a block can be turned by another number of lanes
    ranked           bytes of which argmax and argmin over lanes keep no copies
    interpreted      nothing is compiled: no block, memory or operation is too much

    Source of the figures: limits that libtpu 0.0.42.1 enforced when kernels were compiled ahead of
    time for each generation (16 MiB default on v5e and v5p, 32 MiB on v6e and 7x).
    """

    name: str
    device_kind: str
    cores: int
    vmem_default: int
    vmem_physical: int
    smem: int = 1000 * 1024
    lanes: int = 128
    sublanes: int = 8
    wide: bool = False
    products: frozenset[str] = PRODUCTS
    refused: frozenset[str] = frozenset({"float16"})
    strides: bool = True
    ranked: int = 0
    interpreted: bool = False

    @staticmethod
    def of(target: str | Target | None) -> Target:
        """The target of that name; None is the CPU."""
        if isinstance(target, Target):
            return target
        name = "cpu" if target is None else target
        found = TARGETS.get(name) if isinstance(name, str) else None
        if found is None:
            raise unknown_target(target, TARGETS, CALLED)
        return found

    def rows(self, itemsize: int) -> int:
        """Rows of one register tile: 8, 16 or 32 for 4-, 2- and 1-byte types."""
        return self.sublanes * max(4 // itemsize, 1)

    def tile(self, place: int, itemsize: int) -> int:
        """Positions of one register tile along a dimension, counted from the last one: 1."""
        return {1: self.lanes, 2: self.rows(itemsize)}.get(place, 1)

    def __str__(self) -> str:
        return self.name


def padded_bytes(shape: tuple[int, ...], dtype: str, target: Target) -> int:
    """Bytes of an array in vector memory: its last two dimensions fill whole register tiles."""
    size = itemsize(dtype)
    *lead, rows, lanes = (1, 1, *shape)[-max(len(shape), 2) :]
    tile = target.rows(size)
    total = -(-rows // tile) * tile * -(-lanes // target.lanes) * target.lanes * size
    for extent in lead:
        total *= extent
    return total


def _targets() -> dict[str, Target]:
    v5e = Target("tpu:v5e", "TPU v5 lite", 1, 16 * MIB, 128 * MIB)
    return {
        "cpu": Target(
            "cpu",
            v5e.device_kind,
            1,
            v5e.vmem_default,
            v5e.vmem_physical,
            products=ANY,
            refused=frozenset(),
            interpreted=True,
        ),
        "tpu:v4": Target("tpu:v4", "TPU v4", 1, 16 * MIB, 16 * MIB, products=WIDE, strides=False),
        "tpu:v5e": v5e,
        "tpu:v5p": Target("tpu:v5p", "TPU v5", 2, 16 * MIB, 64 * MIB),
        "tpu:v6e": Target("tpu:v6e", "TPU v6 lite", 1, 32 * MIB, 128 * MIB, wide=True),
        "tpu:7x": Target("tpu:7x", "TPU7x", 1, 32 * MIB, 64 * MIB, wide=True, ranked=12 * MIB),
    }


TARGETS = MappingProxyType(_targets())
# What else the chips are called.
CALLED = {t.device_kind: n for n, t in TARGETS.items() if n != "cpu"}
CALLED |= {"Trillium": "tpu:v6e", "Ironwood": "tpu:7x"}


def scalar_bytes(shape: tuple[int, ...]) -> int:
    """Scalar memory holds 32-bit words; the last dimension of a matrix fills 128 of them."""
    if len(shape) <= 1:
        return 4 * (shape[0] if shape else 1)
    *lead, last = shape
    total = -(-last // 128) * 128 * 4
    for extent in lead:
        total *= extent
    return total


# A table that takes more than this part of vector memory stays where it is: the rest is for blocks
# and temporaries.  Guesses: no device was there to weigh copies of single rows against blocks.
SHARE = 4
STORED_SHARE = 2  # the same of an output, whose rows are copied both ways


def stays(shape: tuple[int, ...], dtype: str, target: Target, stored: bool) -> bool:
    """Whether an array, or one that is stored to, fits into its part of vector memory twice."""
    share = STORED_SHARE if stored else SHARE
    return 2 * padded_bytes(shape, dtype, target) <= target.vmem_default // share


def whole_lanes(span: Span, size: int, target: Target) -> tuple[int, int]:
    """The part of a dimension in whole register tiles that holds a static part."""
    first = span.start // target.lanes * target.lanes
    return first, min(-(-span.stop // target.lanes) * target.lanes, size)
