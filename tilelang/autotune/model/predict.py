"""predict(lowered, arrays, values) -> Prediction: the time of a lowered kernel, without its TPU.

It is compiled for the target in a worker, where the final schedule is executed too.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ... import aot
from ...aot.bundles import FLAGS
from ...aot.compile import asked, request_of, require_compiler
from ...codegen.pallas import chips
from ...codegen.pallas.chips import CHIPS
from ...codegen.pallas.plan.types import Plan
from ...codegen.pallas.target import Target
from ...errors import CallError
from ...language.dtypes import itemsize
from ...runtime.bridge import narrowed
from ...runtime.lowering import Lowered
from . import store
from .prediction import Prediction, runs_of

Arrays = Mapping[str, np.ndarray]

COMMAND = (sys.executable, "-P", "-m", "tilelang.autotune.model.worker")
PACKAGES = ("jax", "jaxlib", "libtpu")
EXECUTING = ("execute", "memory", "program", "scalars", "units", "worker")  # what answers depend on
INTEGERS = ("int32", "int64", "uint32")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def predict(
    lowered: Lowered,
    arrays: Arrays,
    values: Mapping[str, Any],
    *,
    timeout: float = 120.0,
    folder: Path | None = None,
    compiler: Compiler | None = None,
) -> Prediction:
    """The time of a kernel; `arrays` are its integer arguments that have values.

    `values` gives those of others, or several sets of them.  Raises CallError for integers that
    steer the kernel and have no values, and CompileError where the compiler refuses the kernel,
    dies, or needs more than `timeout` seconds; a `compiler` that was given has then ended.  Answers
    are kept in `folder`, the user's cache if left out.
    """
    question = question_of(lowered, arrays, values)
    target, tensors = lowered.target, lowered.ir.tensors
    assert isinstance(target, Target)
    require_compiler(target)
    answer = remembered(
        question, lambda: _answer(lowered, question, timeout, compiler), folder, timeout
    )
    moved_once = sum(prod(t.shape) * itemsize(t.dtype) for t in tensors if t.role != "view")
    runs = runs_of(answer, CHIPS[question["generation"]], moved_once)
    return Prediction(target, lowered.config, runs, answer["loops"])


def question_of(lowered: Lowered, arrays: Arrays, values: Mapping[str, Any]) -> dict[str, Any]:
    """All that the time of a kernel depends on, but for the versions of what answers."""
    target = lowered.target
    if not isinstance(target, Target) or target.name.removeprefix("tpu:") not in CHIPS:
        known = ", ".join(f"'tpu:{name}'" for name in CHIPS)
        raise CallError(
            f"times are predicted for TPUs, {target} is none", hint=f"use one of {known}"
        )
    generation = target.name.removeprefix("tpu:")
    given = [_by_position(lowered, each) for each in sets(lowered, arrays, values)]
    return request_of(lowered, generation) | {"generation": generation, "sets": given}


def digest(question: Mapping[str, Any]) -> str:
    """Of a question and the versions: the same as long as its answer is."""
    return hashlib.sha256(_key(question).encode()).hexdigest()


def _key(question: Mapping[str, Any]) -> str:
    return json.dumps({"versions": _versions(), **question}, sort_keys=True)


def remembered(
    question: Mapping[str, Any],
    make: Callable[[], dict[str, Any]],
    folder: Path | None,
    timeout: float,
) -> dict[str, Any]:
    """A worker's answer, from disk if the same was asked before with the same versions."""
    return store.kept(_key(question), make, folder or store.folder(), timeout)


@dataclass(frozen=True)
class Compiler:
    """A worker that answers many questions, and where its compiler writes schedules to."""

    worker: aot.Worker
    dump: str

    @staticmethod
    @contextmanager
    def started() -> Iterator[Compiler]:
        """A new one, until the end of the with block."""
        with (
            tempfile.TemporaryDirectory() as dump,
            aot.Worker(COMMAND, FLAGS.format(folder=dump)) as worker,
        ):
            yield Compiler(worker, dump)

    def asking(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """A question with the folder for its schedules, out of which those are taken that a program
        left behind that was refused, or took too long: they would be answers about this one."""
        for path in Path(self.dump).iterdir():
            path.unlink()
        return {**question, "dump": self.dump}


def _answer(
    lowered: Lowered, question: Mapping[str, Any], timeout: float, compiler: Compiler | None
) -> dict[str, Any]:
    with Compiler.started() if compiler is None else nullcontext(compiler) as using:
        return asked(lowered, using.worker, using.asking(question), timeout)


@functools.cache
def _versions() -> str:
    """Whatever an answer depends on besides the question: the compiler, and this code."""
    installed = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    here, compiling = Path(__file__).parent, Path(aot.__file__).parent
    files = [here / f"{name}.py" for name in EXECUTING]
    files += [compiling / f"{name}.py" for name in ("bundles", "hlo", "worker")]
    code = "\n".join(code_of(path.read_text()) for path in (*files, Path(chips.__file__)))
    return "; ".join([*installed, hashlib.sha256(code.encode()).hexdigest()])


def code_of(text: str) -> str:
    """What a module computes: not how it is laid out, nor what it says about itself."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


# ------------------------------------------------------------ integers that steer


def steering(lowered: Lowered) -> tuple[str, ...]:
    """Integer arguments that scalar memory holds: they say where a step's blocks are, or how many
    steps there are."""
    assert isinstance(lowered.plan, Plan)
    scalars = {name for launch in lowered.plan.launches for name in launch.scalars}
    for tensor in reversed(lowered.plan.ir.tensors):  # views stand behind what they show
        if tensor.view is not None and tensor.name in scalars:
            scalars.add(tensor.view.source)
    inputs = (t for t in lowered.ir.tensors if t.role == "input" and t.dtype in INTEGERS)
    return tuple(tensor.name for tensor in inputs if tensor.name in scalars)


def sets(lowered: Lowered, arrays: Arrays, values: Mapping[str, Any]) -> tuple[Arrays, ...]:
    """Every set of values of the integers that steer a kernel; CallError if some have none."""
    needed = steering(lowered)
    for name in values:
        if name not in needed:
            asks = f"these do: {', '.join(needed)}" if needed else "no argument does"
            raise CallError(f"values of {name} do not steer {lowered.ir.name}", hint=asks)
    listed = {name: _listed(lowered, name, arrays, values) for name in needed}
    count = max((len(each) for each in listed.values()), default=1)
    for name, each in listed.items():
        if len(each) not in (1, count):
            raise CallError(
                f"values has {len(each)} sets of {name} and {count} of another argument",
                hint="give as many of each, or one",
            )
    return tuple({name: each[i % len(each)] for name, each in listed.items()} for i in range(count))


def _listed(
    lowered: Lowered, name: str, arrays: Arrays, values: Mapping[str, Any]
) -> list[np.ndarray]:
    """The sets of one argument, as 32-bit integers."""
    if name not in values and name not in arrays:
        raise CallError(
            f"{name} is a shape without data, and its values steer {lowered.ir.name}: how long it "
            "takes depends on them",
            hint=f'pass values={{"{name}": array}}, or a list of arrays for their mean and worst',
        )
    shape = lowered.ir.tensor(name).shape
    try:
        found = np.asarray(values.get(name, arrays.get(name)))
        what = f"{found.dtype}{list(found.shape)}"
    except ValueError:  # as NumPy says it
        found, what = np.zeros(0), "of several shapes"
    if found.shape == shape:
        found = found[None]
    if found.shape[1:] != shape or not len(found) or found.dtype.kind not in "iu":
        raise CallError(
            f"values of {name} are {what}",
            hint=f"give integers of shape {list(shape)}, or a list of such arrays",
        )
    return [narrowed(name, found[place].astype(np.int64)) for place in range(len(found))]


def _by_position(lowered: Lowered, given: Arrays) -> dict[str, Any]:
    inputs = [tensor.name for tensor in lowered.ir.tensors if tensor.role == "input"]
    return {
        str(place): [list(given[name].shape), given[name].reshape(-1).tolist()]
        for place, name in enumerate(inputs)
        if name in given
    }
