"""Where things stand: lines and columns of the author's file, and functions found in it."""

from __future__ import annotations

import ast
import functools

import pytest

import tilelang.language as hl
from tilelang.errors import ParseError
from tilelang.frontend import parse, source
from tilelang.frontend.source import read
from tilelang.ir import Assign, Load, Loop, Store, TensorSpec, statements, walk

X = {"x": TensorSpec((40, 64), "float32")}


def _under(loc):
    return loc.text[loc.col : loc.end_col]


def kernel(x):
    """Doc."""
    y = hl.empty_like(x)
    for tm, tn in hl.tile(
        [40, 64],
    ):
        größe = "ä" and x[tm, tn] + 1.0
        y[tm, tn] = größe * 2
    return y


def _found(kind):
    return next(s for s in statements(parse(kernel, X).body) if isinstance(s, kind))


def test_a_statement():
    stmt = _found(Assign)
    assert _under(stmt.loc) == 'größe = "ä" and x[tm, tn] + 1.0'
    assert stmt.user == "größe"


def test_an_expression_after_letters_of_two_bytes():
    (load,) = [e for e in walk(_found(Assign).value) if isinstance(e, Load)]
    assert load.loc is not None and _under(load.loc) == "x[tm, tn]"
    assert _under(_found(Assign).value.loc) == "x[tm, tn] + 1.0"


def test_a_store():
    assert _under(_found(Store).loc) == "y[tm, tn] = größe * 2"


def test_several_lines_are_marked_on_the_first():
    assert _under(_found(Loop).loc) == "for tm, tn in hl.tile("


def test_tensors_and_the_kernel():
    ir = parse(kernel, X)
    assert _under(ir.tensor("x").loc) == "x"
    assert _under(ir.tensor("y").loc) == "hl.empty_like(x)"
    assert _under(ir.loc) == "def kernel(x):"
    assert ir.doc == "Doc." and ir.name == "kernel"


def test_line_numbers():
    first = kernel.__code__.co_firstlineno
    ir = parse(kernel, X)
    assert ir.loc.line == first and ir.axis("tm").loc.line == first + 3
    assert ir.loc.filename == __file__


def test_a_method_in_a_class_and_a_decorated_function():
    class Kernels:
        @staticmethod
        @functools.wraps(kernel)
        def inner(x):
            return x

    inner = Kernels.__dict__["inner"].__func__
    inner.__name__ = "inner"
    del inner.__wrapped__
    ir = parse(inner, X)
    assert _under(ir.loc) == "def inner(x):" and ir.returns == ("x",)


def test_lambdas_are_told_apart():
    add, multiply = (lambda v: v + 1), (lambda v: v * 2)
    pair = [
        lambda v: v - 3,
        lambda a, b=4: a + b,
    ]
    for fn, text in [
        (add, "v + 1"),
        (multiply, "v * 2"),
        (pair[0], "v - 3"),
        (pair[1], "a + b"),
    ]:
        source, node = read(fn, {})
        assert _under(source.loc(node.body)) == text


def test_a_lambda_in_another_is_itself():
    times = lambda a: lambda v: v * a  # noqa: E731
    taken = (lambda f: f)(lambda v: v - 1)
    made = (lambda a: (lambda v, b=a + 1: v * b + a, lambda v: v))(2)
    for fn, text in [
        (times, "lambda v: v * a"),
        (times(3), "v * a"),
        (taken, "v - 1"),
        (made[0], "v * b + a"),
        (made[1], "v"),
    ]:
        source, node = read(fn, {})
        assert _under(source.loc(node.body)) == text


def test_a_lambda_without_source():
    fn = eval("lambda v: v + 1")
    with pytest.raises(ParseError, match="the source of <lambda> is not available"):
        read(fn, {})


@pytest.mark.parametrize("parsed_before", [False, True])
def test_a_file_that_changed(tmp_path, parsed_before):
    path = tmp_path / "changed.py"
    path.write_text("def one(x):\n    return x\n")
    space: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    if parsed_before:
        assert parse(space["one"], {"x": TensorSpec((4,), "float32")}).returns == ("x",)
    path.write_text("def another(x):\n    return x\n")
    with pytest.raises(ParseError) as caught:
        parse(space["one"], {"x": TensorSpec((4,), "float32")})
    assert caught.value.what == "the source of one is not found where it was"
    assert "was changed after it was imported" in caught.value.hint


def test_a_spurious_failure_of_the_parser_is_no_failure(monkeypatch):
    """CPython's fault 106905: the same text parses when it is asked again."""
    real, calls = ast.parse, []

    def flaky(text):
        calls.append(text)
        if len(calls) == 1:
            raise SystemError("AST constructor recursion depth mismatch (before=90, after=65)")
        return real(text)

    monkeypatch.setattr(source, "_FOUND", {})
    monkeypatch.setattr(ast, "parse", flaky)
    _, found = read(kernel, {})
    assert found.name == "kernel" and calls[0] == calls[1]


def test_arguments_of_other_types_read_no_text_again(monkeypatch):
    parse(kernel, X)
    monkeypatch.setattr(ast, "parse", None)
    monkeypatch.setattr(source, "is_of", None)
    assert parse(kernel, {"x": TensorSpec((40, 64), "bfloat16")}).tensor("y").dtype == "bfloat16"
