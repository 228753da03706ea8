"""Ways to read a Python object, where a kernel may do so, and how what is read changes.

A case is a program: what stands in the module, an expression that is 2 before the change and 5
after it, and the statement that changes it.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """
import dataclasses, enum, functools, sys, types, typing
import numpy as np
import tilelang as tile, tilelang.language as hl

"""

# Where the expression E is read.  Every function has the kernel's argument c.
PLACES = {
    "kernel": """
@tile.kernel
def kernel(x, c=None):
    out = hl.empty(x.shape, dtype=x.dtype)
    for r in hl.tile(x.shape[0]):
        out[r, :] = x[r, :] * E
    return out
""",
    "helper": """
def helper(row, c):
    return row * E

@tile.kernel
def kernel(x, c=None):
    out = hl.empty(x.shape, dtype=x.dtype)
    for r in hl.tile(x.shape[0]):
        out[r, :] = helper(x[r, :], c)
    return out
""",
    "nested helper": """
def inner(row, c):
    return [w * E for w in (row,)][0]

def helper(row, c):
    local = lambda w: inner(w, c)
    return local(row)

@tile.kernel
def kernel(x, c=None):
    out = hl.empty(x.shape, dtype=x.dtype)
    for r in hl.tile(x.shape[0]):
        out[r, :] = helper(x[r, :], c)
    return out
""",
    "host code": """
@tile.kernel
def kernel(x, c=None):
    out = hl.empty(x.shape, dtype=x.dtype)
    factor = E
    assert factor > 1
    for r in hl.tile(x.shape[0]):
        out[r, :] = x[r, :] * factor
    return out
""",
    "host function": """
def factor(c):
    try:
        return E
    finally:
        pass

@tile.kernel
def kernel(x, c=None):
    out = hl.empty(x.shape, dtype=x.dtype)
    number = factor(c)
    for r in hl.tile(x.shape[0]):
        out[r, :] = x[r, :] * number
    return out
""",
    "loop bounds": """
@tile.kernel
def kernel(x, c=None):
    out = hl.zeros(x.shape, dtype=x.dtype)
    for r in hl.tile(E * 8, block_size=E * 8):
        out[r, :] = x[r, :] * 2
    return out
""",
    "unrolled loop": """
@tile.kernel
def kernel(x, c=None):
    out = hl.empty(x.shape, dtype=x.dtype)
    for r in hl.tile(x.shape[0]):
        row = x[r, :]
        for i in range(E):
            row = row + i
        out[r, :] = row if E == 2 else row * 3
    return out
""",
}


@dataclass(frozen=True)
class Case:
    """One way to read; `argument` is what the kernel is called with."""

    name: str
    before: str
    read: str
    change: str
    argument: str = "None"

    def program(self, place: str) -> str:
        """The module, with the expression in one of the PLACES."""
        return HEAD + self.before + "\n" + PLACES[place].replace("E", f"({self.read})")

    def __str__(self) -> str:
        return self.name


CFG = """
class Base:
    inherited = 2
    def __init__(self): self.s = 2
    @property
    def prop(self): return self.s
    def get(self): return self.s
    def __call__(self): return self.s
    def __getitem__(self, key): return self.s
    def __len__(self): return self.s
    def __index__(self): return self.s
    def __getattr__(self, name):
        if name == "dynamic": return self.s
        raise AttributeError(name)
class Cfg(Base):
    scale = 2
    def __eq__(self, other): return isinstance(other, Cfg)
    __hash__ = Base.__hash__
cfg = Cfg()
other = Cfg()
"""
SET = "cfg.s = 5"
RECORD = """
class Point(typing.NamedTuple):
    a: int
    b: object
@dataclasses.dataclass(frozen=True)
class Inner:
    block: int
@dataclasses.dataclass
class Outer:
    inner: Inner
    points: list
outer = Outer(Inner(2), [Point(1, {"k": (1, 2)})])
"""
CELL = """
def around():
    value, holder = 2, [2]
    def read(): return value
    def change():
        nonlocal value
        value = 5
    return read, change
read, change = around()
"""
DEFAULT = "def f(v=1, w=2, *, k=2): return w if v else k\n"
IN_CELL = CELL.replace("return value", "return hl.specialize(value)")
IN_DEFAULT = "def f(v=1, w=2, *, k=2): return hl.specialize(w if v else k)\n"
MODE = """
class Mode(enum.Enum):
    SMALL = 2
    LARGE = 5
mode = Mode.SMALL
TABLE = {Mode.SMALL: 2, Mode.LARGE: 5}
"""
MODULE = "settings = types.ModuleType('settings'); settings.block = 2\n"
TORCH = "import torch\nt = torch.tensor([2, 7])\n"

CASES = (
    Case("global", "g = 2", "g", "g = 5"),
    Case("builtin that is shadowed", "", "len((1, 2))", "def len(v): return 5"),
    Case("attribute", CFG, "cfg.s", SET),
    Case("object that is replaced", CFG, "cfg.s", "cfg = Cfg(); cfg.s = 5"),
    Case("property", CFG, "cfg.prop", SET),
    Case("property that is replaced", CFG, "cfg.prop", "Base.prop = property(lambda self: 5)"),
    Case("class attribute", CFG, "cfg.scale", "Cfg.scale = 5"),
    Case("class attribute that is hidden", CFG, "cfg.scale", "cfg.scale = 5"),
    Case("inherited class attribute", CFG, "cfg.inherited", "Base.inherited = 5"),
    Case("attribute of the class", CFG, "Cfg.scale", "Cfg.scale = 5"),
    Case("__getattr__", CFG, "cfg.dynamic", SET),
    Case("getattr", CFG, "getattr(cfg, 's')", SET),
    Case("getattr with a default", CFG, "getattr(cfg, 'late', 2)", "cfg.late = 5"),
    Case("hasattr", CFG, "5 if hasattr(cfg, 'late') else 2", "cfg.late = 1"),
    Case("local alias", CFG, "[d.s for d in (cfg,)][0]", SET),
    Case("one object by two names", CFG + "a = b = cfg", "a.s + b.s - 2", "b = Cfg(); b.s = 5"),
    Case("identity", CFG + "a = b = cfg", "2 if a is b else 5", "b = other"),
    Case("isinstance", CFG, "2 if isinstance(cfg, Cfg) else 5", "cfg = Base()"),
    Case("truth", CFG, "2 if cfg else 5", "cfg.s = 0"),
    Case("len of an object", CFG, "len(cfg)", SET),
    Case("index", CFG, "cfg.__index__()", SET),
    Case("text", CFG, "int(f'{cfg.s}')", SET),
    Case("method", CFG, "cfg.get()", SET),
    Case("method that is replaced", CFG, "cfg.get()", "Base.get = lambda self: 5"),
    Case("bound method", CFG + "m = cfg.get", "m()", SET),
    Case("callable object", CFG, "cfg()", SET),
    Case("item of an object", CFG, "cfg['any']", SET),
    Case("object in a list", CFG + "box = [[cfg]]", "box[0][-1].s", SET),
    Case("equal objects", CFG, "cfg.s", "cfg = Cfg(); cfg.s = 5"),
    Case("item of a list", "v = [1, 2]", "v[1]", "v[1] = 5"),
    Case("item of a dict", "v = {'k': 2}", "v['k']", "v['k'] = 5"),
    Case("item of a tuple", "v = (1, 2)", "v[-1]", "v = (1, 5)"),
    Case("slice", "v = [1, 2, 3]", "v[1:2][0]", "v[1] = 5"),
    Case("get of a dict", "v = {}", "v.get('k', 2)", "v['k'] = 5"),
    Case("in", "v = [1]", "5 if 3 in v else 2", "v.append(3)"),
    Case("len of a list", "v = [0, 0]", "len(v)", "v += [0, 0, 0]"),
    Case("truth of a list", "v = []", "5 if v else 2", "v.append(0)"),
    Case("sum of a list", "v = [1, 1]", "sum(v)", "v.append(3)"),
    Case("items of a list", "v = [1, 1]", "sum([w for w in v])", "v.append(3)"),
    Case("order of a dict", "v = {2: 0, 5: 0}", "list(v)[0]", "v[2] = v.pop(2)"),
    Case("items of a dict", "v = {'a': 2}", "[w for k, w in v.items()][0]", "v['a'] = 5"),
    Case("zip", "v = [2]", "[a for a, b in zip(v, (1,))][0]", "v[0] = 5"),
    Case("star", "v = [2]", "max(*v, 1)", "v[0] = 5"),
    Case("two stars", "v = {'b': 2}", "dict(a=1, **v)['b']", "v['b'] = 5"),
    Case("sum of lists", "v = [2]", "(v + [1])[0]", "v[0] = 5"),
    Case("list that is extended by one", "v = [2]", "[w.extend(v) or w[0] for w in [[]]][0]",
         "v[0] = 5"),
    Case("dict that is updated by one", "v = {'a': 2}",
         "[w.update(v) or w['a'] for w in [{}]][0]", "v['a'] = 5"),
    Case("union of sets", "v = [2]", "max({1}.union(v))", "v[0] = 5"),
    Case("copy of a list", "v = [2]", "list(v)[0]", "v[0] = 5"),
    Case("vars", CFG, "vars(cfg)['s']", SET),
    Case("nested records", RECORD, "outer.inner.block", "outer.inner = Inner(5)"),
    Case("named tuple", RECORD, "outer.points[0].b['k'][1]", "outer.points[0].b['k'] = (1, 5)"),
    Case("new record", RECORD + "n = 2", "Point(n, 0).a", "n = 5"),
    Case("record of a class that changes", RECORD, "Inner(2).block",
         "Inner.__init__ = lambda self, block: object.__setattr__(self, 'block', 5)"),
    Case("argument: object", CFG, "c.s", SET, "cfg"),
    Case("argument: property", CFG, "c.prop", SET, "cfg"),
    Case("argument: equal object", CFG, "c.s", "cfg = Cfg(); cfg.s = 5", "cfg"),
    Case("argument: method", CFG, "c()", SET, "cfg.get"),
    Case("argument: callable object", CFG, "c()", SET, "cfg"),
    Case("argument: object in a tuple", CFG, "c[1].s", SET, "(1, cfg)"),
    Case("argument: frozen record", RECORD, "c.block", "outer.inner = Inner(5)", "outer.inner"),
    Case("argument: closure", CELL, "c()", "change()", "read"),
    Case("argument: partial", "v = [2]", "c()[0]", "v[0] = 5", "functools.partial(list, v)"),
    Case("argument: enum", MODE, "c.value", "mode = Mode.LARGE", "mode"),
    Case("argument: defaults", DEFAULT, "c()", "f.__defaults__ = (1, 5)", "f"),
    Case("partial", "def f(a, b): return a + b\np = functools.partial(f, 1, b=1)", "p()",
         "p = functools.partial(f, 1, b=4)"),
    Case("partial of a list", "v = [2]\np = functools.partial(sorted, v)", "p()[0]", "v[0] = 5"),
    Case("closure", CELL, "read()", "change()"),
    Case("defaults", DEFAULT, "f()", "f.__defaults__ = (1, 5)"),
    Case("inlined closure", IN_CELL, "read()", "change()"),
    Case("inlined closure of an argument", IN_CELL, "c()", "change()", "read"),
    Case("inlined defaults", IN_DEFAULT, "f()", "f.__defaults__ = (1, 5)"),
    Case("inlined defaults of keywords", IN_DEFAULT, "f(0)", "f.__kwdefaults__ = {'k': 5}"),
    Case("inlined defaults in place", IN_DEFAULT, "f(0)", "f.__kwdefaults__['k'] = 5"),
    Case("inlined method", CFG.replace("return self.s", "return hl.specialize(self.s)"),
         "cfg.get()", SET),
    Case("inlined callable object", CFG.replace("return self.s", "return hl.specialize(self.s)"),
         "cfg()", SET),
    Case("inlined global of a function", "g = 2\ndef f(): return hl.specialize(g)", "f()", "g = 5"),
    Case("inlined code", "def f(): return hl.specialize(2)\ndef g(): return 5", "f()",
         "f.__code__ = g.__code__"),
    Case("default in place", "def f(w=[2]): return w[0]", "f()", "f.__defaults__[0][0] = 5"),
    Case("defaults of keywords", DEFAULT, "f(0)", "f.__kwdefaults__ = {'k': 5}"),
    Case("default of a keyword in place", DEFAULT, "f(0)", "f.__kwdefaults__['k'] = 5"),
    Case("function that is replaced", "def f(): return 2\ndef g(): return 5", "f()", "f = g"),
    Case("code that is replaced", "def f(): return 2\ndef g(): return 5", "f()",
         "f.__code__ = g.__code__"),
    Case("module attribute", MODULE, "settings.block", "settings.block = 5"),
    Case("environment", "import os; os.environ['TILE_TEST'] = '2'", "int(os.environ['TILE_TEST'])",
         "os.environ['TILE_TEST'] = '5'"),
    Case("enum", MODE, "mode.value", "mode = Mode.LARGE"),
    Case("enum as a key", MODE, "TABLE[mode]", "TABLE[Mode.SMALL] = 5"),
    Case("enum compared", MODE, "2 if mode is Mode.SMALL else 5", "mode = Mode.LARGE"),
    Case("inlined shape of a class of lists", "class L(list): pass\nv = L([2, 1])",
         "hl.zeros(v).shape[0]", "v[0] = 5"),
    Case("inlined shape in a named tuple", RECORD + "v = Point(2, [1])",
         "hl.full([v.a], v.b[0]).shape[0]", "v = Point(5, [1])"),
    Case("masked NumPy scalar", "t = np.ma.array(2)", "t", "t[...] = 5"),
    Case("NumPy array", "t = np.array([2, 7])", "int(t[0])", "t[0] = 5"),
    Case("NumPy scalar", "t = np.array(2)", "t[()]", "t[...] = 5"),
    Case("NumPy reduction", "t = np.array([1, 1])", "int(np.sum(t))", "t[0] = 4"),
    Case("shape of an array", "t = np.zeros((2, 1))", "t.shape[0]", "t = np.zeros((5, 1))"),
    Case("torch tensor", TORCH, "t[0].item()", "t.fill_(5)"),
    Case("torch setting", "import torch",
         "2 if torch.get_default_dtype() == torch.float32 else 5",
         "torch.set_default_dtype(torch.float64)"),
    Case("JAX array", "import jax.numpy as jnp; t = jnp.array([2, 7])", "int(t[0])",
         "t = t.at[0].set(5)"),
)  # fmt: skip
