"""The architecture, held by reading the source: layers, cycles, sizes, frozen values, annotations.

Every rule is data at the top of this file.  An exception is an entry with a written reason, and an
entry that is no longer needed fails too.
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "tilelang"

# A module may import its own layer and layers of a lower rank.  Two layers of one rank do not know
# each other.
RANKS = {
    "errors": 0,
    "instead": 1,
    "ir": 1,
    "reads": 1,
    "schedule.refusal": 1,  # "no" as a value, whoever says it
    "texts": 2,
    "language": 2,
    "frontend": 3,
    "analysis": 3,
    "reference": 3,
    "passes": 4,
    "transforms": 5,
    "schedule": 5,
    "codegen": 6,
    "codegen.pallas": 7,
    "codegen.pallas.plan": 8,
    "codegen.pallas.emit": 9,
    "codegen.triton": 7,
    "codegen.triton.plan": 8,
    "codegen.triton.emit": 9,
    "runtime": 10,
    "aot": 11,
    "aot.cuda_worker": 12,
    "aot.worker": 12,
    "autotune": 12,
    "autotune.model.scalars": 13,
    "autotune.model.worker": 14,
    "autotune.benches": 13,
    "autotune.gpu_worker": 13,
    "autotune.worker": 13,
    "tuning": 14,
    "api": 13,
    "commands": 15,
    PACKAGE: 16,
    "__main__": 16,
}
# Lower in rank, and still none of their business: who imports -> what they must not.
BACKEND = {"frontend", "reference"}
FORBIDDEN = {
    "analysis": {"schedule"},
    "passes": BACKEND,
    "transforms": BACKEND,
    "schedule": BACKEND,
    "codegen": BACKEND,
    "codegen.pallas": BACKEND,
    "codegen.pallas.plan": BACKEND,
    "codegen.pallas.emit": BACKEND,
    "codegen.triton": BACKEND,
    "codegen.triton.plan": BACKEND,
    "codegen.triton.emit": BACKEND,
    "runtime": {"frontend", "reference"},
    "aot": {"frontend", "analysis", "reference"},
    "autotune": {"frontend", "analysis", "reference"},
}
# Who plans: "no" is a Refusal there, a value that a search reads.  Errors are for the author, where
# a config, a target's name or an argument comes in.
PLANS = ("codegen.pallas.p", "codegen.triton.p", "passes", "schedule")
SAYS_IT = {"schedule.config": "what no kernel could use is said where the config is made"}
# An emitter prints: it knows the data of its plan, the IR, the writer and nothing else.
EMITTERS = {
    "codegen.pallas.emit": {
        "codegen.pallas.emit",
        "codegen.pallas.plan.axis",
        "codegen.pallas.plan.physical",
        "codegen.pallas.plan.reads",
        "codegen.pallas.plan.steps.names",
        "codegen.pallas.plan.types",
        "codegen.source",
        "codegen.writer",
        "errors",
        "ir",
        "ir.names",
    },
    "codegen.triton.emit": {
        "codegen.source",
        "codegen.triton.emit",
        "codegen.triton.plan.types",
        "codegen.writer",
        "errors",
        "ir",
        "language.dtypes",
    },
}
# What decides, bounds, or reads text that was printed before; called or imported.
NOT_PRINTING = frozenset(
    {"isdigit", "isnumeric", "clamped", "clamp", "at_most", "at_least", "bounds", "holds"}
)
# What clamps, compares or chooses in the text that a function of an emitter makes.  Such text is
# that of an expression of the plan; what is fixed, whatever the plan, stands outside of functions.
CHOOSES = re.compile(
    r"(jnp|tl|jax\.lax)\.(minimum|maximum|clip|clamp|where|select|cummax|cummin|cond)\b"
    r"| (<|>|<=|>=|==|!=) |^(<|>|<=|>=|==|!=)$"
)
# Functions, or all of a module, of an emitter that write such text -> what of the plan it says.
SAYS = {
    "codegen.pallas.emit.conditions": "the conditions of sections, which are data of their own",
    "codegen.pallas.emit.expressions._over_rows": "the running maximum, an operation of work lists",
    "codegen.pallas.emit.expressions._extreme": "a minimum of a maximum, which is called a clip",
    "codegen.pallas.emit.statements._ahead": "the last turn, behind which there is no other",
    "codegen.triton.emit.expressions._squeeze": "a bool that a sum makes a number",
    "codegen.pallas.emit.scatters._merged": "a row of a register tile that changes: PutRows.tile",
}
# Modules of an emitter that still ask the plan's expressions -> what for.
ASKS: dict[str, str] = {}
# Third-party packages that only some layers may import, wherever in the file.  aot's workers are
# processes of their own, because compilers may abort: nothing imports them but a worker that does
# more, so aot needs no JAX.
ONLY_IN = {
    "sympy": {"analysis"},
    "jax": {"runtime", "aot.worker", "autotune.model.scalars", "autotune.worker"},
    "jaxlib": {"runtime"},
    "torch": {"runtime", "autotune.gpu_worker"},
    "triton": {"runtime", "aot.cuda_worker", "autotune.gpu_worker"},
}
# Loads a stage when it is first needed, so that importing the package stays cheap.
LAZY = {"api"}
MEANINGLESS = {"utils", "util", "helpers", "helper", "common", "misc", "base", "core"}

# Lines of each package, blank ones and docstrings too.  It may only outgrow its budget with a
# reason beside the number; what a clean-up leaves of a budget is taken away.  Every match says what
# else there may be, which is two lines more of most.
BUDGET = {
    # multiples; lengths; sums without what cancels; positions, clamped in blocks; views; names
    # terms of a maximum, as those of a minimum; the operands of updates, for all who ask
    "ir": 1890,  # bodies rebuilt; distances; a carried item of a tuple; picked shapes; renaming
    # moment.py: what expressions are worth, for the reference and for proofs
    "language": 4760,  # COMBINED_BY; cdiv, activations; parts; facts, kinds; a derivative for each
    # a constant that jit traces
    # parts, also several; matches; authors' names; through.py; advice as data
    # what is returned in part, drawn, or called as a method
    # ranks of arguments, and tensors that a loop was meant to store to, in hints
    # what two parts that move a tile are together
    # jumps.py: what follows an early end is the other branch; while of host values
    # hints for items that are added to
    "frontend": 5080,  # extents, of both branches of an if; views that repeat; loops carry; words
    # folds over tiles, what lags behind or changes places, what two put in order; single tiles
    # what loops carry alone orders; how many tiles arrays have room for, behind an `if` too
    # rows of tiles in uses, and that plans keep indices of loops in tiles below a limit
    # fixed.py: tiles that results go by; numbers of both signs wherever a loop is
    # thresholds.py: limits that are followed to what they are asked of; long loops inside
    "analysis": 5217,  # cuts.py, drawn.py, written.py: stores that loops read; ties, limits, edges
    # select_numbers: masks of numbers, in positions too; turn_late; powers_of_two
    # sums and columns in tiles, static_lanes.py: of one back end and of meshes
    "passes": 2_222,  # row_products; separate_...; what relies on lanes; to write; quotients
    # gradients: formulas, adjoints, gauges, residuals, conditions asked once; batches; partitions
    # softmax.py: totals that are kept from zero; what is compared is computed again
    # numbers of the whole on a mesh: positions.py
    # kernels in stages, on meshes, by the formulas of gradients: stages.py
    # arguments that are changed, refused in one place; what a backward is given and returns
    # results that masks end have no place for what is saved; parts of arrays in all their forms
    # ends of split ranges; detached gauges; whole offsets; the largest
    "transforms": 5871,  # carries twice in a sum; what is taken whole, by `:`; fixed tiles
    # rules that stood in both back ends; which field of a config was meant; how many tiles
    # rows.py: loops that go through the rows of a tile
    "schedule": 961,  # which ranges memory holds, where they end; refusals and words; tiles
    # gathers ahead; heads stacked; blocks of groups; pieces of rows; estimates, lives; bools;
    # several turns of a loop in a step, and the proof that a maximum may be taken once; bodies
    # without masks for steps inside, and whether they pay; rows moved between tiles and boxes;
    # rows that use what their groups have; bools as bytes; columns that are swept; arrays that XLA
    # brings to vector memory, ranges that move within one tile; memory of pieces; whole arrays that
    # come and go in pieces, by turns of loops too; tiles near their range; launches of few steps;
    # what rows cost that are turned by a number, and forms that are compared when finished; several
    # groups in a step, without loops where each fits a tile; late_carries.py; stale views; forms of
    # arrays that have a name each; what two loops leave; changed.py: numbers that pick places;
    # lanes that meet (rotations.py); heads of many steps; parts of tables, for two cores
    # ranges that may overlap, whose blocks come back; along_lanes.py: tiles beside a few numbers
    # index_tiles.py: rows that a loop takes one by one, as tiles; sum_tiles.py: that it adds
    # members.py: the largest of rows, vectors that rows look up; ranges of which some are long
    # turns.py: turns of loops over rows in a row, and those loops in the step without asking
    # turns_in_tiles.py: tiles around those loops, whose rows are those of a step's blocks
    # flat_columns.py: rows of several dimensions as columns, for blocks of groups
    # tiles of a fixed block that begin elsewhere than in memory
    # positions beside parts are parts; what to write where single numbers have no room
    # one_hot_updates.py: updates at places that are computed
    "codegen.pallas": 25_540,  # wide_*.py, registers.py; flows; moved tiles; one-hots; places said
    # descriptors; specialized warps; space of configs; kinds of memory; interiors; cleared rows;
    # tiles of groups, loops without products that copy ahead; registers of what is alive, and of a
    # program; operands that are taken whole; products in batches; tables that are gathered from,
    # and what loops carry that takes registers; long rows that are multiplied in parts, norms of
    # whole ones, and operands that lie as memory does
    # results in parts, turns of loops beside tensor memory, edges of tiles that steps divide
    # long rows of float32 in parts, states in columns, addresses of blocks that are picked
    # loads that wait for each other (latency.py), loops of one step, float32 that lies in two ways
    # what an H100 took least time for (hopper.py, rows.py)
    # operands that registers read too or turn, that boxes bring, that lie in two places
    # sums in the products' dimensions, scales behind maxima; layouts of sums that loops carry
    # casts that round nothing; products beside their sums; fills of parts and of rows one by one
    "codegen.triton": 9_345,  # masks by dimension; mixed products; runs of views; what is alive
    # gradients, torch, TorchTPU; buckets, symbols; meshes; checks; later calls, which are written;
    # Hessians refused; ranges that are proved to be apart; what is said of derived backwards
    # and of what goes by the block
    # what decorators, options and gradients of users are not; numbers of tiles as positions
    # arguments that share memory with what is stored to, on GPUs
    # objects and functions that nodes of Dynamo's graphs hold, guarded by identity
    # what devices exchange between stages, and where they agree; several cotangents in a batch
    # forked.py; offsets past a bucket; rules.py; FSDP; shared heads
    # second gradients in torch, of what forward saved
    # views, moved rows in buckets; of torch: names, traced sizes and numbers; words; refusals
    "runtime": 8_285,  # loops for meshes; that XLA wraps; arrays that are apart; cut tiles
    "aot": 1570,  # a worker that stays for JAX; tensor memory of sm_100; transfers beside kernels
    # the executor of compiled schedules; trials, on TPUs and GPUs, and the lock file
    "autotune": 2762,  # transfers of XLA; what cannot be tuned; schedules; answers of same code
    "commands": 545,  # tune
    # of no package: api (configs, gradients, batches, torch), tuning, reference ...; the writer
    # what has no gradient; batches of parts
    # a first call defines the operation of torch
    # what targets are called by others
    # what a kernel and the package have instead of what others have
    # options of other decorators
    PACKAGE: 2_927,  # subscripts; reads; refusals are values; looked_up.py: the walk of 3 passes
}
LONGEST_FILE = 500
LONGEST_FUNCTION = 60
MEDIAN_FUNCTION = 10
LONG_FILES: dict[str, str] = {
    "tilelang/api.py": "one class: all that users see of a kernel"
}  # path from the root -> why it is one idea all the same
# Dataclasses that are not frozen -> why.  None may pass from one stage to the next.
MUTABLE = {
    "codegen.pallas.emit.expressions.Printer": "collects the lines of one launch",
    "passes.powers_of_two._Scaling": "drops names while it walks, until the rest can be scaled",
    "codegen.triton.passes.late_scales._Late": "drops names while it walks, as _Scaling does",
    "codegen.pallas.emit.names.Names": "gives out names while one launch is printed",
    "codegen.pallas.emit.block.Block": "the lines of one scope while they are written",
    "codegen.pallas.plan.estimate.rotations._Begins": "where values begin, while a body is read",
    "codegen.pallas.plan.estimate.rank.Search": "remembers what was estimated during one search",
    "codegen.pallas.plan.space._Waiting": "remembers what waits while configs are given away",
    "codegen.pallas.plan.body.lower.Scope": "grows while one section is lowered",
    "codegen.triton.plan.scope.Shared": "gives out names while one launch is lowered",
    "codegen.triton.plan.scope.Scope": "grows while one body is lowered",
    "transforms.adjoints._Reverse": "collects adjoints while a launch is reversed",
    "transforms.forward._Reader": "collects the formulas of one launch while it is read",
    "transforms.graph.Graph": "gives names to values; what a name stands for never changes",
    "transforms.place._Scope": "one open loop while its body is written",
    "transforms.place._Writer": "gives out names while one nest is written",
    "transforms.reverse._Program": "collects the launches of one derivative",
    "transforms.stages._Cut": "collects the stages of a kernel, which read those before",
    "transforms.saved.Residuals": "collects what one backward launch reads",
    "codegen.triton.plan.steps._Since": "what threads did since they last waited",
}

# Passes whose test has another's name -> which.
TESTED_WITH = {
    "tile_columns": "tile_wholes",  # both make tiles of what tile_wholes leaves
    "tile_sums": "tile_wholes",
}

MACHINE_PATH = re.compile(r"(?<![\w.:/-])/(?:home|root|Users|work|opt|mnt|var/folders)/\w[\w./-]*")
TEXT = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".cfg", ".json", ".sh", ""}


@dataclass(frozen=True)
class Module:
    """One source file of the package: dotted name without the package, tree and layer."""

    name: str  # "language.build"; a package's __init__ has the package's name
    path: Path
    tree: ast.Module

    @property
    def layer(self) -> str:
        parts = self.name.split(".")
        prefixes = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
        return next((p for p in prefixes if p in RANKS), parts[0])

    @property
    def parent(self) -> str:
        """The package that a one-dot import starts from."""
        if self.path.name == "__init__.py":
            return self.name
        return self.name.rpartition(".")[0] or PACKAGE


@dataclass(frozen=True)
class Import:
    """`who` imports `what`, a dotted name from the top: "tilelang.ir", "jax.numpy"."""

    who: Module
    what: str
    line: int
    local: bool

    def __str__(self) -> str:
        return f"{self.who.path.relative_to(ROOT)}:{self.line} imports {self.what}"


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or PACKAGE


@cache
def modules() -> tuple[Module, ...]:
    """Every file, parsed when a test first asks and not when tests are collected."""
    paths = sorted((ROOT / PACKAGE).rglob("*.py"))
    return tuple(Module(_name(p), p, ast.parse(p.read_text(encoding="utf-8"))) for p in paths)


@cache
def module_names() -> frozenset[str]:
    return frozenset(m.name for m in modules())


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    """What a relative import is relative to, from the top."""
    if not node.level:
        return node.module or ""
    base = [PACKAGE, *([] if module.parent == PACKAGE else module.parent.split("."))]
    kept = base[: len(base) - (node.level - 1)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _targets(module: Module, node: ast.stmt) -> list[str]:
    """Dotted names that an import statement names; a submodule rather than its package."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert isinstance(node, ast.ImportFrom)
    origin = _absolute(module, node)
    inner = origin.removeprefix(PACKAGE).removeprefix(".")
    found = []
    for alias in node.names:
        submodule = f"{inner}.{alias.name}" if inner else alias.name
        ours = origin.partition(".")[0] == PACKAGE
        found.append(f"{PACKAGE}.{submodule}" if ours and submodule in module_names() else origin)
    return found


def _imports(module: Module) -> Iterator[Import]:
    local = {
        id(node)
        for function in _functions(module.tree)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for what in _targets(module, node):
                yield Import(module, what, node.lineno, id(node) in local)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def _ours(what: str) -> str | None:
    """The name inside the package, or None for somebody else's module."""
    if what == PACKAGE:
        return PACKAGE
    return what.removeprefix(f"{PACKAGE}.") if what.startswith(f"{PACKAGE}.") else None


@cache
def imports() -> tuple[Import, ...]:
    return tuple(i for m in modules() for i in _imports(m))


@cache
def ours() -> tuple[tuple[Import, str], ...]:
    """The imports of our own modules, and which."""
    return tuple((i, name) for i in imports() if (name := _ours(i.what)) is not None)


def _layer_of(name: str) -> str:
    return Module(name, ROOT, ast.Module([], [])).layer


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function from `def` on, without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None and len(function.body) > 1:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


@cache
def lengths() -> dict[str, int]:
    """Every function, and its lines."""
    return {
        f"{m.path.relative_to(ROOT)}:{f.lineno} {f.name}": _length(f)
        for m in modules()
        for f in _functions(m.tree)
    }


def test_every_module_has_a_layer():
    assert [m.name for m in modules() if m.layer not in RANKS] == []


def test_imports_go_one_way():
    wrong = [
        str(i)
        for i, name in ours()
        if (there := _layer_of(name)) != i.who.layer and RANKS[there] >= RANKS[i.who.layer]
    ]
    assert wrong == []


def test_layers_do_not_look_where_they_must_not():
    wrong = [str(i) for i, n in ours() if _layer_of(n) in FORBIDDEN.get(i.who.layer, set())]
    assert wrong == []


def _beyond(emitter: str, imports: Iterable[tuple[str, str]]) -> list[str]:
    """Imports (who, what) of an emitter that are more than it may know."""
    known = EMITTERS[emitter]
    return [
        f"{who} imports {what}"
        for who, what in imports
        if what not in known and not what.startswith(f"{emitter}.")
    ]


def _deciding(tree: ast.AST) -> list[str]:
    """Names and modules in the source of an emitter that are not for printing."""
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)) if name in NOT_PRINTING:
                found.append(name)
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                every = [*(a.name for a in aliases), getattr(node, "module", "")]
                found += [e for e in every if e in NOT_PRINTING | {"re", "tokenize", "math"}]
    return found


def test_emitters_know_the_data_of_their_plan():
    for emitter in EMITTERS:
        own = [(i.who.name, n) for i, n in ours() if i.who.layer == emitter]
        asks = {who for who, what in own if what == "ir.integers"}
        assert asks == {a for a in ASKS if a.startswith(emitter)}, (
            "asks without a reason, or a reason without need"
        )
        assert own and _beyond(emitter, [o for o in own if o[1] != "ir.integers"]) == []
    assert _beyond(emitter, [("it", "codegen.pallas.plan.clamps")]) != []
    assert _beyond(emitter, [("it", "analysis.facts")]) != []


def test_emitters_decide_nothing():
    wrong = {
        m.name: found for m in modules() if m.layer in EMITTERS if (found := _deciding(m.tree))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    "text",
    ["x.isdigit()", "import re", "from ..ir.integers import clamped", "clamps.at_most(x, 3)"],
)
def test_the_rule_about_emitters_can_fail(text):
    assert _deciding(ast.parse(text))


def _of_errors(tree: ast.AST) -> list[str]:
    """Lines at which PlanErrors are raised or caught."""
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(func=ast.Name("PlanError"))):
                found.append(f"line {node.lineno} raises it")
            case ast.ExceptHandler(type=ast.expr() as caught):
                if {"PlanError", "TileError"} & {n.id for n in _names(caught)}:
                    found.append(f"line {node.lineno} catches it")
            case _:
                pass
    return found


def _names(tree: ast.AST) -> Iterator[ast.Name]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.Name))


def test_planning_refuses_by_values():
    found = {m.name: w for m in modules() if m.name.startswith(PLANS) if (w := _of_errors(m.tree))}
    assert {name: w for name, w in found.items() if name not in SAYS_IT} == {}
    assert set(SAYS_IT) <= set(found), "an exception without need"


@pytest.mark.parametrize(
    "text",
    ["raise PlanError('no', loc)", "try:\n    plan()\nexcept PlanError as refused:\n    pass"],
)
def test_the_rule_about_refusals_can_fail(text):
    assert _of_errors(ast.parse(text))


def _open_matches(tree: ast.AST) -> list[int]:
    """Lines of matches that say nothing of what none of their patterns fits.

    The last case takes all there is: `assert_never` where that is nothing, as pyright proves.
    """
    matches = (n for n in ast.walk(tree) if isinstance(n, ast.Match))
    return [n.lineno for n in matches if not _takes_all(n.cases[-1])]


def _takes_all(case: ast.match_case) -> bool:
    return (
        case.guard is None
        and isinstance(case.pattern, ast.MatchAs)
        and case.pattern.pattern is None
    )


def test_matches_say_what_else():
    assert {m.name: found for m in modules() if (found := _open_matches(m.tree))} == {}


@pytest.mark.parametrize(
    ("last", "lines"),
    [("At()", [1]), ("_ if x", [1]), ("At() as x", [1]), ("_", []), ("never", [])],
)
def test_the_rule_about_matches_can_fail(last, lines):
    text = f"match stmt:\n    case Along():\n        pass\n    case {last}:\n        pass"
    assert _open_matches(ast.parse(text)) == lines


def _choosing(module: Module) -> Iterator[str]:
    """The functions of an emitter whose own text clamps, compares or chooses."""
    for function in _functions(module.tree):
        doc = ast.get_docstring(function, clean=False)
        texts = (n.value for n in ast.walk(function) if isinstance(n, ast.Constant))
        calls = (n.func for n in ast.walk(function) if isinstance(n, ast.Call))
        builds = any(ast.unparse(c).rpartition(".")[2] == "Apply" for c in calls)
        if builds or any(isinstance(t, str) and t != doc and CHOOSES.search(t) for t in texts):
            yield f"{module.name}.{function.name}"


def _says(function: str) -> str:
    return next((s for s in SAYS if s in (function, function.rpartition(".")[0])), "")


def test_emitters_print_the_clamps_and_comparisons_of_the_plan():
    found = [f for m in modules() if m.layer in EMITTERS for f in _choosing(m)]
    assert [f for f in found if not _says(f)] == []
    assert {_says(f) for f in found} == set(SAYS), "an exception without need"


@pytest.mark.parametrize(
    "line",
    [
        'Call("jnp.minimum", (stop, most))', 'block.raw(f"{live} = {n} < {steps}")',
        'infix(">=", first, last)', 'ir.Apply("minimum", (stop, most), INT)',
        'f"jnp.where({live}, {stop}, 0)"', 'infix("==", a, b)',
    ],
)  # fmt: skip
def test_the_rule_about_clamps_can_fail(line):
    tree = ast.parse(f"def _print():\n    'a < b'\n    return {line}\nFIXED = 'a < b'")
    assert list(_choosing(Module("codegen.pallas.emit.it", ROOT, tree)))


def test_no_import_cycles():
    edges = {m.name: {n for i, n in ours() if i.who is m and n != m.name} for m in modules()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"import cycle: {' -> '.join([*path[path.index(name) :], name])}"
        if name not in done:
            for there in sorted(edges.get(name, ())):
                visit(there, (*path, name))
            done.add(name)

    for name in sorted(edges):
        visit(name, ())


def test_our_modules_are_imported_at_the_top():
    wrong = [str(i) for i, _ in ours() if i.local and i.who.layer not in LAZY]
    assert wrong == []


def test_heavy_packages_are_imported_where_they_belong():
    packages = [(i, i.what.partition(".")[0]) for i in imports()]
    wrong = [str(i) for i, p in packages if p in ONLY_IN and i.who.layer not in ONLY_IN[p]]
    assert wrong == []


def test_importing_the_package_imports_no_framework():
    code = (
        "import sys, tilelang, tilelang.language\n"
        "print(*sorted({'jax', 'jaxlib', 'torch', 'triton', 'sympy'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout.split()) == (0, []), run.stderr


def _frozen(decorator: ast.expr) -> bool | None:
    """Whether a decorator makes a frozen dataclass; None if it makes no dataclass."""
    call = decorator if isinstance(decorator, ast.Call) else None
    target = ast.unparse(call.func if call else decorator)
    if target not in ("dataclass", "dataclasses.dataclass"):
        return None
    keywords = {k.arg: ast.unparse(k.value) for k in call.keywords} if call else {}
    return keywords.get("frozen") == "True"


def _classes() -> Iterator[tuple[Module, ast.ClassDef]]:
    return ((m, n) for m in modules() for n in ast.walk(m.tree) if isinstance(n, ast.ClassDef))


def test_dataclasses_are_frozen():
    mutable = {
        f"{m.name}.{c.name}"
        for m, c in _classes()
        if False in [_frozen(d) for d in c.decorator_list]
    }
    assert mutable == set(MUTABLE), "mutable without a reason, or a reason without need"


def test_no_inheritance_among_our_classes():
    errors = {c.name for m, c in _classes() if m.layer == "errors"}
    plain = {c.name for _, c in _classes()} - errors
    wrong = [f"{c.name}({ast.unparse(b)})" for _, c in _classes() for b in c.bases]
    assert [w for w in wrong if w.partition("(")[2].rstrip(")") in plain] == []


def _ambiguous(classes: Iterable[tuple[str, str]]) -> set[str]:
    """Names of classes (of a module, name) that stand for two things.

    The two back ends are twins: what both have, each in its own place, has one name.
    """
    homes: dict[str, list[str]] = {}
    for module, name in classes:
        twin = next((b for b in ("codegen.pallas", "codegen.triton") if module.startswith(b)), "")
        homes.setdefault(name, []).append(twin)
    return {
        name for name, of in homes.items() if len(of) > 1 and ("" in of or len({*of}) < len(of))
    }


def test_a_class_name_stands_for_one_thing():
    assert _ambiguous((m.name, c.name) for m, c in _classes()) == set()
    assert _ambiguous([("codegen.pallas.plan", "Plan"), ("codegen.triton.plan", "Plan")]) == set()
    assert _ambiguous([("codegen.pallas.plan", "Plan"), ("runtime", "Plan")]) == {"Plan"}
    assert _ambiguous([("codegen.pallas.a", "Nest"), ("codegen.pallas.b", "Nest")]) == {"Nest"}


def test_functions_are_short():
    assert {k: n for k, n in lengths().items() if n > LONGEST_FUNCTION} == {}
    assert statistics.median(lengths().values()) <= MEDIAN_FUNCTION


def test_packages_keep_their_budgets():
    lines = dict.fromkeys(BUDGET, 0)
    for module in modules():
        inside = (
            module.path.relative_to(ROOT / PACKAGE).with_suffix("").as_posix().replace("/", ".")
        )
        home = next((name for name in BUDGET if inside.startswith(f"{name}.")), PACKAGE)
        lines[home] += len(module.path.read_text().splitlines())
    over = {name: count for name, count in lines.items() if count > BUDGET[name]}
    assert over == {}, "shorten it, or raise the budget with a reason"
    slack = {name: count for name, count in lines.items() if count < 0.9 * BUDGET[name]}
    assert slack == {}, "the budget is larger than the package: take the rest away"


def test_files_are_short():
    lines = {str(m.path.relative_to(ROOT)): len(m.path.read_text().splitlines()) for m in modules()}
    long = {path for path, count in lines.items() if count > LONGEST_FILE}
    assert long == set(LONG_FILES), "over the limit without a reason, or a reason without need"


def _unannotated(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    a = function.args
    every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x)]
    missing = [x.arg for x in every if x.annotation is None and x.arg not in ("self", "cls")]
    return missing + ([] if function.returns is not None else ["return"])


def test_every_signature_is_annotated():
    missing = {
        f"{m.path.relative_to(ROOT)}:{f.lineno} {f.name}": names
        for m in modules()
        for f in _functions(m.tree)
        if (names := _unannotated(f))
    }
    assert missing == {}


def test_every_module_says_what_it_is():
    assert [m.name for m in modules() if not ast.get_docstring(m.tree)] == []


# Lists of operations that are no fact of theirs -> what else they are.
LISTED: dict[str, str] = {}
SHAPED_OPS = {"cast", "expand_dims", "squeeze", "transpose", "reshape", "broadcast"}


def _op_lists(tree: ast.AST) -> Iterator[set[str]]:
    """The names in each display, or text, that has most operations on shapes among them."""
    for node in ast.walk(tree):
        parts: list[str] = []
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            parts = [e.value for e in node.elts if isinstance(e, ast.Constant)]
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "names":
            parts = str(getattr(node.args[0], "value", "")).split()
        if len(SHAPED_OPS & {*parts}) > 3:
            yield {*parts}


def test_facts_of_operations_stand_in_their_table():
    lists = {m.name: found for m in modules() if (found := [*_op_lists(m.tree)])}
    theirs = {name for name in lists if not name.startswith("language.")}
    assert theirs - {*LISTED} == set(), "say it of each operation in language.op"
    assert {*LISTED} - theirs == set(), "an exception without need"


@pytest.mark.parametrize(
    "line",
    [
        '("cast", "squeeze", "reshape", "neg", "transpose")',
        'names("cast squeeze reshape broadcast")',
    ],
)
def test_the_rule_about_facts_of_operations_can_fail(line):
    assert list(_op_lists(ast.parse(line)))


IGNORED = re.compile(r"#\s*(?:type|pyright):\s*ignore(?:\[\w[\w, -]*\])?\s*(?:#\s*(\S.*))?")
MOST_IGNORED = 5


def _ignored(text: str) -> list[str]:
    """What is said of each type error that is not looked at, "" for nothing."""
    return [found[1] or "" for found in IGNORED.finditer(text)]


def test_few_type_errors_are_ignored_and_each_line_says_why():
    found = {m.name: said for m in modules() if (said := _ignored(m.path.read_text("utf-8")))}
    assert sum(map(len, found.values())) <= MOST_IGNORED
    assert [name for name, said in found.items() if "" in said] == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x = y  # type: ignore", [""]),
        ("x = y  # type: ignore[arg-type]", [""]),
        ("x = y  # pyright: ignore[reportCall]  # why", ["why"]),
    ],
)
def test_the_rule_about_ignored_errors_can_fail(line, said):
    assert _ignored(line) == said


def test_files_are_named_after_an_idea():
    parts = {part.lstrip("_") for m in modules() for part in m.name.split(".")}
    assert parts & MEANINGLESS == set()


def _committed() -> list[Path]:
    """Files that are in the repository or about to be: everything that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        pytest.skip("not a git checkout, so that what is committed is not known")
    return [p for line in run.stdout.splitlines() if (p := ROOT / line).is_file()]


MAP = ROOT / "CONTRIBUTING.md"
ASKED = (
    "where is the step table planned",
    "where is a window chosen",
    "why is this mask here",
    "where are default blocks chosen",
)


def _lost(text: str) -> list[str]:
    """Paths of a text that lead nowhere; NAME stands for any, a name alone lies beside the last."""
    found: list[str] = []
    beside: list[Path] = []
    for line in text.splitlines():
        if not line.startswith("  "):  # an item, or a row, of its own
            beside = [ROOT, ROOT / PACKAGE, ROOT / PACKAGE / "codegen" / "pallas"]
        for path in re.findall(r"`([\w./]+(?:\.py|/))`", line):
            there = [p for at in beside for p in at.glob(path.rstrip("/").replace("NAME", "*"))]
            if there and "/" in path:
                beside.append(there[0].parent)
            found += [] if there else [path]
    return found


def test_the_map_leads_somewhere():
    text = MAP.read_text(encoding="utf-8")
    assert _lost(text) == []
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [a for a in ASKED if not any(a in row and ".py`" in row for row in rows)] == []


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("`plan/steps/table.py`, `revisits.py`", []), ("`revisits.py`", ["revisits.py"]),
        ("`plan/table.py`", ["plan/table.py"]), ("`passes/NAME.py`, `examples/dense/`", []),
        ("`nowhere/NAME.py`", ["nowhere/NAME.py"]),
    ],
)  # fmt: skip
def test_the_rule_about_the_map_can_fail(line, lost):
    assert _lost(line) == lost


def _passes() -> Iterator[str]:
    """Passes: functions with the name of their file, in a folder of passes."""
    for module in modules():
        folder, _, name = module.name.rpartition(".")
        if folder.rpartition(".")[2] == "passes" or folder == "passes":
            yield from (name for f in _functions(module.tree) if f.name == name)


def _untested(passes: Iterable[str], files: Iterable[str]) -> list[str]:
    """Passes without a test file of their own."""
    known = set(files)
    return [p for p in passes if f"test_{TESTED_WITH.get(p, p)}.py" not in known]


def test_every_pass_has_its_test():
    passes, files = list(_passes()), [p.name for p in (ROOT / "tests" / "passes").glob("*.py")]
    assert len(passes) > 30
    assert _untested(passes, files) == []
    needless = [p for p in TESTED_WITH if p not in passes or f"test_{p}.py" in files]
    assert needless == [], "an exception without need"


def test_the_rule_about_tests_of_passes_can_fail():
    assert _untested(["fold_empty", "tile_sums"], ["test_tile_wholes.py"]) == ["fold_empty"]
    assert _untested(["tile_sums"], []) == ["tile_sums"]


def test_nothing_names_a_path_of_one_machine():
    found = [
        f"{path.relative_to(ROOT)}:{number} {match.group()}"
        for path in _committed()
        if path.suffix in TEXT
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in MACHINE_PATH.finditer(line)
    ]
    assert found == []
