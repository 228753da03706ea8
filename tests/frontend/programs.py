"""Random kernels over integers that mean the same when Python runs them as they stand.

Loops, branches, carried and forgotten variables, stores that are read again, static loops that are
left early, helpers: with hl.grid as range and arrays of NumPy, Python itself says what is right.
"""

from __future__ import annotations

import random
import types
from collections.abc import Iterator

import numpy as np

NAMES = "abcd"
HEADER = """
import tilelang.language as hl


def clipped(v, low=-9):
    w = min(v, 9)
    if w < low:
        w = low
    return w


def picked(v, low=-9):
    if v > 5:
        return v - 9
    if v < low:
        v = v + 1
    else:
        v = v + low
        if v == 0:
            return low
        return v - 1
    return v + 2


def stored(z, at, v):
    z[at] = z[at] + v
    return v % 5


"""


class Writer:
    """Writes one kernel from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loops = 0

    def kernel(self, name: str) -> str:
        body = list(self.block(8, 0, ["i"], static=False))
        lines = [
            f"def {name}(x, y, z):",
            "    d = 1",
            "    for i in hl.grid(6):",
            *[f"        {n} = x[i] + {place}" for place, n in enumerate("abc")],
            "        pair = (x[i], [x[i] + 3])",
            *[f"        {line}" for line in body],
            "        y[i] = a + 3 * b - c + d + pair[0] - 2 * pair[1][0]",
        ]
        return "\n".join(lines) + "\n\n\n"

    def block(self, size: int, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        for _ in range(self.random.randint(1, max(size - 2 * depth, 1))):
            yield from self.statement(depth, indices, static)

    def statement(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        kinds = ["assign"] * 5 + ["augment", "swap", "store", "add", "helper", "condition", "pair"]
        if depth < 3:
            kinds += ["if"] * 3 + ["grid"] * 2 + ["ragged", "static", "list", "counted"]
        kind = self.random.choice(kinds)
        if static and self.random.random() < 0.1:
            kind = "leave"
        yield from getattr(self, kind)(depth, indices, static)

    # ------------------------------------------------------------ expressions

    def name(self) -> str:
        return self.random.choice(NAMES)

    def expr(self, indices: list[str], depth: int = 2) -> str:
        choice = self.random.random()
        if depth == 0 or choice < 0.35:
            known = [*indices, *NAMES, str(self.random.randint(-3, 3)), f"x[{self.index(indices)}]"]
            return self.random.choice(known)
        left, right = self.expr(indices, depth - 1), self.expr(indices, depth - 1)
        forms = [f"({left} + {right})", f"({left} - {right})", f"min({left}, {right})"]
        forms += [f"max({left}, {right})", f"({left} % 7)", f"({left} + {right}) // 3"]
        forms += [f"({left} if {self.test(indices)} else {right})", f"z[{self.index(indices)}]"]
        return f"({self.random.choice(forms)})"

    def index(self, indices: list[str]) -> str:
        return self.random.choice([*indices, f"({self.random.choice(indices)} + 1) % 6", "2"])

    def test(self, indices: list[str]) -> str:
        sign = self.random.choice(["<", "<=", "==", "!=", ">"])
        test = f"x[{self.index(indices)}] {sign} {self.random.randint(-3, 3)}"
        if self.random.random() < 0.3:
            word = self.random.choice(["and", "or"])
            test = f"({test} {word} not {self.random.choice(indices)} > 2)"
        return test

    # ------------------------------------------------------------ statements

    def assign(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        yield f"{self.name()} = {self.value(indices)}"

    def value(self, indices: list[str]) -> str:
        return f"{self.expr(indices)} + {self.name()} % 11"

    def augment(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        yield f"{self.name()} {self.random.choice('+-')}= {self.expr(indices)}"

    def swap(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        one, two = self.random.sample(NAMES, 2)
        yield f"{one}, {two} = {two}, {one}"

    def store(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        yield f"z[{self.index(indices)}] = {self.value(indices)}"

    def add(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        yield f"z[{self.index(indices)}] += {self.expr(indices)}"

    def helper(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        name = self.random.choice(["clipped", "picked"])
        call = f"{name}({self.value(indices)}, low={self.random.choice(indices)} - 5)"
        if self.random.random() < 0.5:
            call = f"stored(z, {self.index(indices)}, {self.value(indices)})"
        yield f"{self.name()} = {call}"

    def condition(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        yield f"{self.name()} = {self.value(indices)} if {self.test(indices)} else {self.name()}"

    def list(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        name = self.name()
        yield f"parts = [{self.value(indices)} + k for k in range(3)]"
        yield f"parts.append({self.expr(indices)})"
        yield f"{name} = sum(parts) % 13 + parts[1] % 3"

    def pair(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        yield f"pair = (pair[1][0] % 9, [pair[0] - {self.value(indices)} % 5])"
        if self.random.random() < 0.5:
            yield f"{self.name()} = pair[0] % 7 + pair[1][0]"

    def leave(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        yield f"if {indices[-1]} == {self.random.randint(0, 2)}:"
        yield f"    {self.random.choice(['break', 'continue'])}"

    def nested(self, head: str, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        yield head
        for line in self.block(4, depth + 1, indices, static):
            yield f"    {line}"

    def looped(self, head: str, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        """A loop whose iterations may end early, between two of its statements."""
        lines = list(self.block(4, depth + 1, indices, static))
        if self.random.random() < 0.4:
            ends = (" ", "el", "parts.a")  # of a statement, or of a list that is made
            places = [i for i, line in enumerate(lines) if not line.startswith(ends)]
            place = self.random.choice(places)
            skip = [f"if {self.test(indices)}:", f"    {self.name()} += 1", "    continue"]
            if self.random.random() < 0.3:
                skip += ["else:", f"    z[{self.index(indices)}] = {self.name()}"]
            lines[place:place] = skip
        yield head
        yield from (f"    {line}" for line in lines)

    # `if` cannot be a method's name; the table of kinds goes through getattr.
    def __getattr__(self, kind: str) -> object:
        if kind == "if":
            return self.branches
        raise AttributeError(kind)

    def branches(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        yield from self.nested(f"if {self.test(indices)}:", depth, indices, False)
        if self.random.random() < 0.3:
            yield from self.nested(f"elif {self.test(indices)}:", depth, indices, False)
        if self.random.random() < 0.5:
            yield from self.nested("else:", depth, indices, False)

    def grid(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        self.loops += 1
        name = f"g{self.loops}"
        head = f"for {name} in hl.grid({self.random.randint(0, 3)}):"
        yield from self.looped(head, depth, [*indices, name], False)

    def ragged(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        self.loops += 1
        name = f"r{self.loops}"
        begin = f"{self.expr(indices, 1)} % 3"
        head = f"for {name} in hl.grid({begin}, {begin} + {self.name()} % 3, max_extent=9):"
        yield from self.looped(head, depth, [*indices, name], False)

    def static(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        self.loops += 1
        name = f"s{self.loops}"
        head = f"for {name} in range({self.random.randint(0, 3)}):"
        yield from self.looped(head, depth, [*indices, name], True)

    def counted(self, depth: int, indices: list[str], static: bool) -> Iterator[str]:
        self.loops += 1
        name = f"w{self.loops}"
        yield f"{name} = {self.random.randint(0, 2)}"
        lines = self.looped(f"while {name} < 3:", depth, [*indices, name], False)
        yield next(lines)
        yield f"    {name} += 1"
        yield from lines


def text(seeds: range) -> str:
    """A module with one kernel for each seed."""
    return HEADER + "".join(Writer(seed).kernel(f"kernel_{seed}") for seed in seeds)


def by_python(kernel: types.FunctionType, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What Python makes of it: loops are ranges, arrays hold integers of any size."""
    shim = types.SimpleNamespace(grid=lambda *bounds, max_extent=None: range(*bounds))
    globals_ = {**kernel.__globals__, "hl": shim}
    copies = {n: _with(f, globals_) for n, f in globals_.items() if isinstance(f, FUNCTION)}
    globals_.update(copies)
    y, z = np.zeros(6, object), np.arange(6).astype(object)
    _with(kernel, globals_)([int(v) for v in x], y, z)
    return y, z


FUNCTION = types.FunctionType


def _with(fn: types.FunctionType, globals_: dict) -> types.FunctionType:
    return FUNCTION(fn.__code__, globals_, fn.__name__, fn.__defaults__, fn.__closure__)
