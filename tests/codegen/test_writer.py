"""Printed expressions mean what their trees say, on one line and broken over several."""

from __future__ import annotations

import ast
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelang.codegen.pallas.emit.ops import ELEMENTWISE, number
from tilelang.codegen.writer import (
    WIDTH,
    Atom,
    Attribute,
    Call,
    Group,
    Keyword,
    Node,
    Prefix,
    Subscript,
    flat,
    infix,
    statement,
)

INFIX = ("+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>", "<", "==", "!=")

ATOMS = ("x", "tm_mask", "a_rather_long_name_of_a_value", "offsets[g + 1]", "7", "-1.5", "-jnp.inf")
KINDS = ("infix", "infix", "pow", "minus", "not", "call", "method", "turned", "keyword",
         "tuple", "list", "widened")  # fmt: skip


@st.composite
def nodes(draw: st.DrawFn, depth: int = 4) -> Node:
    """A tree of every kind of node; a method belongs to a name, never to a number."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return Atom(draw(st.sampled_from(ATOMS)))
    kind = draw(st.sampled_from(KINDS))
    parts = tuple(draw(nodes(depth - 1)) for _ in range(draw(st.integers(1, 3))))
    first, last = parts[0], parts[-1]
    match kind:
        case "infix":
            return infix(draw(st.sampled_from(INFIX)), first, last)
        case "pow":
            return ELEMENTWISE["pow"](first, last)
        case "minus" | "not":
            return Prefix("-" if kind == "minus" else "~", first, 7)
        case "call":
            return Call("jnp.where", parts)
        case "method":
            of = Atom("x") if first == Atom("7") else first
            return Call("astype", (last,), of=of)
        case "turned":
            return Attribute(Atom("x") if first == Atom("7") else first, "T")
        case "widened":
            return Subscript(Atom("x") if first == Atom("7") else first, ":, None")
        case "keyword":
            return Call("jnp.sum", (*parts, Keyword("axis", last)))
        case _:
            return Group(parts, "()" if kind == "tuple" else "[]")


def explicit(node: Node) -> str:
    """The tree with parentheses around everything, printed without any rule."""
    match node:
        case Atom(text):
            return f"({text})"
        case Keyword(name, value):
            return f"{name}={explicit(value)}"
        case Attribute(of, name):
            return f"{explicit(of)}.{name}"
        case Subscript(of, places):
            return f"{explicit(of)}[{places}]"
        case Group(items, brackets):
            inner = "".join(f"{explicit(i)}, " for i in items)
            return f"{brackets[0]}{inner}{brackets[1]}"
        case Call(fn, args, of):
            inner = ", ".join(map(explicit, args))
            head = "" if of is None else f"{explicit(of)}."
            return f"{head}{fn}({inner})"
        case Prefix(op, operand):
            return f"({op}{explicit(operand)})"
        case _:
            return f"({explicit(node.left)} {node.op} {explicit(node.right)})"


def tree(text: str) -> str:
    return ast.dump(ast.parse(text))


@given(nodes())
def test_flat_text_parses_to_the_same_tree(node: Node) -> None:
    assert tree(flat(node)) == tree(explicit(node))


@given(nodes(), st.sampled_from([0, 4, 8, 16]), st.sampled_from(["", "y_ref[...]", "value"]))
def test_broken_statements_parse_to_the_same_tree(node: Node, indent: int, target: str) -> None:
    text = "\n".join(line[indent:] for line in statement(target, node, indent))
    expected = f"{target} = {explicit(node)}" if target else explicit(node)
    assert tree(text) == tree(expected)


@given(nodes(), st.sampled_from([0, 4, 8]))
def test_lines_are_cut_where_a_cut_is_possible(node: Node, indent: int) -> None:
    for line in statement("y_ref[...]", node, indent):
        assert line == line.rstrip()
        assert line.startswith(" " * indent)


def test_a_short_statement_stays_on_one_line() -> None:
    node = infix("+", Atom("x"), infix("*", Atom("a"), Atom("b")))
    assert statement("y", node, 4) == ["    y = x + a * b"]


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (infix("*", infix("+", Atom("a"), Atom("b")), Atom("c")), "(a + b) * c"),
        (infix("-", Atom("a"), infix("-", Atom("b"), Atom("c"))), "a - (b - c)"),
        (infix("-", infix("-", Atom("a"), Atom("b")), Atom("c")), "a - b - c"),
        (infix("+", Atom("a"), Atom("-3")), "a - 3"),
        (infix("+", Atom("a"), Atom("-2147483648")), "a + -2147483648"),
        (infix("-", Atom("a"), Atom("-3")), "a - -3"),
        (infix("&", infix("<", Atom("a"), Atom("b")), Atom("m")), "(a < b) & m"),
        (infix("==", infix("==", Atom("a"), Atom("b")), Atom("c")), "(a == b) == c"),
        (Prefix("-", infix("*", Atom("a"), Atom("b")), 7), "-(a * b)"),
        (ELEMENTWISE["pow"](Atom("-2.0"), Atom("x")), "(-2.0) ** x"),
        (ELEMENTWISE["pow"](Prefix("-", Atom("x"), 7), Atom("2")), "(-x) ** 2"),
        (ELEMENTWISE["pow"](Atom("a"), ELEMENTWISE["pow"](Atom("b"), Atom("c"))), "a ** (b ** c)"),
        (Call("astype", (Atom("jnp.int32"),), of=Atom("-1.0")), "(-1.0).astype(jnp.int32)"),
        (Attribute(infix("&", Atom("a"), Atom("b")), "T"), "(a & b).T"),
        (Attribute(Atom("a"), "T"), "a.T"),
        (Group((Atom("a"),)), "(a,)"),
    ],
)
def test_parentheses_stand_only_where_they_are_needed(node: Node, text: str) -> None:
    assert flat(node) == text


def test_long_calls_break_between_arguments_and_stay_in_the_width() -> None:
    args = tuple(Atom(f"argument_number_{i}_of_many") for i in range(6))
    lines = statement("target", Call("jnp.concatenate", (Group(args, "[]"),)), 8)
    assert max(map(len, lines)) <= WIDTH
    assert lines[0] == "        target = jnp.concatenate("
    assert lines[-1] == "        )"


def test_what_is_turned_breaks_like_what_is_not() -> None:
    terms = [infix("<", Atom(f"begin_of_range_{i}"), Atom(f"end_of_range_{i}")) for i in range(4)]
    turned = Attribute(reduce(lambda a, b: infix("&", a, b), terms), "T")
    alone = statement("target", turned, 8)
    assert max(map(len, alone)) <= WIDTH
    assert (alone[0], alone[-1]) == ("        target = (", "        ).T")
    among = statement("", Call("group_sums", (turned, Atom("rows"))), 8)
    assert max(map(len, among)) <= WIDTH
    assert ast.unparse(ast.parse("\n".join(among).strip())) == flat(
        Call("group_sums", (turned, Atom("rows")))
    )


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0, "float32", "0.0"),
        (1, "bool", "True"),
        (True, "int32", "True"),
        (2.0, "int32", "2"),
        (float("inf"), "bfloat16", "jnp.inf"),
        (float("-inf"), "float32", "-jnp.inf"),
        (float("nan"), "float32", "jnp.nan"),
        (1e-45, "float32", "1e-45"),
    ],
)
def test_numbers(value: float, dtype: str, text: str) -> None:
    assert number(value, dtype).text == text
