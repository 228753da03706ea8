"""plan(problem, config, target) -> Plan: every choice, checked to be legal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from tilelang.analysis import again
from tilelang.codegen.triton.passes.clear_rest import clear_rest
from tilelang.codegen.triton.passes.cut_sums import cut_sums
from tilelang.codegen.triton.passes.exact_casts import exact_casts
from tilelang.codegen.triton.passes.explicit_casts import explicit_casts
from tilelang.codegen.triton.passes.flat_sums import flat_sums
from tilelang.codegen.triton.passes.gather_tables import gather_tables
from tilelang.codegen.triton.passes.late_scales import late_scales
from tilelang.codegen.triton.passes.matrix_products import matrix_products
from tilelang.codegen.triton.passes.moved_lanes import moved_lanes
from tilelang.codegen.triton.passes.pad_dims import pad_dims
from tilelang.codegen.triton.passes.split_reductions import split_reductions
from tilelang.codegen.triton.passes.tile_wholes import tile_wholes
from tilelang.codegen.triton.passes.updates import updates
from tilelang.codegen.triton.target import Target
from tilelang.ir import KernelIR, Loop, Stmt, every_store
from tilelang.ir.chain import Level
from tilelang.ir.traversal import map_body
from tilelang.passes.drop_implied_masks import drop_implied_masks
from tilelang.passes.drop_unused import drop_unused
from tilelang.passes.fill_pads import fill_pads
from tilelang.passes.fold_empty import fold_empty
from tilelang.passes.keep_inside import keep_inside
from tilelang.passes.name_shared import name_shared
from tilelang.passes.powers_of_two import powers_of_two
from tilelang.passes.row_products import row_products
from tilelang.passes.separate_joins import separate_joins
from tilelang.schedule.blocks import named
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refusal, Refused, Rule, allowed, attempted

from .defaults import blocks_for, in_boxes, width_for
from .launch import plan_launch
from .launch_memory import launch_bytes, launch_columns
from .legality import (
    check_config,
    check_kernel,
    check_registers,
    check_values,
    refuse_descriptors,
    refuse_memory,
)
from .memory import BARRIERS
from .pipe import Pipe
from .problem import Prepared
from .specialized import refuse_unspecialized
from .split import parts_of, reduction_of
from .steps import every_step
from .types import Buffer, For, Launch, Plan, Result
from .width import Width

# Bytes for each warp that the result of a flat loop, 128 x 256, passes through to be stored while
# boxes arrive: the compiler's figure for 4, 8 and 16 warps.  Elsewhere it goes through what the
# operands have left.
FLAT_STORE = 4096


def plan(problem: Problem, config: Config, target: Target) -> Plan | Refusal:
    """Fills what the config leaves open with the defaults, and plans every launch."""
    return attempted(lambda: _plan(problem, config, target))


def normalised(problem: Problem) -> Iterator[tuple[str, KernelIR]]:
    """The kernel after each pass that needs no choice, in their order."""
    facts, ir = problem.facts, problem.ir
    passes: tuple[tuple[str, Callable[[KernelIR], KernelIR]], ...] = (
        ("keep_inside", lambda ir: keep_inside(ir, facts)),
        ("fold_empty", fold_empty),
        ("name_shared", name_shared),
        ("updates", updates),
        ("powers_of_two", powers_of_two),
    )
    for name, run in passes:
        ir = run(ir)
        yield name, ir


def _plan(problem: Problem, config: Config, target: Target) -> Plan:
    check_kernel(problem.ir, target)
    check_config(problem, config, target)
    cleared = _cleared(problem)
    rest = {s.axis for s in cleared.ir.body[len(problem.ir.body) :]}
    problem, blocks, parts = _split(cleared, config, target)
    ir = problem.ir
    width = width_for(problem, config, target, blocks)
    check_registers(ir, config, width.pipe(target), blocks)
    boxes = in_boxes(problem, config, target, width, blocks)
    problem = _in_parts(problem, blocks, width.pipe(target))
    needs = _needs(problem, blocks, width.pipe(target), boxes)
    if width.flat:
        needs = [n + FLAT_STORE * width.warps if n else n for n in needs]
    if boxes and config.indexing is None and max(needs, default=0) > target.shared:
        boxes, needs = False, _needs(problem, blocks, width.pipe(target), False)
    needed = max(needs, default=0)
    if needed > target.shared:
        refuse_memory(ir, needed, width.pipe(target))
    _check_columns(problem, target, width.pipe(target), blocks)
    kernel = _masked(problem, blocks, width)
    launches: list[Launch] = []
    scratch: list[Buffer] = []
    pointers: dict[str, str] = {}
    unfit: list[str] = []
    hosts = _hosts(list(zip(_live(kernel), needs, strict=True)), rest, config)
    several = len(ir.body) - (0 if config.warp_specialize else len(rest)) > 1
    for number, (loop, others, size) in enumerate(hosts):
        name = f"{ir.name}{f'_{number + 1}' if several or number else ''}_kernel"
        planned = plan_launch(kernel, loop, name, config, target, width, boxes, size, others)
        launches += [one for one in planned.launches if one.programs]
        scratch += planned.scratch
        pointers |= planned.pointers
        unfit += planned.unfit
    for one in launches:
        check_values(ir, one)
    steps = (s for one in launches for s in every_step(one.body))
    if config.warp_specialize and not any(isinstance(s, For) and s.specialized for s in steps):
        refuse_unspecialized(problem.ir, unfit)
    if config.indexing and boxes and not any(one.descriptors for one in launches):
        refuse_descriptors(problem.ir, pointers)
    return Plan(
        problem.ir, config, target, tuple(launches),
        (*_outputs(problem), *scratch),
        tuple(_result(problem.ir, n) for n in problem.ir.returns),
        tuple(sorted(blocks.items())),
        parts,
        _remarks(config, target, pointers),
    )  # fmt: skip


@lru_cache(8)  # of one kernel many configs are planned, and its analysis takes half of the time
def _cleared(problem: Problem) -> Problem:
    """The kernel that fills only what its ranges leave, its joins and large products in parts.

    Products with vectors are sums from the start; what selects pick from tables is loaded, and what
    was read in fewer bits is multiplied as it was read.
    """
    ir = exact_casts(gather_tables(row_products(problem.ir, vectors=True)))
    ir = clear_rest(tile_wholes(separate_joins(ir)))
    return problem if ir is problem.ir else Problem(ir, again(ir, problem.facts))


def _in_parts(problem: Problem, blocks: dict[str, int], pipe: Pipe) -> Problem:
    """The kernel with long rows multiplied in parts, if memory holds what others read whole."""
    ir = cut_sums(problem.ir, lambda dot: pipe.part(dot, blocks))
    cut = problem if ir is problem.ir else Problem(ir, problem.facts)
    fits = max(_needs(cut, blocks, pipe, False), default=0) <= pipe.target.shared
    return cut if fits else problem


def _hosts(
    loops: Sequence[tuple[Loop, int]], rest: set[str], config: Config
) -> Iterator[tuple[Loop, tuple[Loop, ...], int]]:
    """Each launch's loop, those that its programs share before it, and the bytes that it needs.

    What fills the rest is a part of the launch that stores all else: one launch less to wait for.
    Specialized warps have no part for what is not theirs.
    """
    own = [one for one in loops if one[0].axis not in rest]
    shared: dict[str, list[tuple[Loop, int]]] = {loop.axis: [] for loop, _ in own}
    for loop, size in loops:
        if loop.axis in rest:
            home = next((one.axis for one, _ in own if _stored(one) & _stored(loop)), None)
            if home is None or config.warp_specialize:
                yield loop, (), size
            else:
                shared[home].append((loop, size))
    for loop, size in own:
        most = max(size, *(n for _, n in shared[loop.axis]), 0)
        yield loop, tuple(other for other, _ in shared[loop.axis]), most


def _stored(loop: Loop) -> set[str]:
    return {store.tensor for store in every_store(loop.body)}


def _needs(problem: Problem, blocks: dict[str, int], pipe: Pipe, boxes: bool) -> list[int]:
    """Bytes of shared memory of each launch; who waits for boxes does so at barriers there."""
    pipe, ir = replace(pipe, boxes=boxes), problem.ir
    found = [launch_bytes(ir, problem.facts, loop, blocks, pipe) for loop in _live(problem)]
    return [n + BARRIERS if n and boxes else n for n in found]


def _check_columns(problem: Problem, target: Target, pipe: Pipe, blocks: dict[str, int]) -> None:
    """Refused for results that tensor memory has no place for, where there is such memory."""
    for loop in _live(problem) if target.columns else ():
        needed = launch_columns(problem.ir, loop, blocks, pipe)
        if needed > target.columns:
            raise Refused(
                Rule.CONFIG,
                f"{problem.ir.name} needs {needed} columns of tensor memory, {target} has "
                f"{target.columns}",
                problem.ir.loc,
                "make the blocks smaller",
            )


def _remarks(config: Config, target: Target, pointers: Mapping[str, str]) -> tuple[str, ...]:
    """What becomes of descriptors that were asked for."""
    if config.indexing == "descriptor" and not target.scratch:
        return ("pointers: the launcher gives no memory for descriptors",)
    if config.indexing is None:
        return ()
    return tuple(f"{name}: pointers, because {why}" for name, why in pointers.items())


def _split(problem: Problem, config: Config, target: Target) -> tuple[Problem, dict[str, int], int]:
    """The kernel after its passes, with its longest reduction in so many parts, and all blocks."""
    whole, blocks = _passed(problem, config, target)
    reduction = reduction_of(problem, blocks, config.split)
    if reduction is None:
        return whole, blocks, 1
    warps = width_for(whole, config, target, blocks).warps
    parts = config.split or parts_of(reduction, target, warps)
    if parts == 1:
        return whole, blocks, 1
    ir = split_reductions(reduction, parts)
    split, others = _passed(Problem(ir, again(ir, problem.facts)), config, target)
    return split, others | blocks, parts


def _passed(problem: Problem, config: Config, target: Target) -> tuple[Problem, dict[str, int]]:
    """The kernel after the passes that need no choice, and the blocks of its axes."""
    *_, (_, ir) = normalised(problem)
    problem = Problem(ir, problem.facts)
    return problem, blocks_for(problem, config, target)


def _live(kernel: Prepared | Problem) -> tuple[Loop, ...]:
    """The top-level loops that store something to arrays that have elements."""
    loops = Problem(kernel.ir, kernel.facts).nests
    return tuple(loop for loop in loops if loop is not None)


def _masked(problem: Problem, blocks: dict[str, int], width: Width) -> Prepared:
    """The kernel with its masks and casts, which blocks decide about.

    Scales stay where they are beside pages: of those 160 bytes would spill, not 56.
    """
    padded = pad_dims(problem.ir)
    moved = moved_lanes(padded)
    kernel = Prepared(moved, problem.facts, blocks, padded.dims)
    _, body = fill_pads((), moved.body, kernel.partial, kernel.held)
    body = drop_unused(map_body(body, _without_implied), moved.axes)
    ir = replace(moved, body=tuple(s for s in body if isinstance(s, Loop)))
    ir = explicit_casts(ir) if width.boxes else late_scales(explicit_casts(ir))
    ir = flat_sums(matrix_products(ir, kernel.width))
    return replace(kernel, ir=ir)


def _without_implied(stmt: Stmt) -> tuple[Stmt, ...]:
    """A loop without masks that its own scores imply: each of its steps has a lane in range."""
    if not isinstance(stmt, Loop):
        return (stmt,)
    (level,), body = drop_implied_masks((Level(stmt.axis, stmt.carries, (), ()),), stmt.body)
    return (replace(stmt, carries=level.carries, body=body),)


def _outputs(problem: Problem) -> tuple[Buffer, ...]:
    """What the host makes; it fills nothing that stores cover before anybody looks."""
    covered = {o.tensor for o in problem.facts.outputs if o.covered}
    fills = {t: None if t.name in covered else t.fill for t in problem.ir.tensors}
    return tuple(
        Buffer(t.name, t.shape, t.dtype, f) for t, f in fills.items() if t.role == "output"
    )


def _result(ir: KernelIR, name: str) -> Result:
    tensor = ir.tensor(name)
    if tensor.view is None:
        return Result(name)
    source = _result(ir, tensor.view.source)
    return replace(source, views=(*source.views, (tensor.view.how, tensor.view.arg)))


def config_of(chosen: Plan) -> Config:
    """The config that says what was chosen."""
    main = chosen.launches[-1] if chosen.launches else None
    given = chosen.config
    return Config(
        named(chosen.ir, dict(chosen.blocks)),
        warps=main.warps if main else given.warps,
        stages=main.stages if main else given.stages,
        precision=given.precision,
        indexing="descriptor"
        if any(one.descriptors for one in chosen.launches)
        else given.indexing,
        persistent=given.persistent,
        worklist=given.worklist,
        l2_group=given.l2_group,
        split=chosen.parts if chosen.parts > 1 else given.split,
        max_registers=given.max_registers,
        warp_specialize=given.warp_specialize,
    )


def default_config(problem: Problem, target: Target) -> Config:
    """The config that `plan` uses when none is given."""
    return completed(problem, Config(), target)


def completed(problem: Problem, config: Config, target: Target) -> Config:
    """A config with what `plan` adds to it; PlanError for one that is refused."""
    return config_of(allowed(plan(problem, config, target)))
