"""save(path, arrays), load(path): arrays of any dtype, from one process of ours to another."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np


def save(path: Path, arrays: Sequence[np.ndarray]) -> None:
    """Writes arrays."""
    path.write_bytes(pickle.dumps([np.asarray(array, order="C") for array in arrays], protocol=5))


def load(path: Path) -> list[np.ndarray]:
    """Reads what `save` wrote; in a folder that only this user can write to."""
    return pickle.loads(path.read_bytes())
