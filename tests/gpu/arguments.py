"""FORMS: tensors that hold the same numbers in strange ways, and what a launch makes of each.

`python -m tests.gpu.on_stub` looks at the pointers, tests/gpu/test_arguments.py at the values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

Make = Callable[[np.ndarray, Any], Any]  # numbers, torch's device


@dataclass(frozen=True)
class Form:
    """How to hold numbers.

    itself   a program reads this memory; else that of a contiguous copy
    aligned  it is compiled for pointers that are multiples of 16
    """

    make: Make
    itself: bool = True
    aligned: bool = True


def _tensor(array: np.ndarray, device: Any) -> torch.Tensor:
    return torch.from_numpy(array.copy()).to(device)


def _behind(numbers: int) -> Make:
    """So many numbers behind the begin of its storage."""

    def make(array: np.ndarray, device: Any) -> torch.Tensor:
        whole = torch.full((numbers + array.size,), torch.nan, device=device)
        whole[numbers:] = _tensor(array, device).flatten()
        return whole[numbers:].view(array.shape)

    return make


def _every_second(array: np.ndarray, device: Any) -> torch.Tensor:
    whole = torch.full((*array.shape, 2), torch.nan, device=device)
    whole[..., 0] = _tensor(array, device)
    return whole[..., 0]


def _padded(array: np.ndarray, device: Any) -> torch.Tensor:
    """Rows of a wider array."""
    whole = torch.full((len(array), array.shape[1] + 4), torch.nan, device=device)
    whole[:, :-4] = _tensor(array, device)
    return whole[:, :-4]


def _read_only(array: np.ndarray, device: Any) -> np.ndarray:
    made = array.copy()
    made.flags.writeable = False
    return made


def _inference(array: np.ndarray, device: Any) -> torch.Tensor:
    with torch.inference_mode():
        return _tensor(array, device)


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "plain": Form(_tensor),
        "turned": Form(lambda a, d: _tensor(a.T, d).T, itself=False),
        "every second number": Form(_every_second, itself=False),
        "rows of a wider one": Form(_padded, itself=False),
        "1 number in": Form(_behind(1), aligned=False),
        "3 numbers in": Form(_behind(3), aligned=False),
        "4 numbers in": Form(_behind(4)),
        "negated": Form(lambda a, d: torch._neg_view(_tensor(-a, d)), itself=False),
        "a parameter": Form(lambda a, d: torch.nn.Parameter(_tensor(a, d))),
        "requires grad, turned": Form(
            lambda a, d: _tensor(a.T, d).T.requires_grad_(), itself=False
        ),
        "requires grad, 1 number in": Form(
            lambda a, d: _behind(1)(a, d).requires_grad_(), aligned=False
        ),
        "made in inference mode": Form(_inference),
        "NumPy, backwards": Form(lambda a, d: a[::-1, ::-1].copy()[::-1, ::-1], itself=False),
        "NumPy, in Fortran's order": Form(lambda a, d: np.asfortranarray(a), itself=False),
        "NumPy, read only": Form(_read_only, itself=False),
    }
)  # fmt: skip


def expanded(row: np.ndarray, rows: int, device: Any) -> torch.Tensor:
    """One row of memory for all rows: a stride of 0."""
    return _tensor(row, device).expand(rows, len(row))


def pointer(value: Any) -> int:
    """Where its numbers begin."""
    return value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr()
