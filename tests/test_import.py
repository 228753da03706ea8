"""Importing the package: its surface, what it does not load, and the other project of that name."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tilelang as tile

ROOT = Path(__file__).resolve().parent.parent


def python(code, *paths):
    command = [sys.executable, "-c", code]
    env = {"PYTHONPATH": ":".join([str(ROOT), *map(str, paths)]), "JAX_PLATFORMS": "cpu"}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def test_surface():
    assert set(tile.__all__) <= set(dir(tile))
    assert all(getattr(tile, name) is not None for name in tile.__all__)
    for error in (tile.ParseError, tile.TypingError, tile.PlanError, tile.CallError):
        assert issubclass(error, tile.TileError)
    assert issubclass(tile.RaggedValueError, ValueError)


def test_unknown_names():
    with pytest.raises(AttributeError, match="module 'tilelang' has no attribute 'kernels'"):
        _ = tile.kernels


OTHERS = {
    "jit": "the decorator is tile.kernel",
    "grad": "jax.grad(loss) and loss.backward() go through a kernel; k.grad_source(...) prints it",
    "compile": "a kernel k is called in what JAX and torch transform: jax.jit, torch.compile, vmap",
    "config": "k(..., config=tile.Config({...})) takes one; k.lower(...).config is what was chosen",
    "kernels": "did you mean kernel?",
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_other_packages_call_it(name):
    with pytest.raises(AttributeError) as caught:
        getattr(tile, name)
    assert str(caught.value) == f"module 'tilelang' has no attribute {name!r}; {OTHERS[name]}"
    assert not hasattr(tile, name) and not hasattr(tile, "_of_nobody")


def test_the_decorator_of_two_others_is_a_package_here():
    """Whether it was imported already or not, as it is after the first kernel."""
    run = python("import tilelang as tile\n@tile.autotune(configs=[])\ndef f(x): return x")
    said = "tile.tune(k, [arguments, ...]) finds a config and keeps it"
    attribute = "AttributeError: module 'tilelang' has no attribute 'autotune'"
    assert run.stderr.endswith(f"{attribute}; {said}\n")
    decorator: Any = import_module("tilelang.autotune")
    with pytest.raises(tile.CallError) as caught:
        decorator(configs=[])
    assert str(caught.value) == f"tile.autotune is no decorator\n  hint: {said}"


def test_decorating_loads_no_stage():
    code = (
        "import sys, tilelang as tile\n"
        "@tile.kernel\n"
        "def f(x): return x\n"
        "print({'jax', 'torch', 'sympy', 'triton'} & set(sys.modules))"
    )
    run = python(code)
    assert run.stdout == "set()\n", run.stderr


def test_the_other_distribution(tmp_path):
    info = tmp_path / "tilelang-0.1.11.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tilelang\nVersion: 0.1.11\n")
    run = python("import tilelang", tmp_path)
    assert run.returncode == 1
    assert run.stderr.rstrip().endswith(
        "ImportError: the distribution tilelang 0.1.11 is another project that installs into the "
        "same directory as raggedtile; to use this one run\n"
        "    pip uninstall -y tilelang\n"
        "    pip install --force-reinstall raggedtile"
    )
