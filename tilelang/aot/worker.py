"""python -m tilelang.aot.worker: compiles generated modules for TPUs, on a machine without one.

Reads requests from stdin and writes answers to stdout, a line of JSON each, until stdin ends.

request  text, entry     the generated module and its host function
         operands        [[shape, dtype], ...]
         topology        "v6e:2x2"
         dump            the folder that libtpu dumps bundles to, or null
         serialize       whether to send the executable
answer   code, temporaries, copies, bundles, seconds, warnings, payload
         or error, line: what was raised, and the line of the module that it is about
"""

from __future__ import annotations

import base64
import functools
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable, topologies
from jax.sharding import SingleDeviceSharding

from ..codegen.source import Source
from ..runtime.jax_compat import traced_for
from .bundles import collect
from .hlo import copies, kernels
from .serving import failing_line, serve, text_of


@dataclass(frozen=True)
class Built:
    """A compiled module: `traced` calls a function with it and its operands, as it was traced."""

    executable: Any
    seconds: float
    traced: Callable[[Callable[..., Any]], Any]


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compiles one module; whatever is raised is an answer too."""
    return answered(request, _compile)


def answered(
    request: Mapping[str, Any], make: Callable[[Source, Mapping[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """What is made of a request's module, with the warnings; whatever is raised is an answer."""
    source = Source(request["text"], request["entry"])
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            found = make(source, request)
        return found | {"warnings": [f"{w.category.__name__}: {w.message}" for w in caught]}
    except Exception as error:
        return {"error": text_of(error), "line": failing_line(error, source.filename)}


def build(source: Source, request: Mapping[str, Any]) -> Built:
    """Compiles a module for one core of the topology; anew if its schedule is to be dumped."""
    if request["dump"]:  # a program that is remembered, here or on disk, leaves no dump
        jax.config.update("jax_enable_compilation_cache", False)
        jax.clear_caches()
    device = _device(request["topology"])
    sharding = SingleDeviceSharding(device)
    operands = [
        jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=sharding)
        for shape, dtype in request["operands"]
    ]

    def traced(function: Callable[..., Any]) -> Any:
        with traced_for(device.device_kind, device.num_cores):
            return function(source.load(), operands)

    # the results say which device is meant, also where no operand does: one that nothing reads is
    # dropped, and what it said with it
    start = time.perf_counter()
    made = traced(lambda host, given: jax.jit(host, out_shardings=sharding).lower(*given).compile())
    return Built(made, time.perf_counter() - start, traced)


def _compile(source: Source, request: Mapping[str, Any]) -> dict[str, Any]:
    built = build(source, request)
    made = built.executable
    memory, text, dump = made.memory_analysis(), made.as_text() or "", request["dump"]
    assert memory is not None, "the TPU compiler always says"
    return {
        "code": memory.generated_code_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "copies": copies(text),
        "bundles": collect(Path(dump), kernels(text)) if dump else None,
        "seconds": round(built.seconds, 3),
        "payload": _payload(made) if request["serialize"] else "",
    }


@functools.cache
def _device(topology: str) -> Any:
    """A core of a chip that is described, not there."""
    described = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    return described.devices[0]


def _payload(made: Any) -> str:
    """The executable in base64; "" where this JAX cannot serialise it."""
    try:
        return base64.b64encode(serialize_executable.serialize(made)[0]).decode()
    except Exception:
        return ""


if __name__ == "__main__":
    serve(answer)
