"""Random kernels mean what Python makes of them."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from . import programs
from .run import run

SEEDS = range(60)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "kernels.py"
    path.write_text(programs.text(SEEDS))
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", SEEDS)
def test_as_python(kernels, seed):
    kernel = getattr(kernels, f"kernel_{seed}")
    for start in range(2):
        x = np.random.default_rng(start).integers(-4, 5, 6).astype(np.int32)
        y, z = np.zeros(6, np.int32), np.arange(6, dtype=np.int32)
        run(kernel, x, y, z)
        want_y, want_z = programs.by_python(kernel, x)
        np.testing.assert_array_equal(y, want_y)
        np.testing.assert_array_equal(z, want_z)
