"""The kernel that is tuned in these tests, and a worker that stands for a device."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import tilelang as tile
import tilelang.language as hl

COMMAND = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
DEFAULT, SECOND, BEST = (
    512,
    256,
    128,
)  # the block of rows of the default, and those that the fake worker says are faster


@tile.kernel
def scale_rows(x, s):
    out = hl.empty(x.shape, dtype=x.dtype)
    for tm, tn in hl.tile(x.shape):
        out[tm, tn] = x[tm, tn] * s[tm][:, None]
    return out


@tile.kernel
def sums(x, offsets):
    out = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tf in hl.tile(x.shape[1]):
            acc = hl.zeros([tf], dtype=hl.float32)
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                acc = acc + x[tm, tf].sum(0)
            out[g, tf] = acc
    return out


def arguments(rows: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows)
    return rng.standard_normal((rows, 8), np.float32), np.arange(rows, dtype=np.float32)


def tuned(folder: Path, faults: dict[int, str] | None = None, **options) -> tile.Tuned:
    """Tunes scale_rows by a worker with these faults (block of rows -> fault)."""
    text = json.dumps({str(size): fault for size, fault in (faults or {}).items()})
    command = (COMMAND[0], COMMAND[1], text)
    chosen = {"target": "cpu", "by": "device", "trials": 4, "timeout": 20.0} | options
    return tile.tune(scale_rows, [arguments()], folder=folder, command=command, **chosen)
