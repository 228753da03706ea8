"""Kernels lowered by JAX for an NVIDIA GPU, on a machine that has none.

The launches are read back from StableHLO and from the records in it, and compared with the plan.
Nothing runs: what jaxlib's launcher makes of a record is in its source alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib.mlir import ir

import tilelang as tile
import tilelang.language as hl
from examples.jagged.grouped_gemm import grouped_gemm, make_inputs
from examples.jagged.jagged_sum import jagged_sum
from tests.frameworks import needs_triton
from tests.runtime import launch_record
from tests.runtime.launch_record import LAUNCHER
from tests.runtime.test_platforms import into, ragged
from tests.subjects import SUBJECTS
from tilelang import aot, api
from tilelang.aot import compile as compiling
from tilelang.codegen.triton.plan.steps import every_step
from tilelang.codegen.triton.plan.types import Write
from tilelang.errors import CallError, PlanError
from tilelang.runtime import device, jax_compat
from tilelang.runtime.cuda import custom_call
from tilelang.runtime.cuda.record import record

X = np.random.default_rng(0).standard_normal((40, 128)).astype(np.float32)
OFFSETS = np.array([0, 7, 7, 38], np.int32)


@dataclass(frozen=True)
class Fake:
    """A compiled program without code: nothing looks into it before a launch."""

    name: str
    warps: int
    ptx: str = "PTX"
    shared: int = 4096
    scratch: int = 0


def fakes(lowered):
    return [Fake(launch.name, launch.warps) for launch in lowered.plan.launches]


@pytest.fixture
def uncompiled(monkeypatch):
    """Triton is not asked."""
    monkeypatch.setattr(api, "_compiled", fakes)


def moved(x, offsets):
    """An output that must be filled: no range covers its first row."""
    y = hl.zeros([x.shape[0] + 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm + 1, :] = x[tm, :]
    return y


def mixed(x, offsets, first):
    """What is filled comes before what is not, or behind it."""
    rows = x.shape[0] + 1
    if first:
        y = hl.full([rows, x.shape[1]], -1.0, dtype=x.dtype)
        s = hl.empty([offsets.shape[0] - 1], dtype=hl.float32)
    else:
        s = hl.empty([offsets.shape[0] - 1], dtype=hl.float32)
        y = hl.full([rows, x.shape[1]], -1.0, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros([], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm + 1, :] = x[tm, :] * 2.0
            acc += x[tm, :].sum(1).sum(0)
        s[g] = acc
    return y, s


def on_cuda(call, *args, platforms=("cuda",)):
    return jax.jit(call).trace(*args).lower(lowering_platforms=platforms).as_text()


# ---------------------------------------------------------------- the launches are the plan's


def wrong(lowered):
    """How the launches that JAX would make differ from the plan; "" if they do not."""
    plan = lowered.plan
    inputs = [t for t in lowered.ir.tensors if t.role == "input"]
    specs = [
        jax.ShapeDtypeStruct(t.shape, "int32" if t.dtype == "int64" else t.dtype) for t in inputs
    ]
    call = custom_call.traced(plan, fakes(lowered))
    module = jax.jit(call).trace(*specs).lower(lowering_platforms=("cuda",)).compiler_ir()
    names = [t.name for t in inputs]
    calls, returned = launch_record.calls(module, names, plan.launches)
    fresh = {b.name: "empty" if b.fill is None else f"filled with {b.fill}" for b in plan.buffers}
    stored = set()
    for launch, found in zip(plan.launches, calls, strict=True):
        said = found.record
        if (said.name, said.kernel["kernel_name"]) != (launch.name, launch.name):
            return f"{said.name} is {launch.name}"
        if (said.grid, said.kernel["num_warps"]) != ((launch.programs, 1, 1), launch.warps):
            return f"{said.name} is launched as {said.grid}"
        if said.kernel["compute_capability"] != plan.target.arch or set(said.alignments) != {16}:
            return f"{said.name} is for another GPU"
        stores = {s.access.tensor for s in every_step(launch.body) if isinstance(s, Write)}
        for wanted, got in zip(launch.arguments, found.arguments, strict=True):
            known = wanted in names or wanted in stored
            first = {fresh.get(wanted)} | ({wanted} if fresh.get(wanted) == "empty" else set())
            if got not in ({wanted} if known else first):
                return f"{launch.name} is given {got} for {wanted}"
        if set(found.returned) != stores:
            return f"{launch.name} changes {sorted(stores)}, and gives {found.returned}"
        stored |= stores
    changed = [t.name for t in inputs if t.mutated]
    if returned != [*(r.name for r in plan.results), *changed]:
        return f"{returned} are returned"
    return ""


def test_without_memory_for_descriptors_there_are_pointers(uncompiled):
    """jaxlib's launcher gives none: a kernel that asks for descriptors runs, and says so."""
    config = tile.Config(indexing="descriptor")
    arrays = [jnp.asarray(a) for a in make_inputs()]
    asked = tile.kernel(grouped_gemm.__wrapped__, config=config, checks=False)
    assert "boxes of" in asked.explain(*make_inputs(), target="cuda:sm90")
    told = asked.explain(*arrays, target="cuda:sm90")
    assert "pointers: the launcher gives no memory for descriptors" in told
    assert "boxes of" not in told
    assert on_cuda(asked, *arrays).count(LAUNCHER) == 1
    lowered = asked.lower(*arrays, target="cuda:sm90")
    assert not any(launch.descriptors for launch in lowered.plan.launches)


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_every_example(subject):
    assert not wrong(subject.kernel.lower(*subject.cases[-1], target="cuda:sm90"))


FORMS = {
    "a table of items": (grouped_gemm, make_inputs(), tile.Config(worklist="table")),
    "a sum in parts": (jagged_sum, (X, OFFSETS), tile.Config(split=3)),
    "an argument is stored to": (tile.kernel(into), (X, X), None),
    "not filled before filled": (tile.kernel(mixed), (X, OFFSETS, False), None),
    "filled before not filled": (tile.kernel(mixed), (X, OFFSETS, True), None),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form):
    kernel, args, config = FORMS[form]
    assert not wrong(kernel.lower(*args, config=config, target="cuda:sm80"))


def shifted(how):
    """Aliases that begin at the first result, whatever else is made."""

    class Wrong(custom_call.Passed):
        @property
        def aliases(self):
            return {at: number for number, at in enumerate(how.aliases)}

    return Wrong(how.operands, how.made, how.changed)


BUGS = {
    "the table is lost": lambda how, launch: replace(how, changed=how.changed[1:]),
    "an operand too many": lambda how, launch: replace(how, operands=launch.arguments, made=()),
    "operands the other way": lambda how, launch: replace(how, operands=how.operands[::-1]),
    "nothing is changed": lambda how, launch: replace(how, changed=()),
    "aliases one too low": lambda how, launch: shifted(how),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted(bug, monkeypatch):
    """The comparison finds what is passed wrongly, in one of the forms at least."""
    right = custom_call.passed

    def passed(launch, valued):
        return BUGS[bug](right(launch, valued), launch)

    monkeypatch.setattr(custom_call, "passed", passed)

    def found(kernel, args, config):
        try:
            return wrong(kernel.lower(*args, config=config, target="cuda:sm90"))
        except (ValueError, IndexError, KeyError) as error:
            return str(error)

    assert any(found(*case) for case in FORMS.values())


# ---------------------------------------------------------------- the record


def test_a_record_is_what_jaxlib_writes():
    """The bytes of TritonKernelCall(...).to_proto of jax-cuda12-plugin 0.10.2."""
    assert record(Fake("add_kernel", 4, "PTX", 1024), 90, 8, 3) == (
        b'\n4\n\x1a\n\nadd_kernel\x10\x04\x18\x80\x08"\x03PTX0ZP\x01\x10\x08\x18\x01 \x01'
        b'*\x04\n\x02\x10\x10*\x04\n\x02\x10\x10*\x04\n\x02\x10\x10"\nadd_kernel'
    )


@pytest.mark.parametrize("shared", [0, 127, 128, 232_448])
def test_a_record_beside_the_plugin(shared):
    gpu_triton = pytest.importorskip("jaxlib.gpu_triton")
    if not hasattr(gpu_triton, "TritonKernelCall"):
        pytest.skip("jax-cuda12-plugin is not installed")
    kernel = gpu_triton.TritonKernel("k", 8, 1, shared, "PTX" * 100, "", 80)
    pointers = [gpu_triton.create_array_parameter(0, 16)] * 5
    theirs = gpu_triton.TritonKernelCall(kernel, 70_000, 1, 1, pointers).to_proto("k", b"")
    assert record(Fake("k", 8, "PTX" * 100, shared), 80, 70_000, 5) == theirs


def test_memory_that_the_launcher_does_not_give():
    with pytest.raises(CallError) as caught:
        record(Fake("k", 4, scratch=128), 90, 1, 1)
    assert str(caught.value) == (
        "k needs 128 bytes of scratch memory per program, which JAX's launcher does not give\n"
        "  hint: call the kernel with torch tensors"
    )


@needs_triton
def test_the_code_in_a_record_is_that_of_the_plan():
    """Through Triton's compiler, in a worker."""
    args = list(map(jnp.asarray, make_inputs()))
    lowered = jax.jit(grouped_gemm).trace(*args).lower(lowering_platforms=("cuda",))
    module = lowered.compiler_ir()
    found = []
    module.operation.walk(lambda op: (found.append(op), ir.WalkResult.ADVANCE)[1])
    (call,) = (op for op in found if LAUNCHER in str(op.attributes.get("call_target_name", "")))
    said = launch_record.read(call.attributes["mhlo.backend_config"]["opaque"].value_bytes)
    plan = grouped_gemm.lower(*make_inputs(), target="cuda:sm90").plan
    assert said.kernel["num_warps"] == plan.launches[0].warps
    ptx = said.kernel["ptx"]
    assert re.findall(r"\.entry (\w+)", ptx) == [said.kernel["kernel_name"]]
    assert ".target sm_90a" in ptx
    assert int(re.findall(r"\.reqntid (\d+)", ptx)[0]) == 32 * said.kernel["num_warps"]
    # behind the pointers, memory for descriptors and for profiles, which the launcher appends
    head = ptx.split(".entry")[1].split("{")[0]
    assert head.count(".param") == len(said.alignments) + 2


@needs_triton
def test_one_worker_compiles_whatever_is_lowered(monkeypatch):
    asked = []

    def compile_lowered(lowered, worker):
        asked.append(worker)
        return aot.CudaCompiled(lowered.target, lowered.config, "", tuple(fakes(lowered)), 0.0)

    monkeypatch.setattr(compiling, "compile_lowered", compile_lowered)
    for _ in range(2):
        assert LAUNCHER in on_cuda(tile.kernel(ragged), X, OFFSETS)
    assert len(asked) == 2 and asked[0] is asked[1] and asked[0].alive


# ---------------------------------------------------------------- in JAX


@pytest.mark.usefixtures("uncompiled")
def test_one_module_for_three_platforms():
    kernel = tile.kernel(ragged)
    text = on_cuda(kernel, X, OFFSETS, platforms=("cpu", "tpu", "cuda"))
    assert text.count(f"@{LAUNCHER}(") == 1
    assert text.count("tpu_custom_call") == 1
    assert sorted(t.name for _, _, t in kernel._lowered) == ["cpu", "cuda:sm90", "tpu:v6e"]


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("target", ["cuda:sm80", "cuda:sm100"])
def test_a_target_says_which_gpu(target):
    kernel = tile.kernel(ragged, target=target)
    assert LAUNCHER in on_cuda(kernel, X, OFFSETS)
    assert [t.name for _, _, t in kernel._lowered] == [target]


@pytest.mark.usefixtures("uncompiled")
def test_vmap_and_export():
    batched = jax.vmap(tile.kernel(ragged), (0, None))
    assert LAUNCHER in on_cuda(batched, np.stack([X, X]), OFFSETS)
    allowed = [jax.export.DisabledSafetyCheck.custom_call(LAUNCHER)]
    made = jax.export.export(
        jax.jit(tile.kernel(ragged)), platforms=["cuda"], disabled_checks=allowed
    )(X, OFFSETS)
    assert LAUNCHER in made.mlir_module()


@pytest.mark.usefixtures("uncompiled")
def test_no_interpreter_is_in_what_is_lowered():
    """Nothing but fills and launches, and no code of Pallas."""
    fill, launch = {"constant", "broadcast_in_dim"}, {"custom_call"}
    for kernel, known in ((ragged, launch), (moved, fill | launch)):
        text = on_cuda(tile.kernel(kernel), X, OFFSETS)
        ops = set(re.findall(r"stablehlo\.(\w+)", text)) - {"output_operand_alias"}
        assert ops == known


def test_nothing_to_launch(uncompiled):
    y = on_cuda(tile.kernel(ragged), X[:0], OFFSETS * 0)
    assert LAUNCHER not in y


# ---------------------------------------------------------------- which GPU


@dataclass(frozen=True)
class Gpu:
    platform: str = "gpu"
    compute_capability: str = "8.0"
    device_kind: str = "NVIDIA A100"


def test_a_gpu_says_which_target():
    assert jax_compat.kind_of(Gpu()) == "8.0"
    assert device.target_of("cuda", "8.0").name == "cuda:sm80"
    assert device.target_of("cuda", "10.0").name == "cuda:sm100"
    assert device.target_of("cuda").name == "cuda:sm90"
    with pytest.raises(PlanError) as caught:
        device.target_of("cuda", "7.5")
    assert str(caught.value) == (
        "the GPU has compute capability 7.5, which is not a known target\n"
        "  hint: give target=, one of 'cuda:sm80', 'cuda:sm89', 'cuda:sm90', 'cuda:sm100', "
        "to plan as for that one"
    )


def test_arrays_on_a_gpu_are_planned_for_it(monkeypatch):
    monkeypatch.setattr(device, "default_platform", lambda: "cuda")
    monkeypatch.setattr(device.jax, "devices", lambda platform: [Gpu()])
    assert device.target_of("cuda").name == "cuda:sm80"
    source = tile.kernel(ragged).source
    seen = []
    jax.jit(lambda x, o: (seen.append(source(x, o)), x)[1])(X, OFFSETS)
    assert seen[0].startswith('"""ragged for cuda:sm80')


REFUSED = {
    "a GPU's plan on a CPU": (
        lambda: tile.kernel(ragged)(jnp.asarray(X), jnp.asarray(OFFSETS), target="cuda:sm90"),
        "ragged is planned for target 'cuda:sm90', and it would run on the CPU\n"
        "  hint: leave target out, or lower for a GPU: "
        "jax.jit(f).trace(...).lower(lowering_platforms=('cuda',))",
    ),
    "a GPU's plan in a jit on a CPU": (
        lambda: jax.jit(tile.kernel(ragged, target="cuda:sm90"))(X, OFFSETS),
        "ragged is planned for target 'cuda:sm90', and it would run on the CPU\n"
        "  hint: leave target out, or lower for a GPU: "
        "jax.jit(f).trace(...).lower(lowering_platforms=('cuda',))",
    ),
    "a TPU's plan on a GPU": (
        lambda: on_cuda(tile.kernel(ragged, target="tpu:v6e"), X, OFFSETS),
        "ragged is planned for target 'tpu:v6e', and it would run on a GPU\n"
        "  hint: leave target out, or name the GPU: target='cuda:sm90'",
    ),
    "the interpreter": (
        lambda: on_cuda(tile.kernel(ragged, interpret=True), X, OFFSETS),
        "ragged was made with interpret=True, and it would run on a GPU\n"
        "  hint: leave interpret out: GPUs run compiled code",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(CallError) as caught:
        call()
    assert str(caught.value) == message


def test_fields_of_a_tpu():
    with pytest.raises(PlanError, match="loop_type"):
        on_cuda(tile.kernel(ragged, config=tile.Config(loop_type="grid")), X, OFFSETS)
