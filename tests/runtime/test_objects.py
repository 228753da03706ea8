"""Kernels as objects: pickled, copied, sent to processes, written as methods, without JAX."""

from __future__ import annotations

import copy
import inspect
import io
import multiprocessing
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl

ROOT = Path(__file__).resolve().parents[2]
X = np.arange(32, dtype=np.float32).reshape(4, 8)


@tile.kernel
def double(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm, tn in hl.tile(x.shape):
        y[tm, tn] = x[tm, tn] * 2.0
    return y


@tile.kernel
def ones():
    y = hl.empty((4, 8), dtype=hl.float32)
    for tm, tn in hl.tile((4, 8)):
        y[tm, tn] = hl.full([tm, tn], 1.0, dtype=hl.float32)
    return y


def halved(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm, tn in hl.tile(x.shape):
        y[tm, tn] = x[tm, tn] * 0.5
    return y


half = tile.kernel(halved, checks=False)


class Layer:
    held = double

    def __init__(self, factor):
        self.factor = factor

    @tile.kernel
    def scaled(self, x, shift=0.0):
        """y = x * self.factor + shift"""
        y = hl.empty(x.shape, dtype=x.dtype)
        for tm, tn in hl.tile(x.shape):
            y[tm, tn] = x[tm, tn] * self.factor + shift
        return y

    @staticmethod
    @tile.kernel
    def plain(x):
        y = hl.empty(x.shape, dtype=x.dtype)
        for tm, tn in hl.tile(x.shape):
            y[tm, tn] = x[tm, tn] + 1.0
        return y


@pytest.mark.parametrize("kernel", [double, half, Layer.scaled, Layer.plain], ids=repr)
def test_pickled_by_name(kernel):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(kernel, protocol)) is kernel
    assert copy.deepcopy([kernel])[0] is kernel
    assert copy.copy(kernel) is kernel


def test_a_module_of_torch_that_holds_a_kernel():
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(2, 2)
    layer.kernel = double
    assert copy.deepcopy(layer).kernel is double
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    assert torch.load(file, weights_only=False).kernel is double


def test_a_kernel_that_has_no_name():
    def local(x):
        return x

    kernel = tile.kernel(local)
    assert copy.deepcopy(kernel) is kernel
    with pytest.raises(pickle.PicklingError) as caught:
        pickle.dumps(kernel)
    assert str(caught.value) == (
        "kernel test_a_kernel_that_has_no_name.<locals>.local cannot be pickled: a kernel is "
        f"pickled by its name, and no name in module {__name__} is this kernel\n"
        "  hint: define it at the top of a module, or give it a name there: "
        "my_kernel = tile.kernel(local, ...)"
    )


@pytest.mark.slow
def test_a_spawned_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(double, (X,)), X * 2)


FORKED = """
import os, sys
import numpy as np
from tests.runtime.test_objects import X, double
double(X)
child = os.fork()
if child == 0:
    try:
        double(X)
    except Exception as error:
        print(error)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_process_is_told_instead_of_waiting_for_threads_of_its_parent():
    """JAX's threads are not in a child: a DataLoader's worker stood still there, without a word."""
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert answer.stdout.splitlines() == [
        "double is called in a process that was forked after JAX had begun: the threads that run "
        "programs stayed in the parent",
        '  hint: start workers with multiprocessing\'s "spawn" (DataLoader(..., '
        'multiprocessing_context="spawn")), or call kernels in the parent',
    ]


def test_methods():
    layer = Layer(3.0)
    np.testing.assert_array_equal(layer.scaled(X), X * 3)
    np.testing.assert_array_equal(layer.scaled(X, shift=1.0), X * 3 + 1)
    np.testing.assert_array_equal(Layer.scaled(layer, X), X * 3)
    np.testing.assert_array_equal(layer.scaled.reference(X), X * 3)
    assert layer.scaled.source(X) == Layer.scaled.source(layer, X)
    assert Layer.scaled.stats() == layer.scaled.stats()
    np.testing.assert_array_equal(Layer(5.0).scaled(X), X * 5)


def test_kernels_that_a_class_only_holds_are_not_methods():
    assert Layer(1.0).held is double
    np.testing.assert_array_equal(Layer(1.0).plain(X), X + 1)


def test_without_arguments_the_result_is_of_numpy():
    assert type(ones()) is np.ndarray


WITHOUT_JAX = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import numpy as np
from kernels import tile, halved as double
x = np.ones((4, 8), np.float32)
assert double.reference(x).sum() == 16 and "def halved" in double.source(x)
for call in (double, double.compile):
    try:
        call(x)
    except tile.TileError as error:
        print(type(error).__name__, error)
"""


# What compiling needs besides: libtpu, where that is not there either.
LACKING = "jax, which is" if find_spec("libtpu") else "jax and libtpu, which are"


def test_without_jax(tmp_path):
    head = "import tilelang as tile\nimport tilelang.language as hl\n\n\n@tile.kernel\n"
    (tmp_path / "kernels.py").write_text(head + inspect.getsource(halved))
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAX],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}"},
        check=False,
    )
    assert run.stdout == (
        "CallError calling a kernel needs JAX, which is not installed\n"
        "  hint: pip install 'raggedtile[jax]'; .source, .explain and .reference work without\n"
        f"CompileError compiling for tpu:v6e needs {LACKING} not installed\n"
        "  hint: pip install 'raggedtile[tpu]'\n"
    ), run.stderr
