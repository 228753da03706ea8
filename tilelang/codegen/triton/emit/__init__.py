"""emit(plan) -> Source: readable Triton, the same text for the GPU and for the interpreter.

What a launcher needs besides the text (names of kernels, the order of their arguments, grids, what
to allocate and to return) is in the plan: `codegen.triton.plan.types` says how.
"""

from __future__ import annotations

from tilelang.codegen.source import Source
from tilelang.codegen.triton.plan.types import Plan

from .functions import function_lines
from .host import host_functions, print_host
from .kernel import print_kernel

__all__ = ["emit"]


def emit(plan: Plan) -> Source:
    """Prints the plan as a Python module with one kernel per launch and a host function for torch.

    The text is deterministic: the same plan gives the same bytes in every process.
    """
    functions: set[str] = set()
    kernels = [print_kernel(launch, functions) for launch in plan.launches]
    lines = [*_head(plan), *_imports(plan), *function_lines(functions)]
    for kernel in kernels:
        lines += ["", "", *kernel]
    lines += [*host_functions(plan), "", "", *print_host(plan)]
    return Source("\n".join(lines) + "\n", plan.ir.name)


def _head(plan: Plan) -> list[str]:
    open_ones = {axis.name for axis in plan.ir.axes if axis.fixed is None}
    blocks = ", ".join(f"{name}={size}" for name, size in plan.blocks if name in open_ones)
    text = f'"""{plan.ir.name} for {plan.target.name}'
    return [f'{text}, blocks {blocks}."""' if blocks else f'{text}."""', ""]


def _imports(plan: Plan) -> list[str]:
    if not plan.launches:
        return ["import torch"]
    return ["import torch", "import triton", "import triton.language as tl"]
