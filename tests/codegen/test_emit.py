"""The printed module: clean, narrow, the same every time, and right in every form."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.codegen.kernels import CASES
from tilelang.codegen.pallas.target import TARGETS
from tilelang.codegen.source import Source
from tilelang.schedule.config import Config

ROOT = Path(__file__).resolve().parents[2]
PRINTED = [(name, config) for name, case in CASES.items() for config in case.configs]
OF_GROUPS = {"spans_of", "group_sums", "move_rows"}  # functions of modules with blocks of groups
RUFF = "--isolated --line-length=100 --select=E,F,W,B,I,UP,PIE --ignore=B023,B905,E731 -q"


@functools.cache
def source(name: str, config: Config | None, target: str = "cpu") -> str:
    case = CASES[name]
    return case.kernel.source(*case.arguments, config=config, target=target)


@functools.cache
def everything() -> dict[str, str]:
    """Every form for the CPU, and the default for every TPU."""
    texts = {f"{n}_{i}.py": source(n, c) for i, (n, c) in enumerate(PRINTED)}
    for target in TARGETS:
        texts |= {f"{n}_{target.replace(':', '_')}.py": source(n, None, target) for n in CASES}
    return texts


def test_every_module_is_clean(tmp_path: Path) -> None:
    for name, text in everything().items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "ruff", "check", *RUFF.split(), "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_line_is_wider_than_100_columns_or_ends_in_blanks() -> None:
    for text in everything().values():
        for line in text.splitlines():
            assert len(line) <= 100, line
            assert line == line.rstrip()
        assert text.endswith("\n")
        assert not text.endswith("\n\n")


def test_modules_have_imports_kernels_and_one_typed_host_function() -> None:
    for text in everything().values():
        functions = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
        *others, host = functions
        kernels = [f for f in others if f.name.endswith("_kernel")]
        shared = [f for f in others if f not in kernels]
        assert kernels
        assert {f.name for f in shared} <= OF_GROUPS
        assert all(f"{f.name}(" in text.replace(f"def {f.name}(", "") for f in shared)
        assert all(f.returns is not None for f in (host, *shared))
        assert all(a.annotation is not None for a in (*host.args.args, *host.args.kwonlyargs))


@pytest.mark.parametrize("name", ["attention", "awkward"])
def test_the_text_does_not_depend_on_the_process(name: str) -> None:
    program = (
        f"from tests.codegen.kernels import CASES; case = CASES[{name!r}]; "
        "print(case.kernel.source(*case.arguments, config=case.configs[0]), end='')"
    )
    texts = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        texts.add(done.stdout)
    assert texts == {source(name, CASES[name].configs[0])}


@pytest.mark.parametrize(("name", "config"), PRINTED, ids=str)
def test_every_form_gives_the_reference(name: str, config: Config) -> None:
    case = CASES[name]
    with np.errstate(all="ignore"):
        wanted = case.kernel.reference(*case.arguments)
    results = case.kernel(*case.arguments, config=config)
    if not isinstance(results, tuple):
        results, wanted = (results,), (wanted,)
    for result, want in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-3)


def test_a_ragged_nest_is_one_pipeline() -> None:
    for config in CASES["attention"].configs[:2]:
        text = source("attention", config)
        assert text.count("pltpu.emit_pipeline(") == 1
        assert text.count("pl.pallas_call(") == 1


def test_no_alignment_is_promised_of_data() -> None:
    assert not any("multiple_of" in text for text in everything().values())
    assert not any("num_programs" in text for text in everything().values())


def test_statements_stand_under_the_lines_they_come_from() -> None:
    lines = [line.strip() for line in source("matmul", CASES["matmul"].configs[0]).splitlines()]
    quoted = [line.split(": ", 1)[1] for line in lines if line.startswith("# kernels.py:")]
    assert quoted == [
        "acc = hl.zeros([tm, tn], dtype=hl.float32)",
        "acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)",
        "y[tm, tn] = hl.relu(acc + b[tn][None, :])",
    ]


def test_axes_are_explained_once_each() -> None:
    text = source("matmul", CASES["matmul"].configs[0])
    for line in (
        "# tm: grid dimension, blocks of 16; parallel: each tm writes its own rows of y",
        "# tk: grid dimension, blocks of 64; ordered: carries acc, a sum",
    ):
        assert text.count(line) == 1


def test_a_source_is_a_module_that_tracebacks_can_show() -> None:
    import linecache

    loaded = Source(source("matmul", None), "matmul")
    function = loaded.load()
    assert loaded.load() is function
    assert function.__code__.co_filename == loaded.filename
    assert "def matmul(" in "".join(linecache.getlines(loaded.filename))
    assert len(loaded.digest) == 16
    assert Source(loaded.text + "# another\n", "matmul").filename != loaded.filename


def test_two_sources_share_no_kernel_function() -> None:
    one = Source(source("matmul", CASES["matmul"].configs[0]), "matmul").load()
    other = Source(source("matmul", CASES["matmul"].configs[1]), "matmul").load()
    name = "matmul_kernel"
    assert one.__globals__[name] is not other.__globals__[name]


@tile.kernel
def constant():
    """No inputs, and blocks that are larger than the array."""
    y = hl.full([40, 50], 3.0, dtype=hl.float32)
    for tn in hl.tile(50):
        y[:, tn] = 1.0 + hl.zeros([40, tn], dtype=hl.float32)
    return y


@pytest.mark.parametrize("loop_type", ["grid", "fori_loop", "unroll"])
def test_a_kernel_without_inputs_has_the_imports_it_needs(loop_type: str) -> None:
    result = constant(config=tile.Config({"tn": 32}, loop_type=loop_type))
    assert np.array_equal(np.asarray(result), np.ones((40, 50)))


@tile.kernel
def second(x):
    y = hl.empty([40, 50], dtype=x.dtype)
    for tm, tn in hl.tile([40, 50]):
        y[tm, tn] = x[1, tm, tn] + 1.0
    return y


def test_a_part_of_an_array_is_shown_by_a_grid():
    """No TPU kernel without one has windows that are not the whole array."""
    asked = tile.Config({"tm": 40, "tn": 50})
    x = np.arange(3 * 40 * 50, dtype=np.float32).reshape(3, 40, 50)
    text = second.source(x, config=asked, target="tpu:v5e")
    assert "grid=(1,)" in text and "lambda _: (1, 0, 0)" in text
    assert np.array_equal(np.asarray(second(x, config=asked)), x[1] + 1)
    whole = constant.source(config=tile.Config({"tn": 50}), target="tpu:v5e")
    assert "grid=" not in whole
