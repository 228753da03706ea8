"""Shape and creation primitives: what each means, in NumPy, where NumPy's own is another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Array = np.ndarray
Shape = tuple[int, ...]

NUMPY: Mapping[str, str] = {"broadcast": "broadcast_to"}

DOCS: Mapping[str, str] = {
    "expand_dims": """A new dimension of length 1 at `axis`.
    >>> hl.expand_dims(np.float32([1, 2]), 1).shape
    (2, 1)""",
    "squeeze": """Without dimension `axis`, whose length is 1.
    >>> hl.squeeze(np.float32([[1, 2]]), 0)
    array([1., 2.], dtype=float32)""",
    "broadcast": """x repeated along new dimensions and along those of length 1.
    >>> hl.broadcast_to(np.float32([1, 2]), [2, 2])
    array([[1., 2.],
           [1., 2.]], dtype=float32)""",
}


def transpose(x: Array, perm: tuple[int, ...]) -> Array:
    """Dimension i of the result is dimension perm[i] of x.

    >>> hl.permute(np.float32([[1, 2], [3, 4]]), (1, 0))
    array([[1., 3.],
           [2., 4.]], dtype=float32)
    """
    return np.transpose(x, perm)


def reshape(x: Array, shape: Shape) -> Array:
    """The same elements in row-major order under another shape.

    >>> hl.reshape(np.float32([[1, 2], [3, 4]]), [4])
    array([1., 2., 3., 4.], dtype=float32)
    """
    return np.reshape(x, shape)


def concat(*arrays: Array, axis: int) -> Array:
    """The arrays one after the other along `axis`.

    >>> hl.cat([np.int32([1, 2]), np.int32([3])])
    array([1, 2, 3], dtype=int32)
    """
    return np.concatenate(arrays, axis)


def narrow(x: Array, axis: int, start: int, stop: int) -> Array:
    """The elements from `start` on and before `stop` along `axis`.

    >>> hl.narrow(np.int32([1, 2, 3, 4]), 0, 1, 2)
    array([2, 3], dtype=int32)
    """
    return np.moveaxis(np.moveaxis(x, axis, 0)[start:stop], 0, axis)


def full(*scalar: Array, shape: Shape, value: bool | int | float = 0) -> Array:
    """The same number everywhere: `value`, or a computed scalar.

    >>> hl.full([2], 7, dtype=hl.int32)
    array([7, 7], dtype=int32)
    """
    return np.full(shape, scalar[0] if scalar else value)


def arange(shape: Shape, start: int | float, step: int | float) -> Array:
    """start, start + step, start + 2 step, ...

    >>> hl.arange(1, 7, 2)
    array([1, 3, 5], dtype=int32)
    """
    return start + step * np.arange(shape[0])
