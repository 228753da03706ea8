"""The cost of the stages grows like the kernel: twice the statements, twice the calls.

Calls of Python functions are counted, not seconds: they are the same on every machine.
"""

from __future__ import annotations

import cProfile
import importlib.util
import pstats
from pathlib import Path

import numpy as np
import pytest

import tilelang as tile

HEAD = """import tilelang as tile
import tilelang.language as hl


@tile.kernel
def chain(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        a = x[t, :]
"""


def chain(folder: Path, length: int) -> tile.Kernel:
    """A kernel of so many statements, each of which uses the one before."""
    lines = [f"        a = hl.tanh(a * {n}.0) + x[t, :]\n" for n in range(length)]
    path = folder / f"chain_{length}.py"
    path.write_text(HEAD + "".join(lines) + "        y[t, :] = a\n    return y\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.chain


def calls(kernel: tile.Kernel, target: str) -> int:
    profile = cProfile.Profile()
    profile.runcall(kernel.source, np.ones((300, 128), np.float32), target=target)
    return pstats.Stats(profile).total_calls


@pytest.mark.parametrize("target", ["tpu:v6e", "cuda:sm90"])
def test_twice_the_statements_are_twice_the_calls(tmp_path, target):
    calls(chain(tmp_path, 2), target)  # imports
    few, some, many = (calls(chain(tmp_path, n), target) for n in (20, 40, 80))
    assert many - some < 2.2 * (some - few)
