"""vmapped(kernel, launch) -> Launch: what `torch.func.vmap` sees as one operation that it batches.

Under vmap an argument stands for a batch at some level.  torch asks the operation for its results
at one level after the other, innermost first; each answers with a call of the batched kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..errors import CallError
from ..ir import KernelIR
from . import bridge
from .dynamo import keep_out
from .launch import Launch, Values


@dataclass(frozen=True, eq=False)
class BatchedCall:
    """One call.

    values   the arguments by parameter; `tensors` are those of torch
    launch   runs the kernel for one element
    batched  names -> the kernel for a batch of these arguments
    chosen   options of the call
    """

    values: Mapping[str, Any]
    tensors: tuple[str, ...]
    launch: Launch
    batched: Callable[..., Callable[..., Any]]
    chosen: Mapping[str, Any]

    def given(self, tensors: Sequence[Any]) -> dict[str, Any]:
        """The arguments with these tensors."""
        return {**self.values, **dict(zip(self.tensors, tensors, strict=True))}


def vmapped(
    ir: KernelIR,
    names: Sequence[str],
    launch: Launch,
    batched: Callable[..., Callable[..., Any]],
    chosen: Mapping[str, Any],
) -> Launch:
    """The launch for torch tensors, which may be batched at the level that is under way."""
    torch = bridge.torch()
    tensor_class, level = torch.Tensor, torch._C._functorch.peek_interpreter_stack
    is_batched = torch._C._functorch.is_batchedtensor

    def call(values: Values) -> Any:
        if level() is None:  # no transformation is under way
            return launch(values)
        given = dict(zip(names, values, strict=True))
        tensors = {name: v for name, v in given.items() if isinstance(v, tensor_class)}
        if not any(is_batched(v) for v in tensors.values()):
            return launch(values)
        _refuse_stores(ir)
        made = BatchedCall(given, tuple(tensors), launch, batched, chosen)
        return _operation().apply(made, *tensors.values())

    keep_out(call)
    return call


def _refuse_stores(ir: KernelIR) -> None:
    stored = next((t.name for t in ir.tensors if t.mutated), None)
    if stored is not None:
        raise CallError(
            f"{ir.name} stores to {stored}, which torch.func.vmap does not batch",
            hint=f"store to a new output and return it, or call {ir.name}.batched({stored!r}, ...)",
        )


@cache
def _operation() -> Any:
    """The operation, a class of torch's: made when torch is there."""
    torch = bridge.torch()

    class Batched(torch.autograd.Function):
        @staticmethod
        def forward(call: BatchedCall, *tensors: Any) -> Any:
            return call.launch(tuple(call.given(tensors).values()))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, dims: tuple[int | None, ...], call: BatchedCall, *tensors: Any) -> Any:
            moved = [t if d is None else t.movedim(d, 0) for t, d in zip(tensors, dims[1:])]
            names = [n for n, d in zip(call.tensors, dims[1:], strict=True) if d is not None]
            results = call.batched(*names)(**call.given(moved), **call.chosen)
            shared = [t for t, d in zip(moved, dims[1:]) if d is None]
            return results, _map(lambda r: None if any(r is t for t in shared) else 0, results)

    return Batched


def _map(change: Callable[[Any], Any], results: Any) -> Any:
    """`change` of the result, or of each of several."""
    if isinstance(results, tuple | list):
        return type(results)(map(change, results))
    return change(results)
