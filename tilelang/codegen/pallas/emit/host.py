"""Host: the typed function that a caller sees: prepares arrays, launches, returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import assert_never

from tilelang.codegen.pallas.plan.steps.names import COUNT
from tilelang.codegen.pallas.plan.types import Launch, Plan, Window
from tilelang.codegen.writer import Atom, Call, Group, Keyword, Node, flat, signature, statement
from tilelang.ir import Tensor, View
from tilelang.ir.names import first_free

from . import flows, ops, specs, worklist
from .block import Block
from .expressions import Printer
from .names import Names

SMEM, ANY = Atom("pl.BlockSpec(memory_space=pltpu.SMEM)"), Atom("pl.BlockSpec(memory_space=pl.ANY)")


CLIP = Keyword("mode", Atom('"clip"'))


def print_host(plan: Plan, names: list[Names]) -> list[str]:
    """The lines of the host function; it returns what the author did, then mutated inputs."""
    ir, block = plan.ir, Block(4)
    changed = [t for t in ir.tensors if t.mutated]
    for tensor in ir.tensors:
        if tensor.given is not None:
            block.put(tensor.name, _reshaped(tensor.name, tensor.shape, None))
    given = _given(plan)
    _print_views(plan, block, given, given, _read_behind(plan, -1))
    written: set[str] = set()
    for number, (launch, own) in enumerate(zip(plan.launches, names, strict=True)):
        _print_launch(plan, block, launch, own, written)
        own, made = {plan.array(w.array).source for w in launch.outputs}, given | written
        _print_views(plan, block, {t for t in own if ir.tensor(t).role == "output"}, made)
        _print_views(plan, block, own & {t.name for t in changed}, made, _read_behind(plan, number))
    needed = {ir.root(name) for name in ir.returns} - written
    for tensor in ir.tensors:  # that no launch wrote, because nothing runs
        if tensor.role == "output" and tensor.name in needed:
            _print_unwritten(plan, block, tensor, written)
    out = (*ir.returns, *(flat(_given_back(t)) for t in changed))
    block.raw(f"return {', '.join(out)}" if out else "return ()")
    return [*_head(plan, len(out)), *block.lines]


def _given(plan: Plan) -> set[str]:
    return {t.name for t in plan.ir.tensors if t.role == "input"}


def _given_back(tensor: Tensor) -> Node:
    given = tensor.given
    return Atom(tensor.name) if given is None else _reshaped(tensor.name, given, None)


def _read_behind(plan: Plan, number: int) -> set[str]:
    """Arrays that are read behind a launch: by others, as results, and those that views are of."""
    found = {plan.array(w.array).source for e in plan.launches[number + 1 :] for w in e.inputs}
    found.update(*(e.scalars for e in plan.launches[number + 1 :]), plan.ir.returns)
    for tensor in reversed(plan.ir.tensors):
        if tensor.view is not None and tensor.name in found:
            found |= {tensor.view.source, tensor.view.index}
    return found


def _head(plan: Plan, results: int) -> list[str]:
    each = [f"{t.name}: jax.Array" for t in plan.ir.tensors if t.role == "input"]
    kind = f"tuple[{', '.join(['jax.Array'] * results) or '()'}]" if results != 1 else "jax.Array"
    params = [*each, "*", "interpret: bool = False"]
    return signature(plan.ir.name, params, kind, plan.ir.doc)


def _print_views(
    plan: Plan, block: Block, roots: set[str], made: set[str], needed: set[str] | None = None
) -> None:
    """Views of arrays, the author's and those that passes made, or those that are needed.

    Rows that an index array picks are there as soon as both are `made`.
    """
    for tensor in plan.ir.tensors:
        if tensor.view is None or (needed is not None and tensor.name not in needed):
            continue
        arrays = _arrays(plan, tensor.name)
        if arrays & roots and arrays <= made:
            block.put(tensor.name, _viewed(plan, tensor, tensor.view))


def _arrays(plan: Plan, name: str) -> set[str]:
    """The array that a tensor is, or those that it is a view of."""
    view = plan.ir.tensor(name).view
    if view is None:
        return {name}
    return _arrays(plan, view.source) | (_arrays(plan, view.index) if view.index else set())


def _viewed(plan: Plan, tensor: Tensor, view: View) -> Node:
    match view.how:
        case "reshape":
            return _reshaped(view.source, view.arg, None)
        case "permute":
            return _reshaped(view.source, (), view.arg)
        case "take":
            order, index = view.arg[1:], Atom(view.index)
            picks = index if order == tuple(range(len(order))) else _reshaped(view.index, (), order)
            where = Keyword("axis", Atom(str(view.arg[0])))
            return Call("jnp.take", (Atom(view.source), picks, where, CLIP))
        case "slice":
            return Atom(f"{view.source}[{view.arg[0]}:{view.arg[1]}]")
        case "cast":
            return Atom(f"{view.source}.astype({ops.dtype(tensor.dtype).text})")
        case "spans":
            return Call("spans_of", (Atom(view.source), Atom(str(view.arg[0]))))
        case "ends":
            return _with_ends(plan.ir.tensor(view.source), tensor.shape, *view.arg)
        case _:
            assert_never(view.how)


def _with_ends(source: Tensor, shape: tuple[int, ...], dim: int, back: int, side: int) -> Node:
    """An array whose ends along a dimension go on, turned round if `back`."""
    turned = ", ".join([*[":"] * dim, "::-1"])
    name = Atom(f"{source.name}[{turned}]" if back else source.name)
    behind = shape[dim] - source.shape[dim] - side
    widths = ((side, behind) if d == dim else (0, 0) for d in range(len(shape)))
    each = Group(tuple(Atom(str(width)) for width in widths))
    return Call("jnp.pad", (name, each, Keyword("mode", Atom('"edge"'))))


def _reshaped(source: str, shape: tuple[int, ...], permute: tuple[int, ...] | None) -> Node:
    """An array with its dimensions in another order, or in another shape."""
    if permute is not None:
        return Call("jnp.transpose", (Atom(source), ops.shape(permute)))
    return Call("reshape", (ops.shape(shape),), of=Atom(source))


def _initial(tensor: Tensor, shape: tuple[int, ...], dtype: str) -> Node:
    fill = 0 if tensor.fill is None else tensor.fill
    return ops.full(shape, ops.number(fill, dtype), dtype, zero=fill == 0)


# ---------------------------------------------------------------- one launch


def _print_launch(
    plan: Plan, block: Block, launch: Launch, names: Names, written: set[str]
) -> None:
    hosts = dict.fromkeys(plan.array(w.array) for w in launch.inputs if not w.passed)
    for name in dict.fromkeys(_read(plan, launch.scalars, (host.source for host in hosts))):
        root = plan.ir.tensor(name)
        if root.role == "output" and name not in written:  # nothing runs that would write it
            _print_unwritten(plan, block, root, written)
    for host in hosts:
        if host.wide:
            block.put(host.name, ops.cast(Atom(host.source), host.dtype, len(host.shape)))
        elif host.name != host.source:
            block.put(host.name, _reshaped(host.source, host.shape, host.permute))
    for window in launch.inputs:
        if window.passed:
            block.put(window.argument, _before(plan, window, written))
    _print_call(plan, block, launch, names, _print_padding(plan, block, launch))
    for window in launch.outputs:
        _print_result(plan, block, launch, window)
        written.add(plan.array(window.array).source)


def _print_unwritten(plan: Plan, block: Block, output: Tensor, written: set[str]) -> None:
    """An output as it is made, and its views; it counts as written from then on."""
    block.put(output.name, _initial(output, output.shape, output.dtype))
    written.add(output.name)
    _print_views(plan, block, {output.name}, _given(plan) | written)


def _read(plan: Plan, *tensors: Iterable[str]) -> Iterator[str]:
    """The arrays that tensors are, or are views of, and those that pick their rows."""
    for name in chain(*tensors):
        yield from sorted(_arrays(plan, name))


def _before(plan: Plan, window: Window, written: set[str]) -> Node:
    """What an output holds before the launch: an argument, an earlier result, or its fill."""
    host = plan.array(window.array)
    tensor = plan.ir.tensor(host.source)
    if not tensor.mutated and tensor.name not in written:
        return _initial(tensor, host.shape, host.dtype)
    if host.permute is None and host.shape == tensor.shape:
        return Atom(tensor.name)
    return _reshaped(tensor.name, host.shape, host.permute)


def _print_padding(plan: Plan, block: Block, launch: Launch) -> dict[str, str]:
    """The interpreter needs whole blocks; NaN makes sure that no padding is ever used.

    The compiler needs whole register tiles of short arrays.

    Returns what to pass for each array: with several launches, every one pads for itself.
    """
    lines = Block(block.indent + 4)
    alone = len(plan.launches) == 1
    taken = {t.name for t in plan.ir.tensors} | {a.name for a in plan.arrays}
    passed: dict[str, str] = {}
    for array in dict.fromkeys(o.argument for o in specs.operands(launch)[0] if o.window is None):
        windows = [w for w in launch.inputs if w.argument == array]
        first, shape, full = windows[0], windows[0].shape, windows[0].whole
        if shape == full:
            continue
        name = array
        if not alone:
            name = passed[array] = first_free(f"{array}_whole", taken.__contains__)
        longer = next((w.long for w in windows if w.long != shape), shape)
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


def _print_call(
    plan: Plan, block: Block, launch: Launch, names: Names, passed: dict[str, str]
) -> None:
    printer = Printer(launch, names)
    listed = specs.prefetched_list(printer)
    if listed:
        made = Call(worklist.list_name(launch), tuple(Atom(s) for s in launch.scalars))
        block.put(", ".join(listed), made)
    inputs, outputs = specs.operands(launch)
    shapes = [specs.shaped(w, specs.passed_whole(launch, w)) for w in launch.outputs]
    ins, outs = (
        [ANY if o.window is None else specs.block_spec(printer, o.window) for o in some]
        for some in (inputs, outputs)
    )
    if not launch.prefetches:
        ins = [SMEM] * len(launch.scalars) + ins
    shared = [
        Keyword("in_specs", Group(tuple(ins), "[]")),
        Keyword("out_specs", _one_or_list(outs)),
    ]
    scratch = _scratch(launch)
    if scratch:
        shared.append(Keyword("scratch_shapes", Group(tuple(scratch), "[]")))
    leading = [*launch.scalars, *listed]
    args: list[Node] = [
        Atom(launch.name),
        Keyword("out_shape", _one_or_list(shapes)),
        *_gridded(launch, names, shared, len(leading)),
    ]
    aliases = _aliases(launch, len(leading), [o.argument for o in inputs])
    if aliases:
        args.append(Keyword("input_output_aliases", Atom(aliases)))
    params = _compiler_params(launch)
    if params:
        args.append(Keyword("compiler_params", Call("pltpu.CompilerParams", tuple(params))))
    args.append(Keyword("interpret", Atom("interpret")))
    target = ", ".join(plan.array(w.array).name for w in launch.outputs)
    lines = statement(target, Call("pl.pallas_call", tuple(args)), block.indent)
    arguments = [*leading, *(passed.get(o.argument, o.argument) for o in inputs)]
    lines[-1] += f"({', '.join(arguments)})"
    block.lines += lines


def _gridded(launch: Launch, names: Names, shared: list[Keyword], leading: int) -> list[Keyword]:
    """The grid and what it cuts; a spec of its own where scalars are there before."""
    printer, table = Printer(launch, names, {COUNT.name: f"{names.steps}_of[0]"}), launch.table
    length = table.length if table is not None else None
    grid = specs.grid(launch, "" if length is None else printer.text(length))
    if launch.prefetches:
        grid = grid if launch.dims else Atom("(1,)")  # index maps that read memory need a grid
        first = Keyword("num_scalar_prefetch", Atom(str(leading)))
        spec = Call("pltpu.PrefetchScalarGridSpec", (first, Keyword("grid", grid), *shared))
        return [Keyword("grid_spec", spec)]
    if launch.form == "pipeline":
        cores = [Keyword("grid", Atom(f"({launch.cores},)"))] if launch.cores > 1 else []
        return [*cores, *shared]
    one = Atom("(1,)") if launch.only_step else None
    grid = grid if launch.dims else one
    return shared if grid is None else [Keyword("grid", grid), *shared]


def _one_or_list(items: list[Node]) -> Node:
    return items[0] if len(items) == 1 else Group(tuple(items), "[]")


def _scratch(launch: Launch) -> list[Node]:
    out: list[Node] = [
        Atom("pltpu.SemaphoreType.DMA")
        if s.dtype == "semaphore"
        else Call("pltpu.VMEM", (ops.shape(s.shape), ops.dtype(s.dtype)))
        for s in launch.scratch
    ]
    out += flows.scratch(launch)
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


def _compiler_params(launch: Launch) -> list[Node]:
    params: list[Node] = []
    if launch.form != "pipeline" and launch.dims:
        params.append(Keyword("dimension_semantics", specs.semantics(launch, pipeline=False)))
    elif launch.cores > 1:
        params.append(Keyword("dimension_semantics", Atom('("parallel",)')))
    if launch.memory.limit is not None:
        params.append(Keyword("vmem_limit_bytes", Atom(str(launch.memory.limit))))
    return params


def _print_result(plan: Plan, block: Block, launch: Launch, window: Window) -> None:
    """The kernel's array as the author's tensor: padding cut off, dimensions put back."""
    host = plan.array(window.array)
    tensor = plan.ir.tensor(host.source)
    if specs.passed_whole(launch, window) and window.whole != window.shape:
        pairs = zip(window.shape, window.whole, strict=True)
        cut = [":" if size == padded else f":{size}" for size, padded in pairs]
        while cut[-1] == ":" and len(cut) > 1:
            cut.pop()
        if window.long == window.shape:
            block.raw("if interpret:")
        indent = "    " * (window.long == window.shape)
        block.raw(f"{indent}{host.name} = {host.name}[{', '.join(cut)}]")
    if host.permute is not None:
        back = tuple(host.permute.index(d) for d in range(len(host.permute)))
        block.put(tensor.name, _reshaped(host.name, tensor.shape, back))
    elif host.shape != tensor.shape:
        block.put(tensor.name, _reshaped(host.name, tensor.shape, None))
