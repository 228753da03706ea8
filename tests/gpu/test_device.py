"""What only a GPU shows: pytest -m gpu tests/gpu/test_device.py

The default config of every example, and how calls reach the device.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.jagged_softmax import jagged_softmax
from tests import checks
from tests.gpu import machine
from tests.ragged import Space, every_stratum, wild_offsets
from tests.subjects import SUBJECTS

if machine.LACKS or machine.INTERPRETS:
    pytest.skip(machine.LACKS or "Triton interprets kernels here", allow_module_level=True)

import itertools

import torch

from tests.gpu import device

pytestmark = pytest.mark.gpu
SPACE = Space(300, 7, 64)
RNG = np.random.default_rng(0)
OFFSETS = np.array([0, 10, 100, 100, 256], np.int32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_default_config(subject, dtype):
    if dtype not in subject.dtypes:
        return
    run = machine.call(subject.kernel, None)
    if subject.ragged is None:
        arguments = subject.arguments(subject.arrays(dtype))
        assert checks.right(subject, run, arguments, dtype) == ""
        return
    arrays = subject.arrays(dtype, rows=SPACE.rows, groups=SPACE.groups)
    layouts = every_stratum(subject.ragged.space(SPACE))
    assert checks.every_layout(subject, run, arrays, layouts, dtype) == []


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.ragged], ids=str)
def test_default_config_among_neighbours_and_wild_offsets(subject):
    run = machine.call(subject.kernel, None)
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)
    space = subject.ragged.space(SPACE)
    assert checks.neighbours(subject, run, arrays, every_stratum(space)[-2:]) == []
    for name, offsets in wild_offsets(space).items():
        assert checks.unchecked(subject, run, arrays, offsets) == [], name


# ---------------------------------------------------------------- calls


def product(rows=256):
    """Arguments of grouped_gemm on the GPU, and its exact result."""
    x = RNG.standard_normal((rows, 64)).astype(np.float32)
    w = RNG.standard_normal((4, 64, 48)).astype(np.float32)
    tensors = [torch.from_numpy(a).cuda() for a in (x, w, OFFSETS)]
    return tensors, exact(x, w, OFFSETS)


def exact(x, w, offsets):
    y = np.zeros((len(x), w.shape[2]))
    for g, (first, stop) in enumerate(itertools.pairwise(offsets)):
        y[first:stop] = x[first:stop].astype(np.float64) @ w[g]
    return y


def close(result, wanted, tolerance=1e-4):
    np.testing.assert_allclose(result.cpu().double().numpy(), wanted, rtol=0, atol=tolerance)


def test_tensors_on_a_gpu_choose_the_target():
    tensors, wanted = product()
    assert grouped_gemm(*tensors).is_cuda
    close(grouped_gemm(*tensors), wanted)


@pytest.mark.parametrize("indexing", ["pointer", "descriptor"])
@pytest.mark.parametrize("by", [1, 2, 3, 4])
def test_pointers_that_are_not_aligned(indexing, by):
    (x, w, offsets), wanted = product()
    moved = device.moved(x.cpu().numpy(), by)
    close(grouped_gemm(moved, w, offsets, config=tile.Config(indexing=indexing)), wanted)


def test_strides_and_wide_offsets():
    (x, w, offsets), wanted = product()
    turned = x.t().contiguous().t()
    assert not turned.is_contiguous()
    close(grouped_gemm(turned, w, offsets), wanted)
    close(grouped_gemm(x, w, offsets.long()), wanted)
    close(grouped_gemm(x, w, offsets.cpu().numpy()), wanted)


def test_other_lengths_neither_compile_nor_wait():
    (x, w, offsets), _ = product()
    grouped_gemm(x, w, offsets)
    others = [torch.tensor(o, dtype=torch.int32).cuda() for o in ([0] * 5, [0, 256, 256, 256, 256])]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        results = [grouped_gemm(x, w, other) for other in others]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for result, other in zip(results, others, strict=True):
        close(result, exact(x.cpu().numpy(), w.cpu().numpy(), other.cpu().numpy()))


def test_calls_go_to_the_current_stream():
    (x, w, offsets), wanted = product()
    grouped_gemm(x, w, offsets)
    stream = torch.cuda.Stream()
    late = torch.zeros_like(x)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # on another stream the call would read zeros
        late.copy_(x)
        result = grouped_gemm(late, w, offsets)
    stream.synchronize()
    close(result, wanted)


@pytest.mark.parametrize("worklist", ["search", "table"])
def test_calls_are_captured_in_graphs(worklist):
    (x, w, offsets), wanted = product()
    config = tile.Config(worklist=worklist)
    grouped_gemm(x, w, offsets, config=config)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = grouped_gemm(x, w, offsets, config=config)
    graph.replay()
    close(result, wanted)
    offsets.copy_(torch.tensor([0, 0, 200, 201, 256], dtype=torch.int32))
    x.mul_(2.0)
    graph.replay()
    close(result, exact(x.cpu().numpy(), w.cpu().numpy(), offsets.cpu().numpy()), 2e-4)


def test_other_threads_and_many_calls_at_once():
    from concurrent.futures import ThreadPoolExecutor

    tensors, wanted = product()
    with ThreadPoolExecutor(8) as pool:
        for result in pool.map(lambda _: grouped_gemm(*tensors), range(64)):
            close(result, wanted)


@tile.kernel
def doubled_in_place(x, offsets):
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            x[t, :] = x[t, :] * 2.0


@pytest.mark.parametrize("turned", [False, True])
def test_what_a_kernel_stores_to_arguments(turned):
    x = torch.randn(256, 32, device="cuda")
    given = x.t().contiguous().t() if turned else x.clone()
    wanted = x.clone()
    wanted[10:256] *= 2
    doubled_in_place(given, torch.tensor([10, 100, 100, 256], dtype=torch.int32, device="cuda"))
    assert torch.equal(given, wanted)


@pytest.mark.parametrize("shape", [(0, 64), (256, 0)])
def test_nothing_to_do(shape):
    x = torch.randn(shape, device="cuda")
    w = torch.randn(4, shape[1], 48, device="cuda")
    offsets = torch.zeros(5, dtype=torch.int32, device="cuda")
    result = grouped_gemm(x, w, offsets)
    assert result.shape == (shape[0], 48) and not result.any()


def test_gradients_on_the_gpu():
    (x, w, offsets), _ = product()
    x.requires_grad_(), w.requires_grad_()
    seed = torch.randn(256, 48, device="cuda")
    (grouped_gemm(x, w, offsets) * seed).sum().backward()
    for g, (first, stop) in enumerate(itertools.pairwise(OFFSETS)):
        rows, cotangent = x.detach()[first:stop].double(), seed[first:stop].double()
        close(x.grad[first:stop], (cotangent @ w.detach()[g].double().T).cpu().numpy(), 1e-3)
        close(w.grad[g], (rows.T @ cotangent).cpu().numpy(), 1e-3)


def test_inside_torch_compile():
    (x, w, offsets), wanted = product()
    twice = torch.compile(lambda x, w, o: grouped_gemm(x * 2, w, o) + 1)
    close(twice(x, w, offsets), 2 * wanted + 1, 2e-4)


def test_sums_are_the_same_bits_in_every_run():
    x = torch.randn(4096, 256, device="cuda", dtype=torch.bfloat16)
    offsets = torch.tensor([0, 5, 3000, 4096], dtype=torch.int32, device="cuda")
    first = jagged_softmax(x, offsets)
    assert all(torch.equal(first, jagged_softmax(x, offsets)) for _ in range(20))


def test_tuning_measures_on_this_gpu(tmp_path):
    x = torch.randn(4096, 256, device="cuda", dtype=torch.bfloat16)
    offsets = torch.tensor([0, 5, 3000, 4096], dtype=torch.int64, device="cuda")
    goal = f"cuda:sm{''.join(map(str, torch.cuda.get_device_capability()))}"
    found = tile.tune(
        jagged_softmax, [(x, offsets)], target=goal, by="device", trials=3, folder=tmp_path
    )
    assert found.default.end == "good" and all(1e-7 < s < 1 for s in found.default.seconds)
    assert found.versions["GPU"] == torch.cuda.get_device_name()
