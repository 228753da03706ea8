"""Memory of a launch: of its largest loop, or of a result on its way to memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilelang.analysis.facts import Facts
from tilelang.ir import Body, Expr, KernelIR, Load, Loop, every_loop, every_store
from tilelang.ir.traversal import definitions

from .alignment import row_alignment
from .carried_sums import carried_bytes
from .descriptors import Boxes, box_of, operands
from .loop_products import LoopProducts
from .loops import copies_ahead, own_dots, without
from .memory import LoopMemory
from .pipe import Pipe
from .placement import place
from .problem import Prepared
from .reductions import reduction_bytes
from .roles import products


def shared_bytes(ir: KernelIR, facts: Facts, blocks: Mapping[str, int], pipe: Pipe) -> int:
    """Bytes of shared memory that the largest launch needs."""
    return max((launch_bytes(ir, facts, loop, blocks, pipe) for loop in ir.body), default=0)


def launch_bytes(
    ir: KernelIR, facts: Facts, loop: Loop, blocks: Mapping[str, int], pipe: Pipe
) -> int:
    """Bytes of one launch: of its largest loop, or of a result on its way to memory."""
    kernel = Prepared(ir, facts, blocks, {})
    placed = place(kernel, loop, None).programs
    once = {s.axis for s in every_loop((loop,)) if _is_once(ir, s.axis, blocks)}
    blocks = {axis: kernel.lanes(axis) for axis in blocks}  # products sum over no less than 16
    multiplied = bool(products(ir))
    loop = without(loop, once) if multiplied else loop
    loops, made = list(every_loop((loop,))), _made(ir.body) | _made((loop,))
    rows = {t.name: row_alignment(ir, t.name) for t in ir.tensors}
    cut = frozenset(a.name for a in ir.axes if a.static is None)
    # products of float32 are three of them
    chained = any(sum(map(pipe.parts, own_dots(s))) > 1 for s in loops)
    # the loop over a program's results, where it has several
    last = [s.axis for s in loops if s.axis in placed][-1:] if multiplied and pipe.repeats else []
    bounds = {a: (ir.axis(a).begin, ir.axis(a).end) for a in placed}

    boxed = _boxed(kernel, loop) if pipe.boxes else frozenset[Load]()

    def one(stmt: Loop) -> LoopMemory:
        repeated = stmt.axis in last
        runs = repeated or stmt.axis not in {*placed, *once}
        inside = bounds if repeated else {}
        products = LoopProducts(stmt, blocks, pipe, made, runs, rows)
        return LoopMemory(products, cut, boxed, chained, inside)

    found = {s.axis: one(s) for s in loops}

    def alone(one: LoopMemory) -> int:
        return reduction_bytes(ir, one.of.loop, blocks, pipe.warps, made)

    if not multiplied:
        stored = ir.stored((loop,))
        ahead = {s.of.loop.axis for s in found.values() if copies_ahead(ir, s.of.loop, stored)}

        def copying(one: LoopMemory) -> int:
            # what is not copied lies as memory has it
            whole = one.ahead and all(map(one.is_copied, one.of.loads()))
            passing = carried_bytes(ir, one.of.loop, blocks, pipe, made) if whole else 0
            return max(alone(one), passing) + one.copied()

        each = found.items()
        return max(copying(one) if axis in ahead else alone(one) for axis, one in each)

    def needed(one: Loop) -> int:
        return found[one.axis].bytes(needed)

    most = needed(loop)
    if not most:
        return max(map(alone, found.values()))
    return max(most, found[loop.axis].leaving(every_store((loop,))))


def _boxed(kernel: Prepared, loop: Loop) -> frozenset[Load]:
    """What descriptors copy, where the config leaves it to them."""
    stored = frozenset(kernel.ir.stored((loop,)))
    return frozenset(e for e in operands(kernel) if isinstance(box_of(kernel, e, stored), Boxes))


def _is_once(ir: KernelIR, axis: str, blocks: Mapping[str, int]) -> bool:
    """Whether a loop has one step, which the compiler knows: it is none, then."""
    known = ir.axis(axis).static
    return known is not None and known[1] - known[0] <= blocks.get(axis, 1)


def _made(body: Body) -> dict[str, Expr]:
    """What names stand for, those of what loops carry out too."""
    carries = (c for loop in every_loop(body) for c in loop.carries)
    return definitions(body) | {c.out: c.next for c in carries}


def launch_columns(ir: KernelIR, loop: Loop, blocks: Mapping[str, int], pipe: Pipe) -> int:
    """Columns of tensor memory that one launch needs at least: those of its largest loop."""
    made = _made(ir.body)

    def needed(one: Loop, inner: int) -> int:
        return LoopMemory(LoopProducts(one, blocks, pipe, made, True)).columns(inner)

    return _most(loop, needed)


def _most(loop: Loop, needed: Callable[[Loop, int], int]) -> int:
    """What a loop needs, given what the loop inside of it that needs most does."""
    inner = (_most(s, needed) for s in loop.body if isinstance(s, Loop))
    return needed(loop, max(inner, default=0))
