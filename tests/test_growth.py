"""The cost of the stages grows like the kernel: twice the statements, twice the calls.

Of one expression that is twice as deep it may be four times as many: whoever walks through it hands
each part up through all levels.

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


DEEP = """import tilelang as tile
import tilelang.language as hl


@tile.kernel
def chain(x):
    y = hl.empty([x.shape[0]], dtype=x.dtype)
    z = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        m = x[t, :].sum(1)
"""


def chain(folder: Path, length: int) -> tile.Kernel:
    """A kernel of so many statements, each of which uses the one before."""
    lines = [f"        a = hl.tanh(a * {n}.0) + x[t, :]\n" for n in range(length)]
    return loaded(
        folder / f"chain_{length}.py", HEAD + "".join(lines) + "        y[t, :] = a\n    return y\n"
    )


def deep(folder: Path, length: int) -> tile.Kernel:
    """Two expressions as deep as that: of vectors, and of blocks and columns in turn."""
    vector, block = "m", "x[t, :]"
    for n in range(length):
        vector = f"hl.tanh({vector} * m + {n}.5)"
        block = (
            f"(x[t, :] - ({block}).amax(1)[:, None] * m[:, None])"
            if n % 4 == 3
            else f"({block} * m[:, None])"
        )
    body = f"        y[t] = {vector}\n        z[t, :] = {block}\n    return y, z\n"
    return loaded(folder / f"deep_{length}.py", DEEP + body)


def loaded(path: Path, text: str) -> tile.Kernel:
    path.write_text(text, encoding="utf-8")
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
@pytest.mark.parametrize(
    ("made", "lengths", "times"), [(chain, (20, 40, 80), 2.2), (deep, (4, 8, 16), 4)]
)
def test_twice_the_kernel_is_twice_the_calls(tmp_path, target, made, lengths, times):
    calls(made(tmp_path, 2), target)  # imports
    few, some, many = (calls(made(tmp_path, n), target) for n in lengths)
    assert many - some < times * (some - few)
