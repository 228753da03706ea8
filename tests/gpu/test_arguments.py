"""Arguments that hold their numbers in strange ways: TRITON_INTERPRET=1 pytest FILE; pytest -m gpu.

What a launch makes of their pointers is looked at on the stand-in for the driver, in
tests/runtime/test_cuda.py.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.grouped_gemm import grouped_gemm
from tests.gpu import machine

if machine.LACKS:
    pytest.skip(machine.LACKS, allow_module_level=True)

import ml_dtypes
import torch

from tests.gpu.arguments import FORMS, expanded
from tests.planted.calls import Planted
from tilelang.errors import CallError
from tilelang.runtime.cuda import readers

pytestmark = machine.MARKS
DEVICE = torch.device("cpu" if machine.INTERPRETS else "cuda")
TARGET = machine.TARGET if machine.INTERPRETS else None
RNG = np.random.default_rng(5)
X = RNG.standard_normal((48, 32)).astype(np.float32)
W = RNG.standard_normal((3, 32, 16)).astype(np.float32)
OFFSETS = np.array([0, 20, 20, 45], np.int32)


@tile.kernel
def doubled(x, offsets):
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            x[t, :] = x[t, :] * 2.0


@tile.kernel
def backwards(x, y):
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[x.shape[0] - 1 - t.index, :]


@tile.kernel
def swapped(x, y):
    for t in hl.tile(x.shape[0]):
        row = x[t, :]
        x[t, :] = y[t, :] + 0.0
        y[t, :] = row + 1.0


@tile.kernel
def scaled(x, by):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] * by[()]
    return y


def there(array):
    return torch.from_numpy(np.array(array)).to(DEVICE)


def numbers(value):
    if isinstance(value, np.ndarray):
        return value
    return value.detach().resolve_neg().cpu().float().numpy()


def product(x):
    exact = np.zeros((48, 16))
    for g in range(3):
        rows = slice(OFFSETS[g], OFFSETS[g + 1])
        exact[rows] = x[rows].astype(np.float64) @ W[g]
    return exact


@pytest.mark.parametrize("indexing", ["pointer", "descriptor"])
@pytest.mark.parametrize("form", FORMS)
def test_numbers_are_read_whatever_holds_them(form, indexing):
    value = FORMS[form].make(X, DEVICE)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # torch warns of memory that is read only
        config = tile.Config(indexing=indexing)
        y = grouped_gemm(value, there(W), there(OFFSETS), target=TARGET, config=config)
    np.testing.assert_allclose(numbers(y), product(X), atol=1e-4)
    np.testing.assert_array_equal(numbers(value), X)


def test_one_row_for_all():
    y = grouped_gemm(expanded(X[0], 48, DEVICE), there(W), there(OFFSETS), target=TARGET)
    wanted = product(np.broadcast_to(X[0], X.shape))
    np.testing.assert_allclose(numbers(y), wanted, atol=1e-4)


@pytest.mark.parametrize("form", [name for name in FORMS if "read only" not in name])
def test_numbers_are_stored_whatever_holds_them(form):
    value = FORMS[form].make(X, DEVICE)
    with torch.no_grad():
        doubled(value, there(OFFSETS), target=TARGET)
    np.testing.assert_array_equal(numbers(value)[:45], 2 * X[:45])
    np.testing.assert_array_equal(numbers(value)[45:], X[45:])


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.int8, np.uint32])
def test_numpy_arrays_of_every_dtype_go_with_torch(dtype):
    x, two = (np.arange(96).reshape(8, 12) % 60).astype(dtype), there(np.float32(2))
    y = scaled(x, two.to(getattr(torch, x.dtype.name)), target=TARGET)
    np.testing.assert_array_equal(y.cpu().float().numpy(), 2 * x.astype(np.float32))
    z = np.zeros((12, 8), dtype).T
    backwards(y, z, target=TARGET)
    np.testing.assert_array_equal(z, (2 * x)[::-1])


def test_a_number_of_the_host_goes_to_the_device():
    y = scaled(there(X), torch.tensor(2.0), target=TARGET)
    np.testing.assert_array_equal(numbers(y), 2 * X)


def test_what_is_read_is_no_memory_that_is_stored_to():
    """As on the CPU: all is read before anything is written."""
    x = there(X)
    backwards(x, x.view(48, 32), target=TARGET, config=tile.Config({"t": 16}))
    np.testing.assert_array_equal(numbers(x), X[::-1])
    both = there(np.concatenate([X, np.zeros((1, 32), np.float32)]))
    backwards(both[:-1], both[1:], target=TARGET, config=tile.Config({"t": 16}))
    np.testing.assert_array_equal(numbers(both), np.concatenate([X[:1], X[::-1]]))


@pytest.mark.parametrize("target", ["cpu", TARGET])
def test_of_two_arguments_in_one_memory_the_later_stays(target):
    x = torch.from_numpy(X.copy()) if target == "cpu" else there(X)
    swapped(x, x.view(48, 32), target=target)
    np.testing.assert_array_equal(numbers(x), X + 1)


def test_autograd_sees_what_is_stored():
    for form in ("plain", "turned"):
        w, x = torch.ones(48, 32, device=DEVICE, requires_grad=True), FORMS[form].make(X, DEVICE)
        loss = (w * x).sum()
        doubled(x, there(OFFSETS), target=TARGET)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_memory_that_cannot_be_stored_to():
    with pytest.raises(CallError) as caught:
        doubled(expanded(X[0], 48, DEVICE), there(OFFSETS), target=TARGET)
    assert str(caught.value).splitlines() == [
        "x cannot be written to: unsupported operation: more than one element of the written-to "
        "tensor refers to a single memory location. Please clone() the tensor before performing "
        "the operation.",
        "  hint: pass x.clone()",
    ]
    with pytest.raises(CallError) as caught:
        doubled(FORMS["NumPy, read only"].make(X, DEVICE), there(OFFSETS), target=TARGET)
    assert str(caught.value).splitlines() == [
        "x is a read-only NumPy array, and the kernel stores to it",
        "  hint: pass x.copy()",
    ]


@pytest.mark.parametrize("shape", [(0, 32), (48, 0), (0, 0)])
def test_arrays_without_numbers(shape):
    made = scaled(torch.zeros(shape, device=DEVICE), there(np.float32(2)), target=TARGET)
    assert tuple(made.shape) == shape
    x = torch.zeros(shape, device=DEVICE)
    doubled(x, there(np.array([0, 0, shape[0]], np.int32)), target=TARGET)
    y = grouped_gemm(
        torch.zeros(shape, device=DEVICE), torch.zeros((2, shape[1], 16), device=DEVICE),
        there(np.array([0, 0, shape[0]], np.int32)), target=TARGET,
    )  # fmt: skip
    assert tuple(y.shape) == (shape[0], 16) and not y.any()


def test_numpy_arrays_alone_give_numpy_arrays():
    if not machine.INTERPRETS:
        pytest.skip("a GPU takes NumPy arrays beside torch tensors that are there")
    y = grouped_gemm(X, W, OFFSETS, target=TARGET)
    assert type(y) is np.ndarray
    np.testing.assert_allclose(y, product(X), atol=1e-4)


@tile.kernel
def stored_and_turned(x, y):
    """Views of a result and of an argument, returned beside what they are of."""
    z = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        z[t, :] = x[t, :] + 1
        y[t, :] = x[t, :] * 2
    return z, z.T, y.T


def test_views_are_returned():
    x, y = there(X), there(np.zeros_like(X))
    z, turned, doubles = stored_and_turned(x, y, target=TARGET)
    assert (turned == z.T).all() and (z == x + 1).all()
    assert (doubles == 2 * x.T).all() and (y == 2 * x).all()


# ---------------------------------------------------------------- planted bugs


PLANTED = (
    Planted("no memory is shared", readers, "_overlap", lambda one, other: False,
            "test_what_is_read_is_no_memory_that_is_stored_to"),
    Planted("only arrays that begin alike share memory", readers, "_overlap",
            lambda one, other: one.data_ptr() == other.data_ptr(),
            "test_what_is_read_is_no_memory_that_is_stored_to"),
    Planted("torch is not told of stores", torch.autograd.graph, "increment_version",
            lambda tensor: None, "test_autograd_sees_what_is_stored"),
)  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_planted_bugs_are_noticed(planted, monkeypatch):
    if not machine.INTERPRETS:
        pytest.skip("programs of a GPU that overtake each other may come out right")
    here = sys.modules[__name__]
    for kernel in (doubled, backwards):  # others than those that earlier tests have called
        monkeypatch.setattr(here, kernel.__name__, tile.kernel(kernel.__wrapped__))
    test = getattr(here, planted.test)
    test()
    for kernel in (doubled, backwards):
        monkeypatch.setattr(here, kernel.__name__, tile.kernel(kernel.__wrapped__))
    monkeypatch.setattr(planted.owner, planted.name, planted.value)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test()
