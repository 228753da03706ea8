"""Legality: what a kernel and a config may ask of a GPU, and what is not there yet."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NoReturn

from tilelang.codegen.triton.target import WARP, Target
from tilelang.errors import Loc
from tilelang.ir import Apply, KernelIR, statement_exprs, statements, walk
from tilelang.language.op import OPS
from tilelang.schedule import legal
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

from .pipe import Pipe
from .reductions import lanes_of
from .roles import products
from .specialized import WARPS
from .steps import every_step, exprs
from .types import Launch
from .whole import widest_whole

MOST = 1 << 20  # elements of a value
MODULE_NAMES = frozenset({"tl", "triton", "torch"})


def check_kernel(ir: KernelIR, target: Target) -> None:
    """Refused for what no config could run on the target."""
    legal.check_kernel(ir, target, MODULE_NAMES)
    for stmt in statements(ir.body):
        for expr in statement_exprs(stmt):
            for part in walk(expr):
                if isinstance(part, Apply):
                    _check_op(part, target, part.loc or stmt.loc)


def _check_op(expr: Apply, target: Target, loc: Loc | None) -> None:
    if expr.op not in OPS:
        what = f"{expr.op} has no meaning on {target} yet"
        raise Refused(Rule.KERNEL, what, loc, "write it another way")


def check_config(problem: Problem, config: Config, target: Target) -> None:
    """Refused for a field of the config that this kernel or target has no place for."""
    if config.indexing == "descriptor" and not target.boxes:
        raise Refused(
            Rule.CONFIG,
            f"indexing={config.indexing!r}, but {target} copies no boxes",
            problem.ir.loc,
            "leave indexing out; cuda:sm90 and cuda:sm100 have descriptors",
        )
    if config.warp_specialize:
        _check_specialized(problem, config, target)
    if config.worklist is not None and not any(a.ragged for a in problem.facts.axes):
        raise Refused(
            Rule.CONFIG,
            f"worklist={config.worklist!r}, but no loop of {problem.ir.name} is ragged",
            problem.ir.loc,
            "leave worklist out",
        )


def _check_specialized(problem: Problem, config: Config, target: Target) -> None:
    """Refused for what Triton leaves out in silence, or does not compile."""
    if not target.specializes:
        wrong = target.boxes  # it would compile
        what = f"{target} gives wrong results with it" if wrong else f"{target} copies no boxes"
        hint = "leave warp_specialize out; cuda:sm100 has it"
    elif not target.scratch:
        what = "the launcher gives no memory for descriptors"
        hint = "leave warp_specialize out; calls with torch tensors have it"
    elif config.warps not in (None, WARPS):
        what, hint = f"warps={config.warps}", f"give warps={WARPS}, or leave it out"
    elif config.indexing == "pointer":
        what, hint = "indexing='pointer'", "leave indexing out"
    elif config.worklist == "search":
        what, hint = "worklist='search'", "leave worklist out: a table of the tiles is written"
    else:
        return
    raise Refused(Rule.CONFIG, f"warp_specialize=True, but {what}", problem.ir.loc, hint)


def check_registers(ir: KernelIR, config: Config, pipe: Pipe, blocks: Mapping[str, int]) -> None:
    """Refused for more registers than threads have, and for fewer than one result takes."""
    given, target = config.max_registers, pipe.target
    if given is None:
        return
    most = target.registers_of(pipe.warps)
    if given > most:
        raise Refused(
            Rule.CONFIG,
            f"max_registers={given}, but of {pipe.warps} warps on {target} each thread "
            f"has at most {most}",
            ir.loc,
            f"give at most {most}, or fewer warps",
        )
    # the compiler fails for one that an asynchronous product adds to while the program goes on
    dots = [d for d in products(ir) if not target.columns and pipe.asynchronous(d, blocks)]
    sizes = (prod(lanes_of(n, blocks) for n in d.type.shape) for d in dots)
    result = max(sizes, default=0) // (pipe.warps * WARP)
    if given <= result:
        raise Refused(
            Rule.CONFIG,
            f"max_registers={given}, but a product of {ir.name} has {result} results in each "
            "thread",
            ir.loc,
            "give more registers or warps, or smaller blocks",
        )


def refuse_memory(ir: KernelIR, needed: int, pipe: Pipe) -> NoReturn:
    """Refused for operands that shared memory does not hold; smaller blocks help all but wholes."""
    target, whole = pipe.target, widest_whole(ir, pipe)
    loc, hint = ir.loc, "make the blocks smaller or give fewer stages"
    if whole is not None and whole.bytes > target.shared:
        loc, hint = whole.loc or ir.loc, whole.hint
    raise Refused(
        Rule.CONFIG,
        f"{ir.name} needs about {needed} bytes of shared memory, {target} has {target.shared}",
        loc,
        hint,
    )


def refuse_descriptors(ir: KernelIR, pointers: Mapping[str, str]) -> None:
    """Refused where descriptors are asked for and no load could go through one."""
    reasons = "; ".join(f"{name}: {why}" for name, why in pointers.items())
    raise Refused(
        Rule.CONFIG,
        f"indexing='descriptor', but no operand of a product of {ir.name} can be copied in boxes"
        + (f" ({reasons})" if reasons else ""),
        ir.loc,
        "leave indexing out",
    )


def check_values(ir: KernelIR, launch: Launch) -> None:
    """Refused for a value that is larger than the language allows."""
    for step in every_step(launch.body):
        for expr in (e for x in exprs(step) for e in walk(x)):
            size = prod(launch.width(d) for d in expr.type.shape)
            if size > MOST:
                raise Refused(
                    Rule.CONFIG,
                    f"a value of {ir.name} has {size:,} elements, Triton allows {MOST:,}",
                    expr.loc if isinstance(expr, Apply) and expr.loc else ir.loc,
                    "make the blocks smaller",
                )
