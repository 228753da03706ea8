"""plan(problem, config, target) -> Plan: every choice, checked to be legal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import product

from tilelang.codegen.pallas.passes.block_groups import of_groups
from tilelang.codegen.pallas.passes.index_tiles import picks_rows
from tilelang.codegen.pallas.target import Target
from tilelang.ir import KernelIR, every_loop
from tilelang.schedule.blocks import named
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Need, Refusal, Rule, allowed, attempted

from . import defaults, inside, worth
from .blocked_loops import blocked, tiles
from .blocks import blocks_of_groups, multiple
from .body.pieces import with_fewer_columns
from .boxes import blocks_in_boxes, with_halves
from .cut import cut
from .estimate import rank
from .estimate.around import taken
from .estimate.seconds import Estimate, generation
from .forms import fitted, formed
from .in_flight import sooner, worth_more
from .one_hots import one_hots
from .small_steps import (
    beside_each_other,
    few_steps,
    fewer_rows,
    halved,
    smaller,
    turns_of_small_steps,
)
from .types import Plan
from .vectors import are_short, as_columns
from .windows.flowing import at_once


def plan(problem: Problem, config: Config, target: Target) -> Plan | Refusal:
    """Fills what the config leaves open with the defaults, and plans every launch."""

    def chosen() -> Plan | Refusal:
        return _chosen(one_hots(problem, target, config.gathers), config, target)

    return attempted(chosen)


def _chosen(problem: Problem, config: Config, target: Target) -> Plan | Refusal:
    groups = blocks_of_groups(problem.ir, config)
    if groups:
        return _of_groups(problem, config, target, groups)
    found = _fastest(problem, config, target)
    if isinstance(found, Refusal):
        begun = _begun(problem, config, target) if problem.facts.fixed else None
        made = begun or _blocked_at_all(problem, config, target)
        return made or _in_columns(problem, config, target, found) or found
    alone = cut(found.problem, found.plan, config.pieces)
    if isinstance(alone, Refusal):
        return alone
    if found.ranked:
        best = _faster(problem, config, alone)
        alone = _in_fitting_pieces(problem, config, found.plan, alone) if best is alone else best
    elif not rank.provable(alone):
        whole = _blocked_at_all(problem, config, target)
        took = _seconds(at_once(whole)) + taken(whole) if whole else 0.0
        if whole and worth.UNPROVED_WORTH * took < _seconds(alone):
            alone = _told(problem, config, whole, _judged(alone).guess)
    return alone if alone.groups else _in_turns(problem, config, alone)


def _begun(problem: Problem, config: Config, target: Target) -> Plan | None:
    """The plan whose tiles begin with their ranges, for results that go by that."""
    if config.windows is not None:
        return None
    found = attempted(lambda: _chosen(problem, replace(config, windows="exact"), target))
    return None if isinstance(found, Refusal) else found


def _in_columns(problem: Problem, config: Config, target: Target, found: Refusal) -> Plan | None:
    """The plan with smaller tiles than vectors have, where those are short."""
    other = as_columns(problem) if are_short(problem, config, target, found) else None
    made = None if other is None else attempted(lambda: _chosen(other, config, target))
    return made if isinstance(made, Plan) else None


def _in_fitting_pieces(problem: Problem, config: Config, found: Plan, alone: Plan) -> Plan:
    """The plan with fewer columns, where pieces of the least rows are larger than pays.

    That is not in the estimate, which may say that it takes a little longer.
    """
    blocks = with_fewer_columns(found.launches[0], found.target) if len(found.launches) == 1 else {}
    if not blocks or config.pieces is not None:
        return alone
    asked = replace(config, blocks=named(found.ir, {**dict(found.blocks), **blocks}))
    whole = _finished(problem, config, asked, found.target)
    if whole is None or whole.guess.seconds > worth.PIECES_CLOSE * _seconds(alone):
        return alone
    told = f"  in pieces of fewer columns: {whole.guess.seconds * 1e6:.4g} us, which hide more"
    return replace(whole.plan, why=(*alone.why, told))


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
    made = attempted(lambda: reduce(partial(blocked, config=config), groups.items(), problem))
    if isinstance(made, Refusal):
        return made
    found = plan(made, config.without(groups), target)
    if isinstance(found, Refusal):
        return found
    sizes_of = {**groups, **dict(found.blocks)}
    return replace(found, groups=tuple((name, sizes_of[name]) for name in groups))


def _faster(problem: Problem, config: Config, alone: Plan) -> Plan:
    """The fastest plan of those in another form that are faster beyond doubt.

    All are finished before they are compared: blocks that come sooner may be worth more to it.
    """
    judged = _judged(alone)
    guess, soon = judged.guess, _sooner(problem, config, judged)
    found = [] if soon is judged else [(soon.guess.seconds, soon.plan)]
    for seconds, least, one in _others(problem, config, alone, guess):
        if least * seconds < guess.seconds:
            found.append((seconds, one))
    _, best = min(found, key=lambda o: o[0], default=(guess.seconds, alone))
    return best if best is alone or best is soon.plan else _told(problem, config, best, guess)


def _others(
    problem: Problem, config: Config, alone: Plan, guess: Estimate
) -> Iterator[tuple[float, float, Plan]]:
    """Plans in forms that nobody asks for, what they take, and how much less that must be."""
    if config.loop_type is not None:
        return
    yield from ((took, 1.0, one) for took, one in _in_boxes(problem, config, alone))
    tiled = _in_tiles(problem, config, alone.target, guess.seconds)
    yield from ((took, worth.INSIDE_WORTH, one) for took, one in tiled)
    chained = rank.products(alone.launches) >= worth.CHAINED
    for least, finished in (
        (worth.ONCE_WORTH, _in_one_step(problem, config, alone)),
        (worth.INSIDE_WORTH, _in_a_loop(problem, config, alone)),
        (worth.INSIDE_WORTH, _few(problem, config, alone)),
        (
            worth.CHAINED_WORTH if chained else worth.INSIDE_WORTH,
            _many(problem, config, alone, guess),
        ),
    ):
        yield from ((one.guess.seconds, least, one.plan) for one in finished)
    if guess.seconds >= worth.FORM_WORTH * guess.traffic:
        grouped = _with_groups(problem, config, alone.target, guess.seconds)
        for least, made in (
            (worth.INSIDE_WORTH, _inside(problem, config, alone)),
            (worth.FORM_WORTH, grouped),
        ):
            yield from ((took, least, one) for took, one in made)


def _told(problem: Problem, config: Config, found: Plan, guess: Estimate) -> Plan:
    """The plan, which says what the form would take that is there without asking."""
    axis = next((a.user for a in problem.ir.axes if dict(found.groups).get(a.name)), None)
    loops = found.config.within if found.config.within != config.within else ()
    what = f"a step for each {', '.join(loops)}" if loops else "its loops in a row as steps"
    what = what if axis is None else f"{axis} one by one"
    return replace(found, why=(*found.why, f"  {what}: {guess.seconds * 1e6:.4g} us"))


@dataclass(frozen=True)
class _Judged:
    """A plan for a TPU, and what it is estimated to take: that is a tenth of what planning is."""

    plan: Plan
    guess: Estimate


def _judged(plan: Plan) -> _Judged:
    guess, _ = rank.judged(plan)
    assert guess is not None
    return _Judged(plan, guess)


def _seconds(plan: Plan) -> float:
    """What a plan for a TPU is estimated to take."""
    return _judged(plan).guess.seconds


def _inside(problem: Problem, config: Config, alone: Plan) -> Iterator[tuple[float, Plan]]:
    """The plan whose ragged loops run inside of the step, which has all rows of all groups.

    As steps each of them waits for its copies, or copies its rows again.  The longest tiles are
    taken that are about as fast as any: loops of few turns wait less.
    """
    loops = inside.loops(alone)
    if not loops or any(t.view is not None and t.view.how == "spans" for t in problem.ir.tensors):
        return
    made: list[tuple[float, Plan]] = []
    asked, blocks = replace(config, loop_type="fori_loop"), dict(alone.blocks)
    for block in inside.tiles(alone):
        blocks |= dict.fromkeys(loops, block)
        found = _with_room(problem, asked, alone, blocks, loops)
        if found is not None:
            blocks, whole = dict(found.blocks), _sooner(problem, config, _judged(found)).plan
            made.append((_seconds(at_once(whole)), whole))
    least = min((seconds for seconds, _ in made), default=0.0)
    rare = any(each.beside for _, whole in made for each in whole.launches)  # loops turn at all
    close = [one for one in made[:: 1 if rare else -1] if one[0] <= worth.INSIDE_CLOSE * least]
    for seconds, found in close[:1]:
        yield (least if inside.little(alone) else seconds) + _unevenly(found, seconds), found


def _unevenly(found: Plan, seconds: float) -> float:
    """Half of what it takes longer with ranges of which some are long: whether steps go through
    several without loops hangs on the longest of them.

    By v6e's schedules rows of 1,024 groups of 32 in the mean, over their norms, take 41 us then,
    and 235 between random cuts; a block of groups in a step takes 54 whatever their lengths are.
    """
    if not any(each.beside for each in found.launches):
        return 0.0
    uneven, _ = rank.judged(at_once(found), uneven=True)
    assert uneven is not None
    return max(uneven.seconds - seconds, 0.0) / 2


def _in_one_step(problem: Problem, config: Config, alone: Plan) -> Iterator[_Judged]:
    """The plan whose loops in a row run in the only step there is, with whole arrays.

    As steps each of them copies its rows again; here these come while the first loop turns.
    """
    if not any(each.table and each.table.phases for each in alone.launches):
        return
    steps = [a for each in alone.launches for a in each.axes if a.block is None]
    if any(a.tiles != 1 for a in steps) or not inside.loops(alone):  # no blocks are that small
        return
    whole = _finished(problem, config, replace(config, loop_type="fori_loop"), alone.target)
    if whole is not None and all(e.flow and e.flow.turns for e in whole.plan.launches):
        yield whole


def _in_a_loop(problem: Problem, config: Config, alone: Plan) -> Iterator[_Judged]:
    """The plan whose loop over rows, each of which goes on from the one before, runs in the step.

    A step of one row takes what any step costs, and picks the row from a block.
    """
    axes = (a for each in alone.launches for a in each.axes)
    rows = (a.name for a in axes if a.kind == "ordered" and a.place == "dim" and a.block is None)
    if any(picks_rows(problem, name, moved=True) for name in rows):
        whole = _finished(problem, config, replace(config, loop_type="fori_loop"), alone.target)
        yield from () if whole is None else (whole,)


def _few(problem: Problem, config: Config, alone: Plan) -> Iterator[_Judged]:
    """The plans whose steps, which are few, run all iterations of some loops."""
    for blocks, loops in product(halved(alone), few_steps(alone)):
        asked = replace(config, blocks=named(alone.ir, blocks), within=loops)
        whole = _finished(problem, config, asked, alone.target)
        if whole is not None:
            yield whole


def _many(problem: Problem, config: Config, alone: Plan, guess: Estimate) -> Iterator[_Judged]:
    """The plans whose many steps run all iterations of a loop, by blocks that become smaller.

    The first of them is the one that fits; the others follow as long as each is faster than before.
    Where copies take as long as the work, nothing is gained by what that waits less.
    """
    loop = beside_each_other(alone)
    if loop is None or config.within or guess.compute <= worth.INSIDE_WORTH * guess.traffic:
        return
    found: list[_Judged] = []
    for blocks in smaller(alone):
        whole = _all_at_once(problem, config, alone, blocks, loop)
        if whole is None:
            continue
        if found and worth.SMALLER_WORTH * whole.guess.seconds >= found[-1].guess.seconds:
            break
        found.append(whole)
        if rank.products(alone.launches) >= worth.CHAINED:  # they take long to plan
            yield from found
            return
    fewer = fewer_rows(found[-1].plan) if found else None
    whole = None if fewer is None else _all_at_once(problem, config, alone, fewer, loop)
    if whole is not None and worth.FEWER_WORTH * whole.guess.seconds < found[-1].guess.seconds:
        found.append(whole)
    yield from found


def _all_at_once(
    problem: Problem, config: Config, alone: Plan, blocks: Mapping[str, int], loop: str
) -> _Judged | None:
    """The plan whose steps run all iterations of a loop, if that is no program too long."""
    asked = replace(config, blocks=named(alone.ir, blocks), within=(loop,))
    whole = _finished(problem, config, asked, alone.target)
    short = whole is not None and rank.shorter(whole.plan.launches, whole.guess.length)
    return whole if short else None


def _finished(problem: Problem, config: Config, asked: Config, target: Target) -> _Judged | None:
    """The plan that is asked for instead, as good as it can be made; None where that is refused."""
    whole = _whole(problem, asked, target)
    if isinstance(whole, Refusal) or not rank.fits(whole):
        return None
    return _sooner(problem, config, _judged(whole))


def _with_room(
    problem: Problem, asked: Config, alone: Plan, blocks: dict[str, int], held: Collection[str]
) -> Plan | None:
    """The plan with these blocks; those that are not `held` are halved while memory is short."""
    least = {n: multiple(alone.problem, n, alone.target) for n in blocks}
    least |= defaults.least_of_author(alone.problem, alone.target, blocks)
    least |= {n: blocks[n] for n in held}

    def planned(blocks: Mapping[str, int]) -> Plan | Refusal:
        others = {n: block for n, block in blocks.items() if n not in held}
        if inside.held(alone, others, held) > alone.target.vmem_physical:
            return Refusal(Rule.FORM, "no room for these blocks", None, "", Need("smaller"))
        config = replace(asked, blocks=named(alone.ir, blocks))
        return _whole(problem, config, alone.target)

    found = fitted(alone.problem, alone.target, planned, blocks, least, rank.fits)
    return found if isinstance(found, Plan) and rank.fits(found) else None


def _whole(problem: Problem, asked: Config, target: Target) -> Plan | Refusal:
    """The fastest plan with its pieces."""
    found = _fastest(problem, asked, target)
    return found if isinstance(found, Refusal) else cut(found.problem, found.plan, asked.pieces)


def _sooner(problem: Problem, config: Config, judged: _Judged) -> _Judged:
    """The plan with more blocks in flight, if that is faster beyond doubt."""
    alone, guess = judged.plan, judged.guess
    asked = sooner(alone, guess, config, config_of(alone))
    whole = None if asked is None else _whole(problem, asked, alone.target)
    if not isinstance(whole, Plan) or not rank.fits(whole):
        return judged
    found = _judged(whole)
    if worth_more(alone) * found.guess.seconds >= guess.seconds:
        return judged
    told = f"  two blocks in flight: {guess.seconds * 1e6:.4g} us"
    return replace(found, plan=replace(whole, why=(*alone.why, told)))


def _with_groups(
    problem: Problem, config: Config, target: Target, least: float | None = None
) -> Iterator[tuple[float, Plan]]:
    """The plans in which a step has all groups of a block."""
    grids = (a.name for a in problem.ir.axes if a.kind == "grid")
    yield from _with_blocks(problem, config, target, grids, of_groups, least)


def _in_tiles(
    problem: Problem, config: Config, target: Target, least: float | None = None
) -> Iterator[tuple[float, Plan]]:
    """The plans in which a step has tiles of rows that a loop takes one by one."""
    grids = (a.name for a in problem.ir.axes if a.kind == "grid")
    ordered = {f.name for f in problem.facts.axes if f.kind == "ordered"}
    found = (name for name in grids if name in ordered or picks_rows(problem, name))
    yield from _with_blocks(problem, config, target, found, tiles, least)


def _blocked_at_all(problem: Problem, config: Config, target: Target) -> Plan | None:
    """The fastest of these and of those with groups whose estimate is to be relied on, beside a
    plan that has none, or no plan; None where the config says anything.
    """
    if config != Config() or generation(target) is None:
        return None
    forms = (_in_tiles, _with_groups)
    found = (one for form in forms for one in form(problem, config, target))
    made = [one for one in found if rank.provable(one[1])]
    return min(made, key=lambda o: o[0])[1] if made else None


def _with_blocks(
    problem: Problem, config: Config, target: Target, grids: Iterable[str],
    change: Callable[[Problem, str], Problem], least: float | None,
) -> Iterator[tuple[float, Plan]]:  # fmt: skip
    """The plans in which one of these loops over single indices has a block.

    least  what a plan takes that has none: loops of other nests are planned by themselves then, and
           together where several take less; without one, all that are behind are tried with each
    """
    nests, settled = _nests(problem.ir), problem.settled
    better = dict[int, tuple[float, str]]()
    for name in (g for g in grids if g not in problem.settled):
        settled |= {name}
        others = {n for n, nest in nests.items() if least and nest != nests[name]}
        found = _planned(problem, config, target, (name,), change, settled | others)
        if found is not None:
            yield found
            if least and found[0] < min(least, better.get(nests[name], (least, ""))[0]):
                better[nests[name]] = found[0], name
    if len(better) > 1:
        names = tuple(name for _, name in better.values())
        found = _planned(problem, config, target, names, change, frozenset(nests))
        yield from [found] if found else []


def _nests(ir: KernelIR) -> dict[str, int]:
    """In which of the loops in a row every loop is."""
    return {loop.axis: n for n, nest in enumerate(ir.body) for loop in every_loop((nest,))}


def _planned(
    problem: Problem, config: Config, target: Target, names: tuple[str, ...],
    change: Callable[[Problem, str], Problem], settled: frozenset[str],
) -> tuple[float, Plan] | None:  # fmt: skip
    """The plan in which these loops have blocks, and none of those that are settled gets one."""
    made = attempted(lambda: reduce(change, names, problem))
    if isinstance(made, Refusal):
        return None
    found = plan(replace(made, settled=settled), config, target)
    if isinstance(found, Refusal):
        return None
    groups = tuple((name, dict(found.blocks)[name]) for name in names)
    return _seconds(at_once(found)), replace(found, groups=groups)


def _in_boxes(problem: Problem, config: Config, alone: Plan) -> Iterator[tuple[float, Plan]]:
    """The plans in which a step moves the rows of all groups of a block.

    Where one or few steps move everything, nothing comes while another goes: halves may be faster.
    Beside other forms the whole ones count: by 7x's schedules halves gain less than is estimated.
    """
    for axis in (a for a in problem.ir.axes if a.kind == "grid"):
        blocks, made = attempted(partial(blocks_in_boxes, problem, axis.name, alone.target)), []
        for sizes in () if isinstance(blocks, Refusal) else with_halves(blocks):
            groups = {axis.name: sizes[axis.name]}
            found = _of_groups(problem, replace(config, blocks=sizes), alone.target, groups)
            if isinstance(found, Plan):
                seconds = _seconds(found)
                told = f"blocks of rows that are moved together: {seconds * 1e6:.4g} us"
                made.append((seconds, replace(found, config=config, why=(told,))))
        yield from [(made[0][0], min(made, key=lambda o: o[0])[1])] if made else []


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


def default_config(problem: Problem, target: Target) -> Config:
    """The config that `plan` uses when none is given."""
    return config_of(allowed(plan(problem, Config(), target)))


def config_of(chosen: Plan) -> Config:
    """The config that says what was chosen."""
    sizes_of = dict(chosen.blocks)
    blocks = named(chosen.ir, sizes_of) | dict(chosen.groups)
    used = chosen.config
    return Config(blocks, loop_type=used.loop_type, within=used.within, buffers=used.buffers)
