"""Which variables are read later: written as code, with the loop or `if` looked at marked."""

from __future__ import annotations

import ast
import textwrap

import pytest

from tilelang.frontend.liveness import assigned, liveness, reads


def _function(body):
    return ast.parse("def f():\n" + textwrap.indent(textwrap.dedent(body), "    ")).body[0]


def _first(function, kind):
    return next(n for n in ast.walk(function) if isinstance(n, kind))


def _carried(body):
    function = _function(body)
    loop, live = _first(function, ast.For), liveness(function)
    return [n for n in live.assigned[loop] if n in live.again[loop]]


CARRIED = {
    "read after the loop": ("for i in r:\n    a = i\nuse(a)", ["a"]),
    "read by the next iteration": ("for i in r:\n    a = a + i", ["a"]),
    "assigned before it is read": ("for i in r:\n    a = i\n    use(a)", []),
    "augmented": ("for i in r:\n    a += i", ["a"]),
    "read in one branch": ("for i in r:\n    if c:\n        use(a)\n    a = i", ["a"]),
    "assigned in one branch only": (
        "for i in r:\n    if c:\n        a = i\n    use(a)",
        ["a"],
    ),
    "assigned in both branches": (
        "for i in r:\n    if c:\n        a = i\n    else:\n        a = 2\n    use(a)",
        [],
    ),
    "assigned again after the loop": ("for i in r:\n    a = i\na = 3\nuse(a)", []),
    "through an inner loop": (
        "for i in r:\n    for k in s:\n        a = a + k\n    use(a)",
        ["a"],
    ),
    "read first thing in an outer iteration": (
        "for i in r:\n    use(a)\n    for k in s:\n        a = k",
        ["a"],
    ),
    "the target is the loop's own": ("for i in r:\n    use(i)", []),
    "read by a nested function": ("g = lambda: a\nfor i in r:\n    a = i\n    g()", ["a"]),
    "a comprehension has variables of its own": ("for a in r:\n    b = [a for a in s]", []),
    "read by a return": ("for i in r:\n    a = i\nreturn a", ["a"]),
    "not read after a return": ("for i in r:\n    a = i\nreturn 1\nuse(a)", []),
    "live at a break": ("for i in r:\n    if c:\n        break\n    a = i\nuse(a)", ["a"]),
    "swapped": ("for i in r:\n    a, b = b, a", ["a", "b"]),
    "named in an expression": ("for i in r:\n    use(a := i)\nuse(a)", ["a"]),
}


@pytest.mark.parametrize("case", CARRIED)
def test_carried(case):
    body, expected = CARRIED[case]
    assert _carried(body) == expected


def test_after_an_if():
    function = _function("if c:\n    a = 1\n    b = 2\nuse(a)")
    branch, live = _first(function, ast.If), liveness(function)
    assert live.after[branch] == {"a", "use"}
    assert live.assigned[branch] == ("a", "b")


def test_assigned_skips_what_has_its_own_variables():
    body = _function("a = [b for b in c]\ndef d(): e = 1\nf = lambda g: g").body
    assert assigned(body) == ("a", "d", "f")


def test_reads_skips_parameters_of_lambdas():
    assert reads(ast.parse("lambda a, *b, c=d: a + b + e").body[0]) == {"d", "e"}
