"""The tests' options for XLA are in effect, and nobody else sees them."""

from __future__ import annotations

import os

import jax
import pytest

from tests import xla

LEVEL = "xla_backend_optimization_level"


def _levels() -> list[int]:
    """The level that programs of this process are compiled at, as JAX hands it to XLA."""
    client = pytest.importorskip("jaxlib._jax", reason="this JAX keeps its options elsewhere")
    options = client.CompileOptions().executable_build_options.debug_options
    return [options.xla_backend_optimization_level]


@pytest.mark.skipif(LEVEL in os.environ.get("XLA_FLAGS", ""), reason="flags that are set win")
def test_programs_of_tests_are_cheap():
    assert _levels() == [xla.CHEAP[LEVEL]] == [0]


def test_one_program_can_be_compiled_as_usual():
    """An option that XLA does not know is refused."""
    full = jax.jit(lambda x: x + 1, compiler_options=dict(xla.FULL))
    assert full(1) == 2
    with pytest.raises(Exception, match="No such compile option"):
        jax.jit(lambda x: x + 1, compiler_options={"xla_backend_optimisation_level": 3})(1)


@pytest.mark.parametrize("given", [None, "--xla_dump_to=/dev/null"])
def test_other_processes_see_what_was_there(given, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if given is not None:
        monkeypatch.setenv("XLA_FLAGS", given)
    xla.compile_cheaply()
    assert os.environ.get("XLA_FLAGS") == given


def test_the_pinned_version_gets_every_option():
    assert set(xla.FULL) == set(xla.CHEAP)
    assert len(xla.CHEAP) == (4 if xla.pinned() else 2)
    assert all(xla.FULL[name] != value for name, value in xla.CHEAP.items())
