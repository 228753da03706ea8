"""plan(problem, config, target) -> Plan: every choice, checked to be legal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import product

from tilelang.codegen.pallas.passes.block_groups import block_groups, of_groups
from tilelang.codegen.pallas.passes.group_boxes import boxed, group_boxes
from tilelang.codegen.pallas.passes.several_turns import several_turns
from tilelang.codegen.pallas.target import Target
from tilelang.schedule.blocks import named
from tilelang.schedule.config import Config
from tilelang.schedule.legal import check_kernel
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refusal, Refused, Rule, allowed, attempted

from . import defaults, inside
from .blocks import blocks_of_groups, multiple, sizes
from .boxes import blocks_in_boxes
from .cut import cut
from .estimate import rank
from .estimate.seconds import Estimate
from .in_flight import sooner
from .launch import plan_launch
from .memory import with_margin
from .modest import modest, settled
from .normalised import normalised
from .placement import place
from .small_steps import few_steps, halved, loops_of_small_steps, turns_of_small_steps
from .types import MODULE_NAMES, Launch, Plan
from .windows.flowing import at_once
from .windows.turned import picked_last
from .windows.types import HostArray

# How much faster steps with many groups, or with whole arrays, must be where nobody asks for them:
# how long groups are is known as a mean only.  Rows that are only moved take what copies take.
FORM_WORTH = 1.3
# For loops inside of the step little goes by that: products of small groups take 0.8 to 1.0 of the
# time by v6e's schedules (CLOSE is a guess); inside of the only one as much, for fewer bytes.
INSIDE_CLOSE, INSIDE_WORTH, ONCE_WORTH = 1.1, 1.08, 1.02


def plan(problem: Problem, config: Config, target: Target) -> Plan | Refusal:
    """Fills what the config leaves open with the defaults, and plans every launch."""
    return attempted(lambda: _chosen(problem, config, target))


def _chosen(problem: Problem, config: Config, target: Target) -> Plan | Refusal:
    groups = blocks_of_groups(problem.ir, config)
    if groups:
        return _of_groups(problem, config, target, groups)
    found = _fastest(problem, config, target)
    if isinstance(found, Refusal):
        return found
    alone = cut(found.problem, found.plan, config.pieces)
    if isinstance(alone, Refusal):
        return alone
    if found.ranked:
        alone = _faster(problem, config, alone)
    return alone if alone.groups else _in_turns(problem, config, alone)


@dataclass(frozen=True)
class _Found:
    """A plan of a kernel that passes have made ready, and whether the estimate was asked for it."""

    problem: Problem
    plan: Plan
    ranked: bool


def _fastest(problem: Problem, config: Config, target: Target) -> _Found | Refusal:
    """The plan whose blocks are estimated to be the best, where the config leaves them open."""
    form = formed(problem, config, target)
    if isinstance(form, Refusal):
        return form
    asked = Config(
        loop_type=config.loop_type,
        cores=config.cores,
        buffers=config.buffers,
        gathers=config.gathers,
        pieces=config.pieces,
    )
    if config != asked or not rank.provable(form.plan):
        return _Found(form.problem, form.plan, False)
    found = rank.best(form.problem, form.plan, form.resized)
    if found is None:
        return _Found(form.problem, form.plan, True)
    fastest, ranking = found
    return _Found(form.problem, replace(fastest, why=rank.reasons(ranking)), True)


def _of_groups(
    problem: Problem, config: Config, target: Target, groups: Mapping[str, int]
) -> Plan | Refusal:
    """The plan in which a step sums all groups of a block, or runs several turns of a loop."""
    made = attempted(lambda: reduce(partial(_blocked, config=config), groups.items(), problem))
    if isinstance(made, Refusal):
        return made
    found = plan(made, config.without(groups), target)
    if isinstance(found, Refusal):
        return found
    sizes_of = {**groups, **dict(found.blocks)}
    return replace(found, groups=tuple((name, sizes_of[name]) for name in groups))


def _blocked(problem: Problem, asked: tuple[str, int], config: Config) -> Problem:
    """The kernel with a block of iterations of an `hl.grid` loop."""
    name, block = asked
    if problem.fact(name).kind == "ordered":
        return several_turns(problem, name, block)
    if config.windows == "exact":
        raise Refused(
            Rule.CONFIG,
            f"windows='exact' with a block of {name}: tiles hold many groups",
            problem.ir.loc,
            "leave one of the two out",
        )
    if boxed(problem, name):
        return group_boxes(problem, name, block)
    return block_groups(problem, name, block)


def _faster(problem: Problem, config: Config, alone: Plan) -> Plan:
    """The fastest plan of those in another form that are faster beyond doubt.

    All are finished before they are compared: blocks that come sooner may be worth more to it.
    """
    guess, _ = rank.judged(alone)
    if guess is None:
        return alone
    soon = _sooner(problem, config, alone)
    found = [] if soon is alone else [(_seconds(soon), soon)]
    for seconds, worth, one in _others(problem, config, alone, guess):
        if worth * seconds < guess.seconds:
            found.append((seconds, one))
    _, best = min(found, key=lambda o: o[0], default=(guess.seconds, alone))
    return best if best is alone or best is soon else _told(problem, config, best, guess)


def _others(
    problem: Problem, config: Config, alone: Plan, guess: Estimate
) -> Iterator[tuple[float, float, Plan]]:
    """Plans in forms that nobody asks for, what they take, and how much less that must be."""
    if config.loop_type is not None:
        return
    yield from ((_seconds(one), 1.0, one) for one in _in_boxes(problem, config, alone))
    yield from ((_seconds(one), ONCE_WORTH, one) for one in _in_one_step(problem, config, alone))
    yield from ((_seconds(one), INSIDE_WORTH, one) for one in _few(problem, config, alone))
    if guess.seconds >= FORM_WORTH * guess.traffic:
        for worth, forms in ((INSIDE_WORTH, _inside), (FORM_WORTH, _with_groups)):
            yield from ((took, worth, one) for took, one in forms(problem, config, alone))


def _told(problem: Problem, config: Config, found: Plan, guess: Estimate) -> Plan:
    """The plan, which says what the form would take that is there without asking."""
    axis = next((a.user for a in problem.ir.axes if dict(found.groups).get(a.name)), None)
    loops = found.config.within if found.config.within != config.within else ()
    what = f"a step for each {', '.join(loops)}" if loops else "its loops in a row as steps"
    what = what if axis is None else f"{axis} one by one"
    return replace(found, why=(*found.why, f"  {what}: {guess.seconds * 1e6:.4g} us"))


def _seconds(plan: Plan) -> float:
    """What a plan for a TPU is estimated to take."""
    guess, _ = rank.judged(plan)
    assert guess is not None
    return guess.seconds


def _inside(problem: Problem, config: Config, alone: Plan) -> Iterator[tuple[float, Plan]]:
    """The plan whose ragged loops run inside of the step, which has all rows of all groups.

    As steps each of them waits for its copies, or copies its rows again.  The longest tiles are
    taken that are about as fast as any: loops of few turns wait less.
    """
    loops = inside.loops(alone)
    if not loops or any(t.view is not None and t.view.how == "spans" for t in problem.ir.tensors):
        return
    made: list[tuple[float, Plan]] = []
    for block in inside.tiles(alone):
        sizes_of = named(alone.ir, dict(alone.blocks) | dict.fromkeys(loops, block))
        asked = replace(config, blocks=sizes_of, loop_type="fori_loop")
        whole = _finished(problem, config, asked, alone.target)
        if whole is not None:
            made.append((_seconds(at_once(whole)), whole))
    least = min((seconds for seconds, _ in made), default=0.0)
    close = [one for one in made[::-1] if one[0] <= INSIDE_CLOSE * least]
    yield from [(least if inside.little(alone) else seconds, plan) for seconds, plan in close[:1]]


def _in_one_step(problem: Problem, config: Config, alone: Plan) -> Iterator[Plan]:
    """The plan whose loops in a row run in the only step there is, with whole arrays.

    As steps each of them copies its rows again; here these come while the first loop turns.
    """
    if not any(each.table and each.table.phases for each in alone.launches):
        return
    whole = _finished(problem, config, replace(config, loop_type="fori_loop"), alone.target)
    if whole is not None and all(e.flow and e.flow.turns for e in whole.launches):
        yield whole


def _few(problem: Problem, config: Config, alone: Plan) -> Iterator[Plan]:
    """The plans whose steps, which are few, run all iterations of some loops."""
    for blocks, loops in product(halved(alone), few_steps(alone)):
        asked = replace(config, blocks=named(alone.ir, blocks), within=loops)
        whole = _finished(problem, config, asked, alone.target)
        if whole is not None:
            yield whole


def _finished(problem: Problem, config: Config, asked: Config, target: Target) -> Plan | None:
    """The plan that is asked for instead, as good as it can be made; None where that is refused."""
    whole = _whole(problem, asked, target)
    if isinstance(whole, Refusal) or not rank.fits(whole):
        return None
    return _sooner(problem, config, whole)


def _whole(problem: Problem, asked: Config, target: Target) -> Plan | Refusal:
    """The fastest plan with its pieces."""
    found = _fastest(problem, asked, target)
    return found if isinstance(found, Refusal) else cut(found.problem, found.plan, asked.pieces)


def _sooner(problem: Problem, config: Config, alone: Plan) -> Plan:
    """The plan with more blocks in flight, if that is faster beyond doubt."""
    guess, _ = rank.judged(alone)
    asked = None if guess is None else sooner(alone, guess, config, config_of(alone))
    whole = None if asked is None else _whole(problem, asked, alone.target)
    if guess is None or not isinstance(whole, Plan) or not rank.fits(whole):
        return alone
    if FORM_WORTH * _seconds(whole) >= guess.seconds:
        return alone
    told = f"  two blocks in flight: {guess.seconds * 1e6:.4g} us"
    return replace(whole, why=(*alone.why, told))


def _with_groups(problem: Problem, config: Config, alone: Plan) -> Iterator[tuple[float, Plan]]:
    """The plans in which a step has all groups of a block."""
    for axis in (a for a in problem.ir.axes if a.kind == "grid"):
        made = attempted(partial(of_groups, problem, axis.name))
        found = made if isinstance(made, Refusal) else plan(made, config, alone.target)
        if isinstance(found, Plan):
            groups = ((axis.name, dict(found.blocks)[axis.name]),)
            yield _seconds(at_once(found)), replace(found, groups=groups)


def _in_boxes(problem: Problem, config: Config, alone: Plan) -> Iterator[Plan]:
    """The plans in which a step moves the rows of all groups of a block."""
    for axis in (a for a in problem.ir.axes if a.kind == "grid"):
        blocks = attempted(partial(blocks_in_boxes, problem, axis.name, alone.target))
        if isinstance(blocks, Refusal):
            continue
        groups = {axis.name: blocks[axis.name]}
        found = _of_groups(problem, replace(config, blocks=blocks), alone.target, groups)
        if isinstance(found, Plan):
            told = f"blocks of rows that are moved together: {_seconds(found) * 1e6:.4g} us"
            yield replace(found, config=config, why=(told,))


def _in_turns(problem: Problem, config: Config, alone: Plan) -> Plan:
    """The plan whose steps run several iterations of a loop, where those of one are small.

    Its blocks are those of one iteration a step.
    """
    open_ = replace(config, cores=None, buffers=None, pieces=None)
    found = turns_of_small_steps(alone) if open_ == Config() else None
    if found is None:
        return alone
    name, count = found
    asked = replace(config_of(alone), cores=config.cores)
    asked = replace(asked, blocks={**dict(asked.blocks), name: count}, pieces=config.pieces)
    made = _of_groups(problem, asked, alone.target, {name: count})
    return made if isinstance(made, Plan) and rank.fits(made) else alone


@dataclass(frozen=True)
class Form:
    """A way for the loops to run, and the plan of it with blocks of the rule of thumb.

    problem  the kernel after its passes
    fold     whether its loops in a row become steps where they can
    """

    problem: Problem
    plan: Plan
    fold: bool

    def resized(self, blocks: Mapping[str, int]) -> Plan | Refusal:
        """The same form, planned with these blocks."""
        config, target = self.plan.config, self.plan.target
        return attempted(lambda: _plan(self.problem, config, target, blocks, self.fold))


def formed(problem: Problem, config: Config, target: Target) -> Form | Refusal:
    """The form that a config asks for, or that suits the kernel best where it leaves that open."""
    return attempted(lambda: _ready(problem, config, target))


def _ready(problem: Problem, config: Config, target: Target) -> Form | Refusal:
    check_kernel(problem.ir, target, MODULE_NAMES)
    *_, (_, kernel) = normalised(problem, target, config.gathers)
    ahead = any(t.view is not None and t.view.how == "take" for t in kernel.tensors)
    if config.gathers == "ahead" and not ahead:
        return Refusal(
            Rule.CONFIG,
            f"gathers='ahead', but {kernel.name} picks no rows by tiles of an index array, or it "
            "changes what it picks them from or by",
            kernel.loc,
            "leave gathers out",
        )
    found = _planned(Problem(kernel, problem.facts), config, target)
    if not ahead or config.gathers is not None or isinstance(found, Form):
        return found
    if found.rule is not Rule.KERNEL:
        return formed(problem, replace(config, gathers="inside"), target)
    return found


def _planned(problem: Problem, config: Config, target: Target) -> Form | Refusal:
    """The same for a kernel that passes have made ready."""
    planned, fold = _formed(problem, config, target)
    if config.within is None and not config.pieces:
        instead = _without_copies(problem, config, target, planned)
        instead = instead or _together(problem, config, target, planned)
        planned, fold = (planned, fold) if instead is None else instead
    return planned if isinstance(planned, Refusal) else Form(problem, planned, fold)


def _without_copies(
    problem: Problem, config: Config, target: Target, planned: Plan | Refusal
) -> tuple[Plan, bool] | None:
    """The plan that runs heads within the step, where the host would have to transpose arrays.

    That reads and writes each of them once more, which costs more than the smaller blocks do:
    attention over short sequences is bound by memory.
    """
    transposed = {t.name for t in problem.ir.tensors if len(t.shape) >= 3}
    if isinstance(planned, Plan):
        transposed = {a.source for a in planned.arrays if a.permute is not None}
    loops = picked_last(problem, transposed)
    if not loops:
        return None
    instead, fold = _formed(problem, replace(config, within=loops), target)
    if not isinstance(instead, Plan) or any(a.permute is not None for a in instead.arrays):
        return None
    needs = max((with_margin(one.memory.vmem) for one in instead.launches), default=0)
    return (instead, fold) if needs <= target.vmem_physical else None


def _together(
    problem: Problem, config: Config, target: Target, planned: Plan | Refusal
) -> tuple[Plan, bool] | None:
    """The plan that runs all iterations of a loop in one step, where steps of one are small."""
    loops = loops_of_small_steps(planned) if isinstance(planned, Plan) else ()
    if not loops:
        return None
    instead, fold = _formed(problem, replace(config, within=loops), target)
    return (instead, fold) if isinstance(instead, Plan) and rank.fits(instead) else None


def _formed(problem: Problem, config: Config, target: Target) -> tuple[Plan | Refusal, bool]:
    """The plan with the loop type of the config, or with the best one that the nest allows.

    The second result says whether its loops in a row become steps where they can.

    Loops in a row become steps of one pipeline where they can.  Else they run inside the step;
    arrays that do not fit vector memory then stay where they are and stream through loops inside
    the step, and a nest whose steps cannot be folded at all still runs as plain loops there.
    """

    def tried(fold: bool = True, loop_type: str | None = config.loop_type) -> Plan | Refusal:
        return _sized(problem, replace(config, loop_type=loop_type), target, fold)

    folded = tried()
    if isinstance(folded, Refusal) and folded.rule is not Rule.FORM:
        return folded, True
    if config.loop_type is not None or config.steps is not None:
        return (folded, True) if isinstance(folded, Plan) else (tried(fold=False), False)
    if isinstance(folded, Plan) and settled(folded):
        return folded, True
    inside = tried(fold=False)
    if isinstance(inside, Plan) and settled(inside):
        return inside, False
    streamed = tried(loop_type="emit_pipeline")
    if isinstance(streamed, Plan) and (isinstance(inside, Refusal) or modest(streamed)):
        return streamed, True
    if isinstance(inside, Plan):
        return inside, False
    looped = tried(loop_type="fori_loop")
    if isinstance(looped, Plan):
        return looped, True
    return inside, False  # the form that was wanted says why not


def _sized(problem: Problem, config: Config, target: Target, fold: bool) -> Plan | Refusal:
    """The plan with the blocks of the config, or with the largest modest ones.

    `fold`: loops in a row become steps where they can.
    """

    def planned(blocks: Mapping[str, int]) -> Plan | Refusal:
        return attempted(lambda: _plan(problem, config, target, blocks, fold))

    guess = defaults.following(problem, target, config)
    blocks = attempted(lambda: sizes(problem, config, target, guess))
    if isinstance(blocks, Refusal):
        return blocks
    if config.blocks or config.block_sizes is not None or not guess:
        return planned(blocks)
    legal = {n: multiple(problem, n, target) for n in blocks}
    legal |= defaults.least_of_author(problem, target, blocks)
    if config.within:
        legal = {n: max(need, min(defaults.ROWS_LEAST, blocks[n])) for n, need in legal.items()}
    whole = defaults.whole_products(problem, blocks, legal)
    if whole is not None:
        found = _fitted(problem, planned, *whole)
        if isinstance(found, Plan) and modest(found):
            return found
    return _fitted(problem, planned, blocks, legal)


def _fitted(
    problem: Problem,
    planned: Callable[[Mapping[str, int]], Plan | Refusal],
    blocks: dict[str, int],
    least: Mapping[str, int],
) -> Plan | Refusal:
    """The plan with the largest blocks that are modest; with the least ones if none are.

    Blocks shrink while vector memory is short.  They grow while scalar memory is: a table of steps
    has a row for every block.
    """
    tried: list[dict[str, int]] = []
    while True:
        tried.append(blocks)
        found = planned(blocks)
        if isinstance(found, Plan) and modest(found):
            return found
        needs = None if isinstance(found, Plan) else found.needs
        if isinstance(found, Plan) or (needs is not None and needs.wants == "smaller"):
            # long ordered blocks shrink first: that only adds steps, not traffic
            ordered = {n for n in blocks if problem.fact(n).kind == "ordered"}
            weights = {n: 2 * b if n in ordered else b for n, b in blocks.items()}
            together = (*problem.registered, *problem.alike)
            other = defaults.shrink(blocks, least, weights, together)
        else:
            other = None if needs is None else defaults.grow(problem, blocks, needs.axes)
        if other is None or other in tried:
            return found
        blocks = other


def default_config(problem: Problem, target: Target) -> Config:
    """The config that `plan` uses when none is given."""
    return config_of(allowed(plan(problem, Config(), target)))


def config_of(chosen: Plan) -> Config:
    """The config that says what was chosen."""
    sizes_of = dict(chosen.blocks)
    blocks = named(chosen.ir, sizes_of) | dict(chosen.groups)
    used = chosen.config
    return Config(blocks, loop_type=used.loop_type, within=used.within, buffers=used.buffers)


def _plan(
    problem: Problem, config: Config, target: Target, blocks: Mapping[str, int], fold: bool
) -> Plan:
    kernel = problem.ir
    if config.steps is not None and not any(a.ragged for a in problem.facts.axes):
        raise Refused(
            Rule.CONFIG,
            f"steps={config.steps!r}, but no loop of {kernel.name} is ragged: there is no table",
            kernel.loc,
            "leave steps out",
        )
    launches: list[Launch] = []
    arrays: dict[tuple[str, str], HostArray] = {}
    for position, loop in enumerate(problem.nests):
        placed = place(problem, config, blocks, loop, fold) if loop is not None else None
        if placed is None:
            continue
        suffix = f"_{len(launches) + 1}" if len(kernel.body) > 1 else ""
        name = f"{kernel.name}{suffix}_kernel"
        while any(t.name == name for t in kernel.tensors):
            name += "_"
        outputs = {w.array for launch in launches for w in launch.outputs}
        written = frozenset(a.source for a in arrays.values() if a.name in outputs)
        later = frozenset(t for tensors in problem.stored[position + 1 :] for t in tensors)
        launch, hosts = plan_launch(problem, config, target, placed, name, written, later)
        launches.append(launch)
        arrays |= {(host.name, host.source): host for host in hosts}
    hosts, chosen = tuple(arrays.values()), tuple(sorted(blocks.items()))
    return Plan(problem, config, target, hosts, tuple(launches), chosen)
