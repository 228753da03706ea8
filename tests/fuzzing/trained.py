"""trained(program, rng) -> Program: with something more that training code has in it.

y[t] = x[t] * v[t]   ->   y[t] = x[t] * hl.detach(v[t])      no gradient passes
                     ->   y[t] = w[0, t] * w[1, t]           parts of one array
                     ->   y[t] = hl.cat([x[t], v[t]]).sum()  joins
m = max(m, x[t])     ->   m = max(m, x[t] * v[t])            maxima of what is computed
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from tests.fuzzing.changes import swapped
from tests.fuzzing.guarded import guarded
from tests.fuzzing.layered import MOST_RANK
from tests.fuzzing.meaning import DETACHED
from tests.fuzzing.program import (
    Binary,
    Chosen,
    Dot,
    Even,
    Joined,
    Let,
    Load,
    Loop,
    Masked,
    Mixed,
    Native,
    Number,
    Pick,
    Program,
    Reduce,
    Ref,
    Seen,
    Statement,
    Store,
    Tensor,
    Unary,
    Update,
    Value,
    Whole,
    fitted,
    parts,
)


def detached(program: Program, rng: random.Random) -> Program | None:
    """A value through which no gradient passes."""
    found = [v for v in _values(program.body) if not isinstance(v, Number)]
    if not found:
        return None
    value = rng.choice(found)
    held = Unary(rng.choice(DETACHED), value)
    return replace(program, body=swapped(program.body, value, held))


def planes(program: Program, rng: random.Random) -> Program | None:
    """Two arrays become parts of one, or the other part of an array is read beside its own."""
    loads = [v for v in _values(program.body) if isinstance(v, Load) and _alone(program, v)]
    if not loads:
        return None
    load = rng.choice(loads)
    own = program.tensor(load.tensor)
    others = {v.tensor for v in loads if len(v.index) == len(load.index)} - {load.tensor}
    others = {n for n in others if replace(program.tensor(n), name="", shape=()) == _bare(own)}
    place = rng.randint(0, len(load.index))
    if others and rng.random() < 0.6:
        other = rng.choice(sorted(others))
        body: Any = _renamed(program.body, {own.name: 0, other: 1}, own.name, place)
        tensors = tuple(t for t in program.tensors if t.name != other)
        return replace(program, tensors=tensors, body=body)
    body = _renamed(program.body, {own.name: 0}, own.name, place)
    first = next(p for p in parts(body) if isinstance(p, Load) and p.tensor == own.name)
    index = (*first.index[:place], Pick("", rng.choice((1, 1, 2))), *first.index[place + 1 :])
    both = Binary(rng.choice("*+-"), first, replace(first, index=index))
    return replace(program, body=swapped(body, first, both))


def joined(program: Program, rng: random.Random) -> Program | None:
    """The sum or maximum of two values, one behind the other along a whole dimension."""
    whole = {a.name for a in program.axes if a.kind == "full"}
    loads = [v for v in _values(program.body) if isinstance(v, Load)]
    found = [(v, p.axis) for v in loads for p in v.index if p.axis in whole]
    if not found:
        return None
    load, axis = rng.choice(found)
    alike = [v for v in loads if {p.axis for p in v.index} == {p.axis for p in load.index}]
    other = Binary("*", rng.choice(alike), Number(rng.choice((-1.0, 0.5))))
    pair = rng.sample((load, other), 2)
    cut = rng.choice(("", "pairs", "halves"))
    value = Joined(rng.choice(("sum", "max")), axis, pair[0], pair[1], cut)
    made = Binary(rng.choice(("+", "*", "max")), load, value)
    return replace(program, body=swapped(program.body, load, made))


def greatest(program: Program, rng: random.Random) -> Program | None:
    """A maximum of what is computed; a sum that is carried may become one."""
    values = (p for p in parts(program.body) if isinstance(p, Reduce) and not p.native)
    found: list[Any] = [v for v in values if v.op in ("max", "min") and isinstance(v.value, Load)]
    found += [u for u in parts(program.body) if isinstance(u, Update) and _adds(u)]
    if not found:
        return None
    old = rng.choice(found)
    reduced = old.value if isinstance(old, Update) else old
    new = replace(reduced, value=_computed(reduced.value, rng))
    if isinstance(old, Update):
        new = Update(old.name, "max", replace(new, op="max"))
    return replace(program, body=swapped(program.body, old, new))


def _adds(update: Update) -> bool:
    match update:
        case Update(_, "sum", Reduce("sum", _, Load(), native=False)):
            return True
        case _:
            return False


def _computed(value: Value, rng: random.Random) -> Value:
    return rng.choice(
        (
            Binary("*", value, value),
            Binary("-", Number(1.0), value),
            Unary("tanh", value),
            Binary("*", value, Unary("detached", value)),
            Binary("max", Unary("neg", value), Binary("*", value, Number(0.5))),
        )
    )


def _values(node: Any) -> Iterator[Value]:
    """The values that may be any other: not those that have to be loads."""
    match node:
        case tuple():
            for entry in node:
                yield from _values(entry)
        case Loop():
            yield from _values(node.body)
        case Let() | Update() | Store() | Seen() | Mixed():
            yield from _valued(node.value)
        case Unary() if node.op not in DETACHED:
            yield from _valued(node.value)
        case Reduce() if not node.native:
            yield from _valued(node.value)
        case Binary() | Dot() | Even() | Joined() | Chosen():
            yield from (*_valued(node.left), *_valued(node.right))
        case _:
            return


def _valued(value: Value) -> Iterator[Value]:
    if isinstance(value, Load | Ref | Binary | Unary | Dot | Reduce):
        yield value
    yield from _values(value)


def _alone(program: Program, load: Load) -> bool:
    """Whether an input is only read, as it is, and may have a dimension more."""
    tensor = program.tensor(load.tensor)
    if tensor.role != "input" or tensor.dtype != "float32" or len(load.index) >= MOST_RANK:
        return False
    bound = [p for p in parts(program.body) if isinstance(p, Masked | Whole | Native | Chosen)]
    return not any(isinstance(p, Load) and p.tensor == load.tensor for b in bound for p in parts(b))


def _bare(tensor: Tensor) -> Tensor:
    return replace(tensor, name="", shape=())


def _renamed(node: Any, plane: Mapping[str, int], name: str, place: int) -> Any:
    """Every load of these arrays is one of a part of `name`."""
    match node:
        case tuple():
            return tuple(_renamed(entry, plane, name, place) for entry in node)
        case Load(tensor, index) if tensor in plane:
            return Load(name, (*index[:place], Pick("", plane[tensor]), *index[place:]))
        case _ if isinstance(node, Statement | Value):
            inner = {f.name: getattr(node, f.name) for f in fields(node)}
            made = {n: _renamed(own, plane, name, place) for n, own in inner.items()}
            return replace(node, **made)
        case _:
            return node


GUARDED = 0.7  # of the programs with a softmax; some are already
Change = Callable[[Program, random.Random], Program | None]
CHANGES: Mapping[str, Change] = {
    "detached": detached,
    "planes": planes,
    "joined": joined,
    "greatest": greatest,
}


def trained(program: Program, rng: random.Random) -> tuple[Program, tuple[str, ...]]:
    """The program with one or two of them where it has a place for them, and their names."""
    names = rng.sample(list(CHANGES), rng.choice((0, 1, 1, 2, 2)))
    made: list[str] = []
    for name in names:
        found = CHANGES[name](program, rng)
        if found is not None:
            program, made = fitted(found), [*made, name]
    if rng.random() < GUARDED:
        found = guarded(program, rng)
        made += ["guarded"] if found != program else []
        program = found
    return program, tuple(made)
