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
import json
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import jax
from jax.experimental import serialize_executable, topologies
from jax.sharding import SingleDeviceSharding

from ..codegen.source import Source
from ..runtime.jax_compat import traced_for
from .bundles import collect
from .hlo import copies, kernels


def main() -> None:
    """Answers until stdin ends."""
    answers = _own_stdout()
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compiles one module; whatever is raised is an answer too."""
    source = Source(request["text"], request["entry"])
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            found = _compile(source, request)
        return found | {"warnings": [f"{w.category.__name__}: {w.message}" for w in caught]}
    except Exception as error:
        return {"error": _text(error), "line": failing_line(error, source.filename)}


def failing_line(error: BaseException, filename: str) -> int | None:
    """The innermost line of the generated module that an error names, None if it names none."""
    named = re.compile(rf'"{re.escape(filename)}":(\d+)')
    for raised in _chain(error):
        frames = traceback.extract_tb(raised.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == filename]
        lines = lines or [int(number) for number in named.findall(str(raised))[:1]]
        if lines:
            return lines[-1]
    return None


def _compile(source: Source, request: Mapping[str, Any]) -> dict[str, Any]:
    device = _device(request["topology"])
    sharding = SingleDeviceSharding(device)
    operands = [
        jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=sharding)
        for shape, dtype in request["operands"]
    ]
    start = time.perf_counter()
    with traced_for(device.device_kind, device.num_cores):
        # where there is no operand, only the result can say which device is meant
        placed: dict[str, Any] = {} if operands else {"out_shardings": sharding}
        made = jax.jit(source.load(), **placed).lower(*operands).compile()
    seconds = time.perf_counter() - start
    memory, text, dump = made.memory_analysis(), made.as_text() or "", request["dump"]
    assert memory is not None, "the TPU compiler always says"
    return {
        "code": memory.generated_code_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "copies": copies(text),
        "bundles": collect(Path(dump), kernels(text)) if dump else None,
        "seconds": round(seconds, 3),
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


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from."""
    raised: BaseException | None = error
    while raised is not None:
        yield raised
        raised = raised.__cause__ or raised.__context__


def _text(error: BaseException) -> str:
    """The message, and that of the compiler's own error behind it; tracebacks are left out."""
    texts = [
        f"{type(raised).__name__}: {raised}"
        for raised in _chain(error)
        if "StackTrace" not in type(raised).__name__
    ]
    return "\n".join(dict.fromkeys(texts))


def _own_stdout() -> IO[str]:
    """Stdout for answers alone: what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    main()
