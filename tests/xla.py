"""How tests compile for the CPU: cheaply, except for one tier that compiles as a user's call does.

Nearly all the time of the tests goes into compiling programs that then run for milliseconds.  What
they ask is what a program computes, not how fast: `compile_cheaply` tells XLA to spend a quarter of
its usual time.  `FULL` are options of `jax.jit` that undo this for one program:
tests/examples/test_full_optimisation.py compiles every example so, and `tests.fuzz`, a process of
its own, never comes here.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

Flags = Mapping[str, bool | int]

# What every XLA knows.  Options that only one version is sure to know are given to that one:
# an unknown one in XLA_FLAGS ends the process.
_EVERYWHERE: Flags = MappingProxyType(
    {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
)
_PINNED: Flags = MappingProxyType(
    {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
)
_DEFAULTS: Flags = MappingProxyType(
    {
        "xla_backend_optimization_level": 3,
        "xla_llvm_disable_expensive_passes": False,
        "xla_cpu_use_fusion_emitters": True,
        "xla_cpu_parallel_codegen_split_count": 32,
    }
)
_CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints" / "dev.txt"


def pinned() -> bool:
    """Whether this is the jaxlib that the constraints name."""
    return f"jaxlib=={version('jaxlib')}" in _CONSTRAINTS.read_text(encoding="utf-8").splitlines()


CHEAP: Flags = {**_EVERYWHERE, **(_PINNED if pinned() else {})}
FULL: Flags = {name: _DEFAULTS[name] for name in CHEAP}


def assert_same(found: ArrayLike, wanted: ArrayLike) -> None:
    """Two programs give the same numbers: in which order XLA sums goes by the shapes of a program,
    and by the CPU."""
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def compile_cheaply() -> None:
    """For this process, before it uses JAX; flags that are set already win.

    XLA reads the flags once.  They are taken away again, because other processes that tests start
    shall not see them: a TPU's compiler would obey them too.
    """
    given = os.environ.get("XLA_FLAGS")
    ours = " ".join(f"--{name}={str(value).lower()}" for name, value in CHEAP.items())
    os.environ["XLA_FLAGS"] = f"{ours} {given or ''}".strip()
    importlib.import_module("jax").local_devices()
    if given is None:
        del os.environ["XLA_FLAGS"]
    else:
        os.environ["XLA_FLAGS"] = given
