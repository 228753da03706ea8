"""Legality: what a kernel and a config may ask of a GPU, and what is not there yet."""

from __future__ import annotations

from tilelang.codegen.triton.passes.pad_dims import power_of_two
from tilelang.codegen.triton.target import Target
from tilelang.errors import Loc, PlanError
from tilelang.ir import Apply, KernelIR, statement_exprs, statements, walk
from tilelang.language.op import OPS
from tilelang.schedule import legal
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

MODULE_NAMES = frozenset({"tl", "triton", "torch"})


def check_kernel(ir: KernelIR, target: Target) -> None:
    """PlanError for what no config could run on the target."""
    legal.check_kernel(ir, target, MODULE_NAMES)
    for stmt in statements(ir.body):
        for expr in statement_exprs(stmt):
            for part in walk(expr):
                if isinstance(part, Apply):
                    _check_op(part, target, part.loc or stmt.loc)


def _check_op(expr: Apply, target: Target, loc: Loc | None) -> None:
    if expr.op not in OPS:
        raise PlanError(f"{expr.op} has no meaning on {target} yet", loc, "write it another way")
    if expr.op == "reshape":
        _check_reshape(expr, target, loc)
    if expr.op == "concat":
        raise PlanError(
            f"values cannot be joined on {target} yet",
            loc,
            "store the parts one by one, each to its own part of the output",
        )


def _check_reshape(expr: Apply, target: Target, loc: Loc | None) -> None:
    """Elements keep their lanes only where every dimension is a power of two of them."""
    before, after = (
        [d for d in shape if d != 1] for shape in (expr.args[0].type.shape, expr.type.shape)
    )
    if before == after:
        return
    odd = [d for d in (*before, *after) if isinstance(d, str) or d != power_of_two(d)]
    if odd:
        raise PlanError(
            f"this reshape cuts or joins a dimension of {odd[0]}, which {target} cannot do yet: "
            "tiles have a power of two of lanes",
            loc,
            "reshape the array in the host code before the loops",
        )


def check_config(problem: Problem, config: Config) -> None:
    """Refused for a field of the config that this kernel has no place for, or that waits."""
    missing = {
        "indexing": (config.indexing == "descriptor", "pointer"),
        "split": (config.split is not None and config.split > 1, "1"),
    }
    for field, (asked, instead) in missing.items():
        if asked:
            raise Refused(
                Rule.CONFIG,
                f"{field}={getattr(config, field)!r} is not there yet",
                problem.ir.loc,
                f"leave it out, or give {field}={instead!r}",
            )
    if config.worklist is not None and not any(a.ragged for a in problem.facts.axes):
        raise Refused(
            Rule.CONFIG,
            f"worklist={config.worklist!r}, but no loop of {problem.ir.name} is ragged",
            problem.ir.loc,
            "leave worklist out",
        )
