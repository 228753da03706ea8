"""Modules that hold kernels under DDP and FSDP, and what is said of a DTensor: one process."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
from examples.jagged.grouped_gemm import grouped_gemm

torch = pytest.importorskip("torch", reason="about torch")
if not torch.distributed.is_available():
    pytest.skip("torch is built without torch.distributed", allow_module_level=True)

ROWS = torch.from_numpy(np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32))
STARTS = torch.tensor([0, 20, 20, 55])


class Experts(torch.nn.Module):
    """One layer that is a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.linspace(-1, 1, 3 * 8 * 4).reshape(3, 8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(grouped_gemm(x, self.w, STARTS))


def _gradient(module: torch.nn.Module, rows: torch.Tensor = ROWS) -> torch.Tensor:
    module(rows).square().sum().backward()
    (parameter,) = module.parameters()
    assert parameter.grad is not None
    made = parameter.grad
    return made.full_tensor() if hasattr(made, "full_tensor") else made


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    store = torch.distributed.FileStore(str(tmp_path_factory.mktemp("store") / "file"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield torch.distributed.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_ddp(mesh):
    wrapped = torch.nn.parallel.DistributedDataParallel(Experts())
    torch.testing.assert_close(_gradient(wrapped), _gradient(Experts()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fsdp(mesh, dtype):
    """It frees the memory of parameters after every use."""
    rows, whole = ROWS.to(dtype), Experts().to(dtype)
    sharded = torch.distributed.fsdp.fully_shard(Experts().to(dtype), mesh=mesh)
    torch.testing.assert_close(_gradient(sharded, rows), _gradient(whole, rows))


def test_a_dtensor_is_refused(mesh):
    x = torch.distributed.tensor.distribute_tensor(ROWS, mesh)
    with pytest.raises(tile.CallError) as caught:
        grouped_gemm(x, Experts().w.detach(), STARTS)
    assert caught.value.what == "x is a DTensor, whose parts are on several devices"
    assert caught.value.hint == (
        "pass x.to_local(), or call the kernel in torch.distributed.tensor.experimental.local_map"
    )
