"""from_njt(tensor) -> (values, offsets): torch's jagged tensors as kernels take them."""

from __future__ import annotations

from typing import Any

from ..errors import CallError


def from_njt(tensor: Any) -> tuple[Any, Any]:
    """The rows of a jagged torch tensor, one sequence after another, and where each begins.

    Gradients flow through the values.  `torch.nested.nested_tensor_from_jagged(values, offsets)`
    is the way back.
    """
    if not getattr(tensor, "is_nested", False) or str(tensor.layout) != "torch.jagged":
        raise CallError(
            f"from_njt takes a jagged torch tensor, and this is a {type(tensor).__name__}",
            hint="make one with torch.nested.nested_tensor(..., layout=torch.jagged)",
        )
    if tensor.lengths() is not None:
        raise CallError(
            "the jagged tensor has rows between its sequences, which offsets do not say",
            hint="pass from_njt(tensor.contiguous())",
        )
    if tensor._ragged_idx != 1:
        raise CallError(
            f"the jagged tensor is ragged along dimension {tensor._ragged_idx}",
            hint="transpose it, so that dimension 1 is the ragged one",
        )
    return tensor.values(), tensor.offsets()
