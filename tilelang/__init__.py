"""Loops over tiles in plain Python, compiled to readable Pallas for TPUs.

import tilelang as tile
import tilelang.language as hl

@tile.kernel
def double(x): ...
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from .errors import (
    CallError,
    CompileError,
    ParseError,
    PlanError,
    RaggedValueError,
    TileError,
    TypingError,
)
from .instead import OF_PACKAGE, absent

if TYPE_CHECKING:
    from .aot import Compiled
    from .api import Kernel, Stats, kernel
    from .autotune.lock import LockWarning, use
    from .autotune.trials import Tuned
    from .codegen.pallas.target import Target
    from .runtime.jagged import from_njt
    from .runtime.lowering import Lowered
    from .runtime.tensors import spec
    from .runtime.torch_tpu import tpu_op
    from .schedule.candidate import Candidate
    from .schedule.config import Config
    from .tuning import tune

__version__ = "0.1.0"

__all__ = [
    "CallError",
    "Candidate",
    "CompileError",
    "Compiled",
    "Config",
    "Kernel",
    "LockWarning",
    "Lowered",
    "ParseError",
    "PlanError",
    "RaggedValueError",
    "Stats",
    "Target",
    "TileError",
    "Tuned",
    "TypingError",
    "from_njt",
    "kernel",
    "spec",
    "tpu_op",
    "tune",
    "use",
]

# Loaded when first used: importing tilelang imports neither jax, torch, triton nor sympy.
_LAZY = {
    "Candidate": ".schedule.candidate",
    "Compiled": ".aot",
    "Config": ".schedule.config",
    "Kernel": ".api",
    "LockWarning": ".autotune.lock",
    "Lowered": ".runtime.lowering",
    "Stats": ".api",
    "Target": ".codegen.pallas.target",
    "Tuned": ".autotune.trials",
    "from_njt": ".runtime.jagged",
    "kernel": ".api",
    "spec": ".runtime.tensors",
    "tpu_op": ".runtime.torch_tpu",
    "tune": ".tuning",
    "use": ".autotune.lock",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(absent(f"module {__name__!r}", name, OF_PACKAGE, __all__))
    value = getattr(import_module(_LAZY[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _refuse_other_distribution() -> None:
    """Two distributions own the directory `tilelang`; installed together, each breaks the other."""
    try:
        other = metadata.distribution("tilelang")
    except metadata.PackageNotFoundError:
        return
    raise ImportError(
        f"the distribution tilelang {other.version} is another project that installs into the same "
        "directory as raggedtile; to use this one run\n"
        "    pip uninstall -y tilelang\n"
        "    pip install --force-reinstall raggedtile"
    )


_refuse_other_distribution()
