"""Workers that answer, die, hang or talk nonsense: made-up commands, no compiler."""

from __future__ import annotations

import importlib.util
import sys
import time

import pytest

import tilelang as tile
from tests.aot.written import lowered
from tests.frameworks import needs_triton
from tilelang.aot import Gone, Worker
from tilelang.aot.process import environment
from tilelang.aot.translate import gone

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
ABORT = (
    "import os, sys; sys.stdin.readline(); print('F: no such op', file=sys.stderr, flush=True); "
)


def start(code):
    return Worker([sys.executable, "-c", code])


def ended(code, timeout=20.0):
    """How a worker that runs `code` ends when it is asked something."""
    with start(code) as worker:
        with pytest.raises(Gone) as caught:
            worker.ask({"text": ""}, timeout)
        assert not worker.alive
    return caught.value


def test_an_answer_for_each_request():
    with start(ECHO) as worker:
        assert worker.ask({"a": [1, "é"]}, 20) == {"a": [1, "é"]}
        assert worker.ask({"b": None}, 20) == {"b": None}
        assert worker.alive
    assert not worker.alive


def test_a_crash():
    error = gone(lowered(), ended(ABORT + "os.abort()"), 60)
    assert error.what == (
        "double for tpu:v5e does not compile: the compiler aborted its process (SIGABRT): "
        "F: no such op"
    )
    assert "F: no such op" in error.raw
    assert error.loc == lowered().ir.loc


def test_out_of_memory():
    error = gone(lowered(), ended(ABORT + "os.kill(os.getpid(), 9)"), 60)
    assert "the compiler was killed, as when memory runs out" in error.what


def test_an_exit():
    error = gone(lowered(), ended("print('no', flush=True); raise ImportError('nothing here')"), 60)
    assert "ended with exit code 1: ImportError: nothing here" in error.what


def test_a_hang():
    begin = time.perf_counter()
    found = ended("import time; time.sleep(60)", timeout=0.3)
    assert time.perf_counter() - begin < 10
    assert found.code is None
    error = gone(lowered(), found, 0.3)
    assert error.what == "double for tpu:v5e was not compiled within 0.3 seconds"
    assert isinstance(error, tile.TileError)


def test_a_missing_module_is_named():
    error = gone(lowered(), Gone(1, "ModuleNotFoundError: No module named 'jax'"), 60)
    assert "jax is not installed" in error.what
    assert error.hint == "pip install 'raggedtile[tpu]'"


def test_the_environment_pretends_to_have_a_tpu():
    made = environment({"JAX_PLATFORMS": "tpu", "LIBTPU_INIT_ARGS": "--a"}, flags="--b")
    assert made["JAX_PLATFORMS"] == "cpu"
    assert made["LIBTPU_INIT_ARGS"] == "--a --b"
    assert made["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "1"


@needs_triton
def test_a_worker_without_torch_loads_every_module(monkeypatch, tmp_path):
    """What stands in for torch from the first one on has no spec, which the search refuses."""
    from tilelang.aot import cuda_worker

    def search(name):
        return importlib.util.find_spec(name) if name in sys.modules else None

    monkeypatch.setattr(cuda_worker, "find_spec", search)
    monkeypatch.setitem(sys.modules, "torch", None)  # what is there comes back afterwards
    monkeypatch.delitem(sys.modules, "torch")
    for name in ("first", "second"):
        path = tmp_path / f"{name}.py"
        path.write_text("import torch\n\nKIND = torch.Tensor\n")
        assert cuda_worker._loaded(path).KIND is object
