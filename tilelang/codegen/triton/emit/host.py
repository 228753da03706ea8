"""Host: the function that makes the outputs with torch, launches, and returns."""

from __future__ import annotations

from typing import assert_never

from tilelang.codegen.triton.plan.types import Buffer, Launch, Plan, Result
from tilelang.codegen.writer import Atom, Call, Group, Keyword, Node, signature, statement

from . import ops

# What a host function calls for descriptors: device memory at every launch, aligned arrays.
FOR_DESCRIPTORS = '''

def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()
'''


def described(plan: Plan) -> tuple[str, ...]:
    """The arguments that descriptors tell of, in their order."""
    used = {one.tensor for launch in plan.launches for one in launch.descriptors}
    return tuple(t.name for t in plan.ir.tensors if t.name in used and t.role == "input")


def host_functions(plan: Plan) -> list[str]:
    """The functions that the host function calls."""
    return [*FOR_DESCRIPTORS.rstrip().splitlines()] if any(map(_told, plan.launches)) else []


def _told(launch: Launch) -> bool:
    return bool(launch.descriptors)


def print_host(plan: Plan) -> list[str]:
    """The lines of the host function."""
    ir = plan.ir
    inputs = [t.name for t in ir.tensors if t.role == "input"]
    device = f"{inputs[0]}.device" if inputs else '"cuda"'
    params = [f"{name}: torch.Tensor" for name in inputs]
    lines = signature(ir.name, params, _kind(plan), ir.doc)
    boxed = described(plan)
    lines += [f"    {name} = _aligned({name})" for name in boxed]
    lines += ["    triton.set_allocator(_scratch)"] if any(map(_told, plan.launches)) else []
    for buffer in plan.buffers:
        lines += statement(buffer.name, _made(buffer, device), 4)
    for launch in plan.launches:
        lines += _launched(launch)
    return [*lines, *_returned(plan)]


def _kind(plan: Plan) -> str:
    many = ", ".join(["torch.Tensor"] * len(plan.results))
    match plan.ir.structure:
        case "none":
            return "None"
        case "single":
            return "torch.Tensor"
        case "tuple":
            return f"tuple[{many}]"
        case "list":
            return "list[torch.Tensor]"
        case never:
            assert_never(never)


def _made(buffer: Buffer, device: str) -> Node:
    size = Group(tuple(Atom(str(n)) for n in buffer.shape))
    last = (Keyword("dtype", Atom(f"torch.{buffer.dtype}")), Keyword("device", Atom(device)))
    if buffer.fill is None:
        return Call("torch.empty", (size, *last))
    if buffer.fill == 0:
        return Call("torch.zeros", (size, *last))
    return Call("torch.full", (size, ops.number(buffer.fill, buffer.dtype), *last))


def _launched(launch: Launch) -> list[str]:
    args: list[Node] = [Atom(name) for name in launch.arguments]
    args += [
        Keyword("num_warps", Atom(str(launch.warps))),
        Keyword("num_stages", Atom(str(launch.stages))),
    ]
    if launch.max_registers is not None:
        args.append(Keyword("maxnreg", Atom(str(launch.max_registers))))
    return statement("", Call(f"{launch.name}[({launch.programs},)]", tuple(args)), 4)


def _returned(plan: Plan) -> list[str]:
    nodes = tuple(_viewed(r) for r in plan.results)
    match plan.ir.structure:
        case "none":
            return [] if plan.launches or plan.buffers else ["    return None"]
        case "single":
            value: Node = nodes[0]
        case "tuple":
            value = Group(nodes)
        case "list":
            value = Group(nodes, "[]")
        case never:
            assert_never(never)
    first, *rest = statement("", value, 4)
    return [f"    return {first.strip()}", *rest]


def _viewed(result: Result) -> Node:
    """torch takes lengths one by one; where there are none, it must be told so."""
    node: Node = Atom(result.name)
    for how, arg in result.views:
        node = Call(how, tuple(Atom(str(a)) for a in arg) or (Atom("()"),), of=node)
    return node
