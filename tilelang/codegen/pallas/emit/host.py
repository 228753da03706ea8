"""Host: the typed function that a caller sees: prepares arrays, launches, returns."""

from __future__ import annotations

from tilelang.codegen.pallas.plan.types import HostArray, Launch, Plan, Window
from tilelang.codegen.writer import Atom, Call, Group, Keyword, Node, statement
from tilelang.ir import Tensor

from . import ops, specs, worklist
from .expressions import Printer
from .names import Names
from .statements import Block


def results(plan: Plan) -> tuple[str, ...]:
    """Tensors that the host function returns: what the author returned, then mutated inputs."""
    mutated = tuple(t.name for t in plan.ir.tensors if t.mutated)
    return (*plan.ir.returns, *mutated)


def print_host(plan: Plan, names: list[Names]) -> list[str]:
    """The lines of the host function."""
    ir = plan.ir
    inputs = [t for t in ir.tensors if t.role == "input"]
    block = Block(4)
    params = ", ".join([*(f"{t.name}: jax.Array" for t in inputs), "*", "interpret: bool = False"])
    out = results(plan)
    kind = "jax.Array" if len(out) == 1 else f"tuple[{', '.join(['jax.Array'] * len(out))}]"
    kind = kind if out else "tuple[()]"
    head = f"def {ir.name}({params}) -> {kind}:"
    heads = [head]
    if len(head) > 100:
        each = [f"    {t.name}: jax.Array," for t in inputs]
        flag = "    interpret: bool = False,"
        heads = [f"def {ir.name}(", *each, "    *,", flag, f") -> {kind}:"]
    doc = ir.doc.strip().splitlines()[0] if ir.doc.strip() else ""
    if doc:
        block.raw(f'"""{doc}"""' if len(doc) <= 88 else f'"""{doc[:85]}..."""')
    for tensor in ir.tensors:
        if tensor.role == "view" and _root(plan, tensor).role == "input":
            _print_view(block, tensor)
    written: set[str] = set()
    for launch, own in zip(plan.launches, names, strict=True):
        _print_launch(plan, block, launch, own, written)
        for tensor in ir.tensors:
            root = _root(plan, tensor)
            if tensor.role == "view" and root.role == "output" and root.name in written:
                _print_view(block, tensor)
    _print_rest(plan, block, written, out)
    block.raw(f"return {', '.join(out)}" if out else "return ()")
    return [*heads, *block.lines]


def _root(plan: Plan, tensor: Tensor) -> Tensor:
    while tensor.view is not None:
        tensor = plan.ir.tensor(tensor.view.source)
    return tensor


def _print_view(block: Block, tensor: Tensor) -> None:
    assert tensor.view is not None
    source = Atom(tensor.view.source)
    if tensor.view.how == "reshape":
        block.put(tensor.name, Call("reshape", (ops.shape(tensor.view.arg),), of=source))
    else:
        block.put(tensor.name, Call("jnp.transpose", (source, ops.shape(tensor.view.arg))))


def _print_rest(plan: Plan, block: Block, written: set[str], out: tuple[str, ...]) -> None:
    """Outputs that no launch wrote, because nothing runs."""
    needed = {_root(plan, plan.ir.tensor(name)).name for name in out}
    for tensor in plan.ir.tensors:
        if tensor.role == "output" and tensor.name in needed and tensor.name not in written:
            block.put(tensor.name, _initial(tensor))
            for view in plan.ir.tensors:
                if view.role == "view" and _root(plan, view).name == tensor.name:
                    _print_view(block, view)


def _initial(tensor: Tensor) -> Node:
    fill = 0 if tensor.fill is None else tensor.fill
    return ops.full(tensor.shape, ops.number(fill, tensor.dtype), tensor.dtype, zero=fill == 0)


# ---------------------------------------------------------------- one launch


def _print_launch(
    plan: Plan, block: Block, launch: Launch, names: Names, written: set[str]
) -> None:
    arrays = [plan.array(w.array) for w in launch.windows]
    hosts = list(dict.fromkeys(a for a in arrays if _is_input(launch, a)))
    for host in hosts:
        root = _root(plan, plan.ir.tensor(host.source))
        if root.role == "output" and root.name not in written:  # nothing runs that would write it
            block.put(root.name, _initial(root))
            written.add(root.name)
        _print_array(block, host)
    for window in launch.inputs:
        if window.passed:
            _print_before(plan, block, window, written)
    passed = _print_padding(plan, block, launch)
    _print_call(plan, block, launch, names, passed)
    for window in launch.outputs:
        _print_result(plan, block, launch, window)
        written.add(plan.array(window.array).source)


def _is_input(launch: Launch, host: HostArray) -> bool:
    return any(w.array == host.name and not w.passed for w in launch.inputs)


def _print_array(block: Block, host: HostArray) -> None:
    if host.name == host.source:
        return
    if host.permute is not None:
        moved = Call("jnp.transpose", (Atom(host.source), ops.shape(host.permute)))
        block.put(host.name, moved)
        return
    if host.wide:
        block.put(host.name, ops.cast(Atom(host.source), host.dtype, len(host.shape)))
        return
    block.put(host.name, Call("reshape", (ops.shape(host.shape),), of=Atom(host.source)))


def _print_before(plan: Plan, block: Block, window: Window, written: set[str]) -> None:
    """What an output holds before the launch: an argument, an earlier result, or its fill."""
    host = plan.array(window.array)
    tensor = plan.ir.tensor(host.source)
    name = window.argument
    if tensor.mutated or tensor.name in written:
        source: Node = Atom(tensor.name)
        if host.permute is not None:
            source = Call("jnp.transpose", (source, ops.shape(host.permute)))
        elif host.shape != tensor.shape:
            source = Call("reshape", (ops.shape(host.shape),), of=source)
        block.put(name, source)
        return
    fill = 0 if tensor.fill is None else tensor.fill
    value = ops.number(fill, host.dtype)
    block.put(name, ops.full(host.shape, value, host.dtype, zero=fill == 0))


def _print_padding(plan: Plan, block: Block, launch: Launch) -> dict[str, str]:
    """The interpreter needs whole blocks; NaN makes sure that no padding is ever used.

    The compiler needs whole register tiles of short arrays.

    Returns what to pass for each array: with several launches, every one pads for itself.
    """
    lines = Block(block.indent + 4)
    alone = len(plan.launches) == 1
    passed: dict[str, str] = {}
    for array in dict.fromkeys(o.argument for o in specs.operands(launch)[0] if o.window is None):
        windows = [w for w in launch.inputs if w.argument == array]
        first, shape, full = windows[0], windows[0].shape, windows[0].whole
        if shape == full:
            continue
        name = array if alone else _free_name(plan, f"{array}_whole")
        if not alone:
            passed[array] = name
        longer = next((w.long for w in windows if w.short), shape)
        if longer != shape:
            block.put(name, _padded(array, first, shape, longer))
            array, shape = name, longer
        elif not alone:
            block.put(name, Atom(array))
        if shape != full:
            lines.put(name, _padded(array, first, shape, full))
    if lines.lines:
        block.raw("if interpret:  # whole blocks for the interpreter; what is added is never used")
        block.lines += lines.lines
    return passed


def _padded(array: str, window: Window, shape: tuple[int, ...], full: tuple[int, ...]) -> Node:
    widths = Group(tuple(Atom(f"(0, {b - a})") for a, b in zip(shape, full, strict=True)))
    value = Keyword("constant_values", ops.number(window.filler, window.dtype))
    return Call("jnp.pad", (Atom(array), widths, value))


def _free_name(plan: Plan, wish: str) -> str:
    taken = {t.name for t in plan.ir.tensors} | {a.name for a in plan.arrays}
    while wish in taken:
        wish += "_"
    return wish


def _print_call(
    plan: Plan, block: Block, launch: Launch, names: Names, passed: dict[str, str]
) -> None:
    pipeline = launch.form == "pipeline"
    printer = Printer(launch, names)
    prefetch = launch.prefetches
    listed = specs.prefetched_list(printer, launch)
    if listed:
        made = Call(worklist.list_name(launch), tuple(Atom(s) for s in launch.scalars))
        block.put(", ".join(listed), made)
    inputs, outputs = specs.operands(launch)
    smem, hbm = "pl.BlockSpec(memory_space=pltpu.SMEM)", "pl.BlockSpec(memory_space=pl.ANY)"
    shapes = [_out_shape(launch, w) for w in launch.outputs]
    ins, outs = (
        [
            Atom(hbm) if o.window is None else specs.block_spec(printer, launch, o.window, prefetch)
            for o in some
        ]
        for some in (inputs, outputs)
    )
    if not prefetch:
        ins = [Atom(smem)] * len(launch.scalars) + ins
    scratch = _scratch(launch)
    args: list[Node] = [Atom(launch.name), Keyword("out_shape", _one_or_list(shapes))]
    shared = [
        Keyword("in_specs", Group(tuple(ins), "[]")),
        Keyword("out_specs", _one_or_list(outs)),
    ]
    if scratch:
        shared.append(Keyword("scratch_shapes", Group(tuple(scratch), "[]")))
    count_of = f"{names.steps}_of[0]"
    unsure = launch.table is not None and not launch.table.sure
    grid = specs.grid(launch, f"jnp.maximum({count_of}, 1)" if unsure else count_of)
    if prefetch:
        count = Keyword("num_scalar_prefetch", Atom(str(len(launch.scalars) + len(listed))))
        grid = grid if launch.dims else Atom("(1,)")  # index maps that read memory need a grid
        spec = Call("pltpu.PrefetchScalarGridSpec", (count, Keyword("grid", grid), *shared))
        args.append(Keyword("grid_spec", spec))
    else:
        if not pipeline and launch.dims:
            args.append(Keyword("grid", grid))
        if pipeline and launch.cores > 1:
            args.append(Keyword("grid", Atom(f"({launch.cores},)")))
        args += shared
    aliases = _aliases(launch, len(launch.scalars) + len(listed), [o.argument for o in inputs])
    if aliases:
        args.append(Keyword("input_output_aliases", Atom(aliases)))
    params = _compiler_params(launch, pipeline)
    if params:
        args.append(Keyword("compiler_params", Call("pltpu.CompilerParams", tuple(params))))
    args.append(Keyword("interpret", Atom("interpret")))
    call = Call("pl.pallas_call", tuple(args))
    target = ", ".join(plan.array(w.array).name for w in launch.outputs)
    lines = statement(target, call, block.indent)
    arguments = [*launch.scalars, *listed, *(passed.get(o.argument, o.argument) for o in inputs)]
    lines[-1] += f"({', '.join(arguments)})"
    block.lines += lines


def passed_whole(launch: Launch, window: Window) -> bool:
    """Whether the kernel sees the whole array and cuts the blocks itself."""
    return launch.form == "pipeline" or window.stream is not None


def _out_shape(launch: Launch, window: Window) -> Node:
    return specs.shaped(window, passed_whole(launch, window))


def _one_or_list(items: list[Node]) -> Node:
    return items[0] if len(items) == 1 else Group(tuple(items), "[]")


def _scratch(launch: Launch) -> list[Node]:
    out: list[Node] = [
        Atom("pltpu.SemaphoreType.DMA")
        if s.dtype == "semaphore"
        else Call("pltpu.VMEM", (ops.shape(s.shape), ops.dtype(s.dtype)))
        for s in launch.scratch
    ]
    table = launch.table
    if table is not None and table.steps == "table" and not launch.worklist:
        column = Call("pltpu.SMEM", (ops.shape((table.rows,)), Atom("jnp.int32")))
        out += [column] * table.width
    return out


def _aliases(launch: Launch, scalars: int, inputs: list[str]) -> str:
    pairs = []
    for position, window in enumerate(launch.outputs):
        if window.existing is not None:
            source = scalars + inputs.index(launch.window(window.existing).argument)
            pairs.append(f"{source}: {position}")
    return "{" + ", ".join(pairs) + "}" if pairs else ""


def _compiler_params(launch: Launch, pipeline: bool) -> list[Node]:
    params: list[Node] = []
    if not pipeline and launch.dims:
        params.append(Keyword("dimension_semantics", specs.semantics(launch, pipeline=False)))
    if pipeline and launch.cores > 1:
        params.append(Keyword("dimension_semantics", Atom('("parallel",)')))
    if launch.memory.limit is not None:
        params.append(Keyword("vmem_limit_bytes", Atom(str(launch.memory.limit))))
    return params


def _print_result(plan: Plan, block: Block, launch: Launch, window: Window) -> None:
    """The kernel's array as the author's tensor: padding cut off, dimensions put back."""
    host = plan.array(window.array)
    tensor = plan.ir.tensor(host.source)
    name = host.name
    if passed_whole(launch, window) and window.whole != window.shape:
        pairs = zip(window.shape, window.whole, strict=True)
        cut = ", ".join(":" if size == padded else f":{size}" for size, padded in pairs)
        while cut.endswith(", :"):
            cut = cut.removesuffix(", :")
        block.raw("if interpret:")
        block.raw(f"    {name} = {name}[{cut}]")
    if host.permute is not None:
        back = tuple(host.permute.index(d) for d in range(len(host.permute)))
        block.put(tensor.name, Call("jnp.transpose", (Atom(name), ops.shape(back))))
    elif host.shape != tensor.shape:
        block.put(tensor.name, Call("reshape", (ops.shape(tensor.shape),), of=Atom(name)))
