"""signature_of(plan, launch): Triton's types of a launch's arguments, which all are pointers."""

from __future__ import annotations

from types import MappingProxyType

from ...codegen.triton.plan.types import Launch, Plan

# Element type -> what Triton calls it in a signature.
POINTEES = MappingProxyType(
    {
        "float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "fp8e4nv",
        "float8_e5m2": "fp8e5", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
        "uint8": "u8", "uint32": "u32", "bool": "i1",
    }
)  # fmt: skip


def signature_of(plan: Plan, launch: Launch) -> list[str]:
    """Triton's type of each argument of a launch; int64 arrives narrowed, as on every device."""
    dtypes = {t.name: t.dtype for t in plan.ir.tensors} | {b.name: b.dtype for b in plan.buffers}
    dtypes = {name: "int32" if dtype == "int64" else dtype for name, dtype in dtypes.items()}
    return [f"*{POINTEES[dtypes[name]]}" for name in launch.arguments]
