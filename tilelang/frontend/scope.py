"""What is known at one place of the program while it is evaluated: names, loops, the condition.

    evaluate(here, node) -> a host value, an Expr, or a handle of a tensor or a tile
    execute(here, body)  -> None, or why the block was left

Every file of this package says what some kinds of syntax mean, in a table node type -> function;
`Here` carries the union of them, so that the files need not import each other.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, TypeAlias

from .. import ir
from ..errors import Loc, ParseError
from ..ir.names import fresh
from ..language.values import EXPRS
from ..texts import Texts
from .instead import alike, in_language
from .liveness import Live
from .observed import name_in_module, variable_around
from .source import Function, SourceLines

DEEPEST = 40  # calls within calls that are inlined
LEAVES = (ir.Var, ir.Const, ir.GridIndex, ir.TileIndex, ir.TileScalar)  # need no name of their own


@dataclass(frozen=True)
class Bound:
    """The value of a name and where it was assigned."""

    value: object
    loc: Loc


@dataclass(frozen=True)
class Missing:
    """A name that has no value here, and why: to read it is an error."""

    what: str
    hint: str


@dataclass(frozen=True)
class Frame:
    """One function being evaluated.

    names  its variables so far
    own    every name that it assigns somewhere, which therefore is not one of `outer`
    loops  names that loops alone assign, with the line of the first such loop
    outer  looks a name up in the enclosing functions, the globals and the builtins; KeyError
    """

    source: SourceLines
    names: dict[str, Bound | Missing]
    own: frozenset[str]
    loops: Mapping[str, int]
    outer: Callable[[str], object]
    live: Live


@dataclass(frozen=True)
class Draft:
    """The kernel so far.

    texts        the files that functions are read from
    names        names in use, of tensors, axes and values
    wishes       names with a number of ours -> what was wished for
    frameworks   parameter -> where it comes from: "torch", "jax", "numpy"
    definitions  Assign.name -> value
    inits        Carry.out -> (Carry.init, the condition without which its loop does not run)
    extents      axis -> the least length of the dimensions that it certainly indexes
    perhaps      the same of what the branch of an `if` that is being read indexes
    indexed      axis -> (length of a dimension that the whole tile indexes, what that is)
    numbered     axis -> (a number of its tiles that is used, as in "t.id", and where)
    shifted      axis -> where a tile of it is shifted by an offset
    early        tensors that are read before the loops, and where
    again        tensors that an index is computed from, and where it is used
    stores       the arrays that were stored to so far
    loads        id of a load -> the load and where it was written, or the name that it got there
    made         id of a list or dict that the kernel made -> (it, the loops around its making)
    functions    the functions that were read, by their code
    """

    texts: Texts
    tensors: dict[str, ir.Tensor] = field(default_factory=dict)
    axes: dict[str, ir.Axis] = field(default_factory=dict)
    blocks: dict[str, ir.BlockSize] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    wishes: dict[str, str] = field(default_factory=dict)
    frameworks: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, ir.Expr] = field(default_factory=dict)
    inits: dict[str, tuple[ir.Expr, ir.Expr | None]] = field(default_factory=dict)
    extents: dict[str, int] = field(default_factory=dict)
    perhaps: dict[str, int] = field(default_factory=dict)
    indexed: dict[str, tuple[int, str]] = field(default_factory=dict)
    numbered: dict[str, tuple[str, Loc]] = field(default_factory=dict)
    shifted: dict[str, Loc] = field(default_factory=dict)
    early: list[tuple[str, Loc]] = field(default_factory=list)
    again: list[tuple[str, Loc]] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    loads: dict[int, Written | ir.Var] = field(default_factory=dict)
    made: dict[int, tuple[object, object]] = field(default_factory=dict)
    functions: dict[CodeType, Function] = field(default_factory=dict)

    def unique(self, name: str) -> str:
        """The name if it is free, else with the first free number; it is taken from now on."""
        found = fresh(name, self.names)
        self.names.add(found)
        if found != name:
            self.wishes[found] = name
        return found

    def by_authors(self, text: str) -> str:
        """A text about values with their authors' names; axes have numbers in configs, too."""
        own = {n: wish for n, wish in self.wishes.items() if n not in self.axes}
        return re.sub(r"\w+", lambda word: own.get(word[0], word[0]), text) if own else text

    def root(self, name: str) -> ir.Tensor:
        """The array in memory that a tensor, or a view of one, names."""
        tensor = self.tensors[name]
        return tensor if tensor.view is None else self.root(tensor.view.source)


@dataclass(frozen=True)
class Here:
    """One place of the program.

    rules      what each kind of syntax means
    into       where its statements go
    loops      the axes around it; none: host code
    condition  a dynamic `if` around it, inside the innermost loop
    wish       what a tensor that is made here should be called
    whole      the expression that a statement evaluates and nothing else: there a call may store
    calls      how deep the function is inlined
    """

    draft: Draft
    frame: Frame
    rules: Rules
    into: list[ir.Stmt]
    loops: tuple[str, ...] = ()
    condition: ir.Expr | None = None
    wish: str | None = None
    whole: ast.expr | None = None
    calls: int = 0

    def loc(self, node: ast.AST, last: ast.AST | None = None) -> Loc:
        return self.frame.source.loc(node, last)


@dataclass(frozen=True)
class Written:
    """Where a load was written: behind which statement, and after how many stores."""

    load: ir.Load
    here: Here
    behind: ir.Stmt | None
    stores: int
    loc: Loc


Rules: TypeAlias = Mapping[type[ast.AST], Callable[[Here, Any], Any]]


@dataclass(frozen=True)
class Left:
    """Why a block was left before its end: "return", "break" or "continue"."""

    how: str
    value: object
    loc: Loc


@dataclass(frozen=True)
class Nested:
    """A function defined in the kernel; its variables are those of `frame` when it is called."""

    name: str
    node: ast.FunctionDef | ast.Lambda
    frame: Frame
    defaults: Mapping[str, object]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        hint = "call it directly, in a loop or a comprehension"
        raise ParseError(f"{self.name}, defined in the kernel, is called by host code", hint=hint)


@dataclass(frozen=True)
class Arguments:
    """The evaluated arguments of a call; `text` is how the author wrote the function."""

    args: list[Any]
    kwargs: dict[str, Any]
    loc: Loc
    text: str


def evaluate(here: Here, node: ast.expr) -> Any:
    """The value of an expression."""
    return _rule(here, node)(here, node)


def execute(here: Here, body: Sequence[ast.stmt]) -> Left | None:
    """Runs statements until the end or until one leaves the block."""
    for stmt in body:
        if (left := _rule(here, stmt)(here, stmt)) is not None:
            return left
    return None


def _rule(here: Here, node: ast.AST) -> Callable[[Here, Any], Any]:
    rule = here.rules.get(type(node))
    if rule is None:
        raise ParseError(f"{type(node).__name__} is not in the language", here.loc(node))
    return rule


# ---------------------------------------------------------------- looking names up


def lookup(here: Here, node: ast.Name) -> object:
    """The value of a name."""
    try:
        return variable(here.frame, node.id)
    except ParseError as error:
        raise ParseError(error.what, here.loc(node), error.hint) from None


def variable(frame: Frame, name: str) -> object:
    """The value of a variable of the frame or of what is around it; ParseError without a place."""
    match frame.names.get(name):
        case Bound(value):
            return value
        case Missing(what, hint):
            raise ParseError(what, hint=hint)
        case _:
            pass  # not in this frame
    if name in frame.own:
        hint = f"give it a value before, such as {name} = hl.zeros([...])"
        if name in frame.loops:
            hint = f"the loop of line {frame.loops[name]} assigns it: read it inside of it"
        raise ParseError(f"{name} is read before it is assigned", hint=hint)
    try:
        return frame.outer(name)
    except KeyError:
        hint = in_language(name) or alike(name, [*frame.names, *frame.own])
        raise ParseError(f"{name} is not defined", hint=hint) from None


def around(fn: FunctionType) -> Callable[[str], object]:
    """Looks a name up as `fn` does: its closure, its module, the builtins."""
    cells = {name: place for place, name in enumerate(fn.__code__.co_freevars)}

    def look(name: str) -> object:
        if name in cells:
            try:
                return variable_around(fn, cells[name])
            except ValueError:
                raise ParseError(f"{name} is read before it is assigned") from None
        try:
            return name_in_module(fn, name)
        except KeyError:
            return vars(builtins)[name]

    return look


# ---------------------------------------------------------------- naming values


def bind(here: Here, user: str, value: object, loc: Loc) -> None:
    """Gives a variable a value."""
    here.frame.names[user] = Bound(named(here, user, value, loc), loc)


def named(here: Here, user: str, value: object, loc: Loc) -> object:
    """The value as a variable holds it: every computed part is assigned to a name of its own.

    v = x[tm] * 2      Assign("v", mul(x[tm], 2)) and the variable holds Var("v")
    a, b = pair        each of them; a name, a number or an index needs no Assign
    """
    if isinstance(value, EXPRS):
        return assign(here, user, value, loc)
    if type(value) is list and any(isinstance(v, EXPRS) for v in value):
        for place, item in enumerate(value):
            value[place] = named(here, f"{user}_{place}", item, loc)
    elif isinstance(value, tuple) and any(isinstance(v, EXPRS) for v in value):
        return _rebuilt(value, [named(here, f"{user}_{i}", v, loc) for i, v in enumerate(value)])
    elif type(value) is dict:
        for key, item in value.items():
            whole = f"{user}_{key}" if str(key).isidentifier() else user
            value[key] = named(here, whole, item, loc)
    return value


def assign(here: Here, user: str, value: ir.Expr, loc: Loc) -> ir.Expr:
    """Emits `user = value`, unless the value is a name already or this is host code."""
    if not here.loops or isinstance(value := as_written(here, value), LEAVES):
        return value
    made = _assignment(here.draft, user, value, loc)
    here.into.append(made)
    return ir.Var(made.name, value.type)


def _assignment(draft: Draft, user: str, value: ir.Expr, loc: Loc) -> ir.Assign:
    name = draft.unique(user)
    draft.definitions[name] = value
    return ir.Assign(name, value, loc, user)


# ---------------------------------------------------------------- when memory is read


def loaded(here: Here, load: ir.Load, loc: Loc) -> ir.Load:
    """The load, which is written here; what host code reads is not stored to at all."""
    if here.loops:
        behind = here.into[-1] if here.into else None
        here.draft.loads[id(load)] = Written(load, here, behind, len(here.draft.stores), loc)
    return load


def as_written(here: Here, expr: ir.Expr) -> ir.Expr:
    """The expression, each load of which gives what was in memory where it was written.

    A load that waited in a tuple, a list or an object while its array was stored to, or that is
    used in a loop further inside, which may store to it, gets a name at its own place.
    """
    draft = here.draft

    def is_late(part: ir.Expr) -> bool:
        found = draft.loads.get(id(part))
        if not isinstance(found, Written):
            return found is not None
        around = found.here.loops
        is_stored = draft.root(found.load.tensor).name in draft.stores[found.stores :]
        return here.loops[: len(around)] == around and (is_stored or here.loops != around)

    def change(part: ir.Expr) -> ir.Expr | None:
        found = draft.loads.get(id(part)) if is_late(part) else None
        if not isinstance(found, Written):
            return found
        load, into = found.load, found.here.into
        made = _assignment(draft, load.tensor, load, found.loc)
        place = next((i + 1 for i, s in enumerate(into) if s is found.behind), 0)
        into.insert(place, made)
        name = draft.loads[id(part)] = ir.Var(made.name, load.type)
        return name

    return ir.rewrite(expr, change) if any(map(is_late, ir.walk(expr))) else expr


def settled(value: Any) -> Any:
    """What a builder made as the kernel's code sees it: a weak number is a Python number."""
    if isinstance(value, ir.Const) and value.weak:
        return value.value
    return _rebuilt(value, [settled(v) for v in value]) if isinstance(value, tuple) else value


def _rebuilt(value: tuple, items: list[object]) -> tuple:
    make = getattr(type(value), "_make", type(value))  # a named tuple keeps its class
    return make(items)
