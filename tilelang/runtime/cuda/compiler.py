"""compiled(function, ...): one @triton.jit function through Triton, for calls and for reports.

What `Kernel.compile` reports is what a call launches, because both come here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any


def compiled(
    function: Any,
    signature: Sequence[str],
    aligned: Iterable[int],
    target: Any,
    *,
    warps: int,
    stages: int,
    max_registers: int | None,
) -> Any:
    """Triton's CompiledKernel; `aligned` are the arguments whose pointers are multiples of 16."""
    triton, compiler = map(importlib.import_module, ("triton", "triton.compiler"))
    options = {} if max_registers is None else {"maxnreg": max_registers}
    source = compiler.ASTSource(
        fn=function,
        signature=dict(zip(function.arg_names, signature, strict=True)),
        constexprs={},
        attrs={(number,): [["tt.divisibility", 16]] for number in aligned},
    )
    # a product and a sum may be one instruction: Triton's default changes with 3.10
    options |= {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}
    return triton.compile(source, target=target, options=options)
