"""Writer: expression trees to text, with only the parentheses and line breaks that are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

WIDTH = 100


@dataclass(frozen=True)
class Atom:
    """Text that needs no parentheses: a name, a number, a subscript, a call."""

    text: str


@dataclass(frozen=True)
class Call:
    """`fn(args)`; `fn` may be a method of a node."""

    fn: str
    args: tuple[Node, ...]
    of: Node | None = None  # method call: of.fn(args)


@dataclass(frozen=True)
class Attribute:
    """`of.name`"""

    of: Node
    name: str


@dataclass(frozen=True)
class Subscript:
    """`of[places]`"""

    of: Node
    places: str


@dataclass(frozen=True)
class Infix:
    """`left op right`, left-associative; `level` is Python's precedence, higher binds tighter."""

    op: str
    left: Node
    right: Node
    level: int


@dataclass(frozen=True)
class Prefix:
    """`op operand`"""

    op: str
    operand: Node
    level: int


@dataclass(frozen=True)
class Keyword:
    """`name=value` in a call."""

    name: str
    value: Node


@dataclass(frozen=True)
class Group:
    """A tuple or list display."""

    items: tuple[Node, ...]
    brackets: str = "()"


@dataclass(frozen=True)
class Tuple:
    """Values without brackets, on the right of a tuple assignment."""

    items: tuple[Node, ...]


Node = Atom | Call | Attribute | Subscript | Infix | Prefix | Keyword | Group | Tuple

LEVELS = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4, "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6}
COMPARE = 0
PREFIX, POWER, TIGHT = 7, 8, 9


def level(node: Node) -> int:
    """How tightly the node's outermost operator binds."""
    match node:
        case Infix() | Prefix():
            return node.level
        case Tuple():
            return COMPARE - 1
        case Atom(text) if text.startswith("-"):
            return PREFIX
        case _:
            return TIGHT


LEAST = str(-(2**31))


def infix(op: str, left: Node, right: Node) -> Infix:
    """`left op right`; what a negative number is added to, it is subtracted from.

    The least int32 has no other sign.
    """
    match op, right:
        case "+", Atom(text) if text.startswith("-") and text != LEAST:
            op, right = "-", Atom(text[1:])
        case _:
            pass
    return Infix(op, left, right, LEVELS.get(op, COMPARE))


def _infix(op: str) -> Callable[[Node, Node], Node]:
    return lambda a, b: infix(op, a, b)


def _power(base: Node, exponent: Node) -> Node:
    apart = Call("", (base,)) if isinstance(base, Prefix | Infix) else base
    return Infix("**", apart, exponent, POWER)


_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "logical_and": "&", "logical_or": "|", "logical_xor": "^",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
    "shift_left": "<<", "shift_right": ">>",
}  # fmt: skip
# op -> nodes of the operands -> node: what Python has a sign for, where it means the same.
OPERATORS: dict[str, Callable[..., Node]] = {
    **{op: _infix(sign) for op, sign in _SIGNS.items()},
    "neg": lambda a: Prefix("-", a, PREFIX),
    "pow": _power,
}


def flat(node: Node) -> str:
    """The node on one line."""
    match node:
        case Atom(text):
            return text
        case Keyword(name, value):
            return f"{name}={flat(value)}"
        case Tuple(items):
            return ", ".join(map(flat, items))
        case Group(items, brackets):
            inner = ", ".join(map(flat, items))
            comma = "," if brackets == "()" and len(items) == 1 else ""
            return f"{brackets[0]}{inner}{comma}{brackets[1]}"
        case Call(fn, args, of):
            start = "" if of is None else f"{_operand(of, TIGHT)}."
            return f"{start}{fn}({', '.join(map(flat, args))})"
        case Attribute(of, name):
            return f"{_operand(of, TIGHT)}.{name}"
        case Subscript(of, places):
            return f"{_operand(of, TIGHT)}[{places}]"
        case Prefix(op, operand, own):
            return f"{op}{_operand(operand, own)}"
        case Infix(op, left, right, own):
            chained = own == COMPARE
            first = _operand(left, own + 1 if chained else own)
            return f"{first} {op} {_operand(right, own + 1)}"
        case _:
            assert_never(node)


def _operand(node: Node, need: int) -> str:
    return f"({flat(node)})" if level(node) < need else flat(node)


def lines(node: Node, indent: int, start: int, end: int = 0) -> list[str]:
    """The node over as many lines as it needs.

    `start` columns of the first line and `end` of the last are taken; later lines begin at
    `indent`.
    """
    text = flat(node)
    if indent + start + len(text) + end <= WIDTH:
        return [text]
    match node:
        case Call(fn, args, of) if of is not None and indent + start + len(flat(of)) > WIDTH - 20:
            return _in_parentheses(of, f".{fn}({', '.join(map(flat, args))})", indent)
        case Attribute(of, name):
            return _in_parentheses(of, f".{name}", indent)
        case Subscript(Infix() | Prefix() as of, places):
            return _in_parentheses(of, f"[{places}]", indent)
        case Subscript(of, places):
            broken = lines(of, indent, start, end + len(places) + 2)
            return [*broken[:-1], f"{broken[-1]}[{places}]"]
        case Call(fn, args, of) if args:
            head = "" if of is None else f"{_operand(of, TIGHT)}."
            inner = _items(args, indent)
            if not head + fn:  # parentheses, not a call: a comma would make a tuple
                inner[-1] = inner[-1].removesuffix(",")
            return [f"{head}{fn}(", *inner, " " * indent + ")"]
        case Group(items, brackets) if items:
            inner = _items(items, indent)
            if len(items) == 1 and brackets == "()" and not inner[-1].endswith(","):
                inner[-1] += ","
            return [brackets[0], *inner, " " * indent + brackets[1]]
        case Keyword(name, value):
            first, *rest = lines(value, indent, start + len(name) + 1, end)
            return [f"{name}={first}", *rest]
        case Infix(op, left, right, own):
            return _broken_infix(op, left, right, own, indent, start)
        case _:
            return [text]


def _in_parentheses(node: Node, tail: str, indent: int) -> list[str]:
    inner = lines(node, indent + 4, 0)
    return ["(", " " * (indent + 4) + inner[0], *inner[1:], " " * indent + ")" + tail]


def _items(items: tuple[Node, ...], indent: int) -> list[str]:
    inner = indent + 4
    joined = ", ".join(map(flat, items))
    if inner + len(joined) + 1 <= WIDTH and not any(isinstance(i, Keyword) for i in items):
        return [" " * inner + joined]
    out: list[str] = []
    for item in items:
        first, *rest = lines(item, inner, 0, 1)
        out += [" " * inner + first, *rest]
        out[-1] += ","
    return out


def _broken_infix(op: str, left: Node, right: Node, own: int, indent: int, start: int) -> list[str]:
    need = own + 1 if own == COMPARE else own  # a comparison of a comparison would be a chain
    first = lines(left if level(left) >= need else Call("", (left,)), indent, start)
    tight = level(right) <= own
    second = lines(right, indent, len(op) + 1 + tight, 2 * tight)
    if tight:
        second = [f"({second[0]}", *second[1:]]
        second[-1] += ")"
    return [*first, " " * indent + f"{op} {second[0]}", *second[1:]]


def statement(target: str, node: Node, indent: int, sign: str = " = ") -> list[str]:
    """`target = node`, or just the node if target is empty, broken to the line width."""
    pad = " " * indent
    prefix = target + sign if target else ""
    text = flat(node)
    if indent + len(prefix) + len(text) <= WIDTH:
        return [pad + prefix + text]
    if isinstance(node, Tuple):
        broken = lines(Group(node.items), indent, len(prefix))
        return [pad + prefix + broken[0], *broken[1:]]
    if isinstance(node, Infix):
        inner = lines(node, indent + 4, 0)
        return [f"{pad}{prefix}(", " " * (indent + 4) + inner[0], *inner[1:], f"{pad})"]
    first, *rest = lines(node, indent, len(prefix))
    return [pad + prefix + first, *rest]


def signature(name: str, params: list[str], kind: str = "", doc: str = "") -> list[str]:
    """`def name(params) -> kind:`, a line for every parameter if it is long; one line of `doc`."""
    end = f") -> {kind}:" if kind else "):"
    head = f"def {name}({', '.join(params)}{end}"
    heads = [head] if len(head) <= WIDTH else [f"def {name}(", *(f"    {p}," for p in params), end]
    first = doc.strip().partition("\n")[0]
    short = first if len(first) <= 88 else f"{first[:85]}..."
    return [*heads, f'    """{short}"""'] if first else heads


def inner(target: str, node: Node, depth: int, sign: str = " = ") -> list[str]:
    """A statement without its indentation, broken for a place `depth` columns in."""
    return [line[depth:] for line in statement(target, node, depth, sign)]


def filled(template: str, words: Mapping[str, str], **parts: list[str]) -> list[str]:
    """The lines of a template: `{name}` is a word, and a line `@name` the lines of a part."""
    out: list[str] = []
    for line in template.strip("\n").splitlines():
        text = line.lstrip()
        pad = line[: len(line) - len(text)]
        own = parts[text[1:]] if text.startswith("@") and text[1:] in parts else [text]
        out += [pad + each if each else "" for each in own]
        if own == [text]:
            out[-1] = out[-1].format(**words)
    return out
