"""Every example runs as a program: from torch and from JAX, and both are right."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.tiers import share
from tilelang.ir import TensorSpec

pytest.importorskip("torch", reason="examples compare torch with JAX")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MODULES = sorted(
    f"examples.{folder}.{path.stem}"
    for folder in ("dense", "jagged")
    for path in (EXAMPLES / folder).glob("[a-z]*.py")
)
LINE = re.compile(r"(torch|JAX) +shape \(.*\)  relative error (\S+)$")


@pytest.mark.parametrize(
    "name", share(MODULES, 6, rest=("slow", "slow", "thorough", "slow", "thorough"))
)
def test_main(name, capsys):
    module = importlib.import_module(name)
    module.main()
    lines = capsys.readouterr().out.splitlines()
    found = [LINE.search(line) for line in lines]
    assert None not in found, lines
    assert {match[1] for match in found} == {"torch", "JAX"}
    assert all(float(match[2]) < 1e-5 for match in found), lines


@pytest.mark.parametrize("name", MODULES)
def test_an_example_is_documented_and_complete(name):
    module = importlib.import_module(name)
    assert len(module.__doc__.splitlines()) >= 4
    assert {"oracle", "make_inputs", "main", "CASES"} <= set(vars(module))
    specs = [spec for case in module.CASES for spec in case if isinstance(spec, TensorSpec)]
    dtypes = {spec.dtype for spec in specs if spec.dtype not in ("int32", "int8")}
    assert dtypes == {"bfloat16", "float32"} and len(module.CASES) >= 6
