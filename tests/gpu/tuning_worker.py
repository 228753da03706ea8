"""python -m tests.gpu.tuning_worker: the worker of `tile.tune` for GPUs, in Triton's interpreter.

argument  JSON: block of rows -> "hang", "crash", "wrong"; times are those of a fake clock, on which
          larger blocks are faster
"""

from __future__ import annotations

import json
import os
import sys
import time

import tests.gpu.interpreter  # noqa: F401 (mends it, before triton is imported)
from tilelang.aot.serving import serve
from tilelang.autotune import gpu_worker
from tilelang.autotune.handed import load, save
from tilelang.runtime.lowering import Lowered

FAULTS = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
RAN = gpu_worker.ran


def ran(lowered: Lowered, request):
    size = lowered.config.block("tm") or 1
    fault, found = FAULTS.get(str(size), ""), RAN(lowered, request)
    if fault == "crash":
        os._exit(139)
    if fault == "hang":
        time.sleep(600)
    if fault == "wrong":
        for path in map(gpu_worker.Path, request["results"]):
            save(path, [array + 1 for array in load(path)])
    return found | {"seconds": [1.0 / size for _ in found["seconds"]]}


if __name__ == "__main__":
    gpu_worker.ran = ran
    serve(gpu_worker.answered)
