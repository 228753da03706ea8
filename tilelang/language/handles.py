"""What stands for tensors, tiles and block sizes while a kernel is parsed."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Expr, Tensor


@dataclass(frozen=True)
class TensorHandle:
    """A tensor of the kernel: subscripts load from it and store to it."""

    tensor: Tensor

    def __repr__(self) -> str:
        return f"the tensor {self.tensor.name}"


@dataclass(frozen=True)
class TileHandle:
    """A tile of a loop, optionally moved by a static or scalar offset (`tile + k`)."""

    axis: str  # unique axis name, the dimension of values that run along it
    user: str  # what the author called it

    def __repr__(self) -> str:
        return f"the tile {self.user}"


@dataclass(frozen=True)
class BlockHandle:
    """`hl.register_block_size(...)`: a block size that the config chooses, by name."""

    name: str

    def __repr__(self) -> str:
        return f"the block size {self.name}"


@dataclass(frozen=True)
class MethodHandle:
    """x.name of a tensor or of a value, which is going to be called."""

    receiver: TensorHandle | Expr
    name: str

    def __repr__(self) -> str:
        return f"the method {self.name}"
