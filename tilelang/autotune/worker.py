"""python -m tilelang.autotune.worker: runs one generated module on every case, in its own process.

request  text, entry   the generated module and its host function
         kind, cores   of the TPU that it was planned for
         interpret     whether to interpret it on the CPU, else it runs on the device that is here
         cases         files of arguments, as `save` writes them
         results       files to write what it returns to
         rounds        how often it is timed; 0: not at all
answer   seconds: the least of the rounds, for each case
         or error, line: what was raised, and the line of the module that it is about
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from ..aot.serving import serve
from ..aot.worker import answered
from ..codegen.source import Source
from ..runtime.program import Device, generated
from ..runtime.traced import traced
from .handed import load, save


def ran(source: Source, request: Mapping[str, Any]) -> dict[str, Any]:
    """Runs every case, and times it."""
    run, seconds = _jitted(source, request), []
    for case, result in zip(request["cases"], request["results"], strict=True):
        arrays = [jnp.asarray(array) for array in load(Path(case))]
        _poison(jax.eval_shape(run, *arrays))
        found = [np.asarray(leaf) for leaf in jax.tree.leaves(run(*arrays))]
        save(Path(result), found)
        seconds.append(_least(run, arrays, request["rounds"]))
    return {"seconds": seconds}


def _jitted(source: Source, request: Mapping[str, Any]) -> Callable[..., Any]:
    interpret, function = request["interpret"], source.load()

    device = Device(request["kind"], request["cores"], interpret, present=not interpret)
    run, platform = generated(function, device), "cpu" if interpret else "tpu"
    return jax.jit(lambda *arrays: jaxpr_as_fun(traced(run, arrays, platform))(*arrays))


def _poison(results: Any) -> None:
    """Memory as large as the results is left full of NaN: where nothing is stored, it shows.

    The interpreter does so itself.
    """
    for leaf in jax.tree.leaves(results):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            jnp.full(leaf.shape, jnp.nan, leaf.dtype).block_until_ready()


def _least(run: Callable[..., Any], arrays: Sequence[Any], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        jax.block_until_ready(run(*arrays))
        times.append(time.perf_counter() - start)
    return min(times, default=0.0)


if __name__ == "__main__":
    serve(functools.partial(answered, make=ran))
