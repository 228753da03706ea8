"""Calls on a GPU, as far as they go without one: down to the driver call, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import weakref
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.grouped_gemm import grouped_gemm, make_inputs
from tests.frameworks import needs_torch, needs_triton, to_torch
from tilelang.aot import CudaCompiled
from tilelang.errors import CallError, CompileError
from tilelang.ir import TensorSpec
from tilelang.runtime.cuda import execution
from tilelang.runtime.cuda.device import place_of
from tilelang.runtime.launch import TensorArgument
from tilelang.runtime.tensors import Described
from tilelang.runtime.written import Flat, function, joined

SHAPES = (
    np.zeros((256, 128), np.float32),
    np.zeros((4, 128, 64), np.float32),
    np.array([0, 10, 100, 200, 256], np.int32),
)  # those of tests/gpu/on_stub.py
ROOT = Path(__file__).resolve().parents[2]
needs_gcc = pytest.mark.skipif(
    shutil.which("gcc") is None, reason="Triton builds its launcher with a C compiler"
)


@cache
def seen() -> dict:
    """What a process saw that called kernels on the stand-in for the driver."""
    command = [sys.executable, "-m", "tests.gpu.on_stub"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@needs_triton
@needs_gcc
def test_a_call_launches_what_was_planned():
    assert seen()["arguments"] == seen()["pointers"]
    assert seen()["grid"][0] == seen()["grid"][1]
    assert seen()["threads"][0] == seen()["threads"][1]


@needs_triton
@needs_gcc
def test_neither_a_second_call_nor_other_lengths_compile_again():
    assert seen()["compiled"] == 1
    assert seen()["other lengths"] == 1


@needs_triton
@needs_gcc
def test_a_later_call_enters_few_functions():
    entered = [
        "api.Kernel.__call__",
        "runtime.dynamo.in_graph",
        "runtime.written.call_grouped_gemm",
    ]
    entered += ["autotune.lock.token", "runtime.written.later_grouped_gemm"]
    assert seen()["entered"] == [f"tilelang.{name}" for name in entered]


LATER = """\
def later_grouped_gemm(x, w, offsets):
    if (
        _kernel.__code__ is not _was_0 and _stamp(_kernel.__code__) != _stamp_0
        or _kernel.__globals__.get('hl', _missing) is not _was_1 and _stamp(_kernel.__globals__.get('hl', _missing)) != _stamp_1
        or _tracing()
        or _modes()
        or _transforms()
        or _forward._current_level >= 0
        or _records() and (x.requires_grad or w.requires_grad)
    ):
        return _otherwise((x, w, offsets))
    _x_ = (x.resolve_neg() if x.is_neg() else x).contiguous()
    _w_ = (w.resolve_neg() if w.is_neg() else w).contiguous()
    _offsets_ = offsets.contiguous()
    _y_ = _empty((256, 64), (64, 1), dtype=_float32, device=_device)
    _x_at = _x_.data_ptr()
    _w_at = _w_.data_ptr()
    _offsets_at = _offsets_.data_ptr()
    _y_at = _y_.data_ptr()
    _stream = _stream_of(0)
    if (_x_at | _w_at | _offsets_at) & 15 or not (_x_at and _w_at and _offsets_at):
        _rarely(_stream, [_x_, _w_, _offsets_, _y_])
    else:
        LAUNCH
    return _y_
"""  # noqa: E501
DIRECTLY = (
    "_launch_0(12, 1, 1, _stream, _code_0, False, False, None, None, _packed_0, None, None, None, "
    "_x_at, _w_at, _offsets_at, _y_at)"
)
BY_TRITON = (
    "_run_0(12, 1, 1, _stream, _code_0, _packed_0, None, None, None, "
    "_x_at, _w_at, _offsets_at, _y_at)"
)


@needs_triton
@needs_gcc
def test_what_a_later_call_does():
    launches = {LATER.replace("LAUNCH", line) for line in (DIRECTLY, BY_TRITON)}
    assert seen()["later"] in launches


@needs_triton
@needs_gcc
@pytest.mark.parametrize("indexing", ["pointer", "descriptor"])
def test_a_launch_by_what_triton_puts_around_it(indexing):
    assert seen()[f"other Triton, {indexing}"] == [True, seen()["grid"][0]]


@needs_triton
@needs_gcc
def test_memory_is_what_torch_says():
    assert seen()["negated"], "the numbers in its memory have the other sign"
    assert seen()["without memory"] == "x has no memory to read"


def test_a_call_on_another_gpu_makes_it_the_current_one(monkeypatch):
    torch = pytest.importorskip("torch", reason="calls on GPUs are made from torch")
    moves = [0]
    there = SimpleNamespace(get_current_device=lambda: moves[-1], set_current_device=moves.append)
    monkeypatch.setattr(execution, "driver", lambda: there)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    where = execution._where(torch.device("cuda", 1), ["x"], lambda given: (given, moves[-1]))
    call = function("it", ["x"], joined(where, Flat((), ("return 'here'",))))
    assert call(5) == ((5,), 1)
    assert moves == [0, 1, 0]
    moves.append(1)
    assert call(5) == "here"
    execution._there(torch.device("cpu"), lambda given: moves.append(7), ())
    assert moves[-2:] == [1, 7], "nothing is moved for the interpreter"


def test_code_is_loaded_where_it_is_launched(monkeypatch):
    """With another GPU as torch's current one: Triton loads for that which is current."""
    torch = pytest.importorskip("torch", reason="calls on GPUs are made from torch")
    moves = [0]
    there = SimpleNamespace(get_current_device=lambda: moves[-1], set_current_device=moves.append)
    monkeypatch.setattr(execution, "driver", lambda: there)
    monkeypatch.setattr(execution, "place_of", lambda *_: torch.device("cuda", 1))
    monkeypatch.setattr(execution, "require_triton", lambda _: None)
    loaded: list[int] = []
    monkeypatch.setattr(execution, "_launch", lambda *_, **__: loaded.append(moves[-1]) or len)
    tile.kernel(grouped_gemm.__wrapped__)(*map(to_torch, SHAPES), target="cuda:sm90")
    assert (loaded, moves) == ([1], [0, 1, 0])


@needs_triton
@needs_gcc
def test_a_pointer_that_is_not_aligned_has_code_of_its_own():
    assert seen()["unaligned"] == [True, False, False, False]
    assert seen()["in all"] == 2
    assert seen()["launches"] == 5


@needs_triton
@needs_gcc
def test_what_is_not_contiguous_is_copied():
    assert seen()["copied"]


@needs_triton
@needs_gcc
@needs_torch
def test_strange_tensors_are_launched_on():
    """One launch each: on the tensor itself where it can be, by what was compiled for that."""
    from tests.gpu.arguments import FORMS

    variant = {True: [], False: [True, False, False, False]}
    for name, form in FORMS.items():
        first, later = (seen()["forms"][f"{name}, {nth}"] for nth in ("first", "later"))
        on_host = name.startswith("NumPy")  # a GPU has a copy of each
        for launches, itself, aligned, _ in (first, later):
            assert (launches, aligned) == (1, form.aligned), name
            assert itself == form.itself or on_host, name
        assert first[3] in ([], [variant[form.aligned]]), name
        assert later[3] == [], f"{name} is compiled again"
    rows = [seen()["forms"][f"one row, {nth}"] for nth in ("first", "later")]
    assert rows == [[1, False, True, []]] * 2, "a program reads rows that are there"


@needs_triton
@needs_gcc
def test_descriptors_have_memory_and_arrays_that_are_aligned():
    (size,) = seen()["scratch"]
    launch = grouped_gemm.lower(
        *map(to_torch, SHAPES), target="cuda:sm90", config=tile.Config(indexing="descriptor")
    ).plan.launches[0]
    assert size == launch.programs * len(launch.descriptors) * 128
    assert seen()["descriptor of x"]
    assert seen()["moved"] == [0, True], "what is not aligned is copied"
    assert seen()["compiled for moved"] == 0


@needs_torch
def test_without_a_gpu():
    arguments = [to_torch(a) for a in make_inputs()]
    with pytest.raises(CallError) as caught:
        grouped_gemm(*arguments, target="cuda:sm90")
    assert str(caught.value).splitlines() == [
        "grouped_gemm is planned for cuda:sm90, and none of its arguments is on a GPU",
        "  hint: move them with .cuda(), or set TRITON_INTERPRET=1 before Python starts, to run it "
        "in Triton's interpreter",
    ]


def placed(**devices):
    """Where a call with tensors on these devices would go; `s_` has no dimension."""
    torch = pytest.importorskip("torch", reason="calls on GPUs are made from torch")
    tensors = [
        SimpleNamespace(device=torch.device(d), dim=lambda n=n: 0 if n.startswith("s_") else 2)
        for n, d in devices.items()
    ]
    described = Described(TensorSpec((2, 2), "float32", "torch"), "torch")
    operands = [TensorArgument(n, name, described) for n, name in enumerate(devices)]
    return str(place_of("kernel", operands, tensors, "cuda:sm90"))


@pytest.mark.parametrize("other", ["cpu", "cuda:1", "xpu:0"])
def test_tensors_on_two_devices(other):
    with pytest.raises(CallError) as caught:
        placed(x="cuda:0", w=other)
    assert str(caught.value).splitlines() == [
        f"w is on {other}, and x on cuda:0",
        "  hint: move it: w.to(x.device)",
    ]
    assert placed(x="cuda:1", w="cuda:1", s_="cpu") == "cuda:1", "a number may come from the host"


def test_shapes_without_data():
    x, w = tile.spec((64, 32), "float32"), tile.spec((2, 32, 32), "float32")
    with pytest.raises(CallError, match="x is a shape without data, and calling grouped_gemm"):
        grouped_gemm(x, w, tile.spec((3,), "int32"), target="cuda:sm90")


@pytest.mark.parametrize("target", ["cuda:sm90", "cpu"])
def test_no_argument_outlives_its_call(monkeypatch, target):
    torch = pytest.importorskip("torch", reason="calls on GPUs are made from torch")
    monkeypatch.setattr(execution, "place_of", lambda *_: torch.device("cpu"))
    monkeypatch.setattr(execution, "require_triton", lambda _: None)
    nothing = lambda arrays: Flat((), (f"{arrays[-1]} = None",))  # noqa: E731
    monkeypatch.setattr(execution, "_steps", lambda *_: nothing)
    kernel = tile.kernel(grouped_gemm.__wrapped__)
    for _ in range(3):
        tensors = list(map(to_torch, SHAPES))
        gone = [weakref.ref(tensor) for tensor in tensors]
        kernel(*tensors, target=target)
        del tensors  # nothing waits for the garbage collector either
        assert [ref() is None for ref in gone] == [True] * 3


# ---------------------------------------------------------------- the real compiler


@needs_triton
def test_what_the_compiler_made():
    specs = (
        tile.spec((4096, 512), "bfloat16"),
        tile.spec((8, 512, 1024), "bfloat16"),
        tile.spec((9,), "int32"),
    )
    made = grouped_gemm.compile(*specs, target="cuda:sm90")
    assert isinstance(made, CudaCompiled)
    (program,) = made.programs
    assert program.name == "grouped_gemm_kernel"
    assert (program.stack, program.spills) == (0, 0)
    assert 0 < program.registers <= 255
    assert 0 < program.shared <= made.target.shared
    assert program.instructions["HGMMA"] > 0, "no matrix instruction"
    assert program.instructions["UTMALDG"] > 0, "no boxes are copied"
    assert "grouped_gemm_kernel: " in str(made)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "indexing"), [("cuda:sm90", "pointer"), ("cuda:sm100", "descriptor")]
)
def test_what_the_compiler_makes_of_the_other_indexing(target, indexing):
    specs = (
        tile.spec((4096, 512), "bfloat16"),
        tile.spec((8, 512, 1024), "bfloat16"),
        tile.spec((9,), "int32"),
    )
    made = grouped_gemm.compile(
        *specs, target=target, config=tile.Config(indexing=indexing), timeout=300.0
    )
    program, *_ = made.programs
    assert (program.stack, program.spills) == (0, 0)
    copies = [program.instructions[name] > 0 for name in ("LDGSTS", "UTMALDG")]
    assert copies == [indexing == "pointer", indexing == "descriptor"]
    assert program.scratch == (2 * 128 if indexing == "descriptor" else 0)  # 128 bytes each


@needs_triton
def test_more_shared_memory_than_there_is():
    """The plan refuses what it can foresee; what it cannot, the compiler tells."""
    from tilelang.aot import cuda

    lowered = grouped_gemm.lower(*make_inputs(), target="cuda:sm90")
    program = cuda.Assembled("grouped_gemm_kernel", 10, 0, 300_000, 4, {})
    with pytest.raises(CompileError) as caught:
        cuda._check_memory(lowered, lowered.target, program)
    assert caught.value.what == (
        "grouped_gemm for cuda:sm90 does not compile: grouped_gemm_kernel needs 300,000 bytes of "
        "shared memory, a program may have 232,448"
    )


def test_bundles_are_those_of_a_tpu():
    with pytest.raises((CallError, CompileError)) as caught:
        grouped_gemm.compile(*make_inputs(), target="cuda:sm90", schedule=True)
    if find_spec("triton") is not None:
        assert "schedule counts the bundles of TPU programs" in str(caught.value)


# ---------------------------------------------------------------- what is checked before


@tile.kernel
def window(x, start):
    y = hl.zeros([8, x.shape[1]], dtype=x.dtype)
    for t in hl.tile(8):
        y[t, :] = x[t.index + start[0], :]
    return y


@tile.kernel
def behind(x, n):
    """No tensor says where the tile is: only the facts doubt that it stays in x."""
    y = hl.zeros([8, x.shape[1]], dtype=x.dtype)
    for t in hl.tile(8):
        if n[0] > 0:
            y[t, :] = x[t.index + 12, :]
    return y


@needs_torch
@pytest.mark.parametrize("kernel", [window, behind], ids=["window", "behind"])
def test_a_gpu_call_checks_what_a_cpu_call_checks(monkeypatch, kernel):
    arguments = np.zeros((16, 8), np.float32), np.array([9], np.int32)
    with pytest.raises(tile.RaggedValueError) as on_cpu:
        kernel(*map(to_torch, arguments))
    torch = pytest.importorskip("torch", reason="calls on GPUs are made from torch")
    monkeypatch.setattr(execution, "place_of", lambda *_: torch.device("cpu"))
    monkeypatch.setattr(execution, "require_triton", lambda _: None)
    launched = Flat((), ("_fail('launched')",), {"_fail": pytest.fail})
    monkeypatch.setattr(execution, "_steps", lambda *_: lambda arrays: launched)
    with pytest.raises(tile.RaggedValueError) as on_gpu:
        kernel(*map(to_torch, arguments), target="cuda:sm90")
    assert str(on_gpu.value) == str(on_cpu.value)
