"""python -m tilelang.autotune.gpu_worker: runs one lowered kernel on every case, as calls do.

request  lowered   a file with what `lower` returned
         cases     files of arguments, as `save` writes them
         results   files to write to what it returns, and what it changes
answer   seconds: the median of many runs of each case, the L2 cache emptied before each
         or error, line: what was raised, and the line of the module that it is about

A request without `lowered` asks what is here: `device`, its name, and `target`.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..aot.serving import failing_line, serve, text_of
from ..codegen.triton.target import Target
from ..errors import PlanError
from ..runtime import bridge
from ..runtime.cuda.device import interprets, target_of
from ..runtime.cuda.execution import prepare
from ..runtime.given import given_of
from ..runtime.launch import operands_of
from ..runtime.lowering import Lowered
from ..schedule.refusal import allowed
from .handed import load, save

INTERPRETED = "Triton's interpreter"


def answered(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request, or what was raised."""
    if "lowered" not in request:
        return here()
    lowered: Lowered = pickle.loads(Path(request["lowered"]).read_bytes())
    try:
        return ran(lowered, request)
    except Exception as error:  # of Triton, of torch, of the driver
        return {"error": text_of(error), "line": failing_line(error, lowered.source.filename)}


def here() -> dict[str, Any]:
    """The GPU and its target, "" where there is none; None is any target."""
    if interprets():
        return {"device": INTERPRETED, "target": None}
    if not torch.cuda.is_available():
        return {"device": "", "target": ""}
    device = torch.device("cuda", torch.cuda.current_device())
    try:
        target = target_of(device).name
    except PlanError:
        target = ""
    return {"device": torch.cuda.get_device_name(device), "target": target}


def ran(lowered: Lowered, request: Mapping[str, Any]) -> dict[str, Any]:
    """Runs every case, and times it."""
    seconds = []
    for case, result in zip(request["cases"], request["results"], strict=True):
        tensors = [_tensor(array) for array in load(Path(case))]
        inputs = [t for t in lowered.ir.tensors if t.role == "input"]
        given = dict(zip([t.name for t in inputs], tensors, strict=True))
        call = partial(launch(lowered, given), tensors)
        returned = _into_poison(call)
        changed = [given[t.name] for t in inputs if t.mutated]
        save(Path(result), [_array(t) for t in (*pytree.tree_leaves(returned), *changed)])
        seconds.append(_median(call))
    return {"seconds": seconds}


def launch(lowered: Lowered, given: Mapping[str, Any]) -> Callable[[Sequence[Any]], Any]:
    """What a later call of the kernel with such tensors does."""
    ir, facts, target = lowered.ir, lowered.facts, lowered.target
    assert isinstance(target, Target), "what is handed over was planned for a GPU"
    operands, values = operands_of(given_of(given)), list(given.values())
    return allowed(prepare(ir, facts, operands, values, target, lambda _: lowered, checks=False))


def _into_poison(call: Callable[[], Any]) -> Any:
    """A call that gets memory full of NaN: where nothing is stored, it shows."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # then torch fills what it allocates
    try:
        return call()
    finally:
        torch.use_deterministic_algorithms(before)


def _median(call: Callable[[], Any]) -> float:
    """Seconds of a call on the GPU; 0 in the interpreter."""
    if interprets():
        return 0.0
    testing = importlib.import_module("triton.testing")
    return testing.do_bench(call, return_mode="median") * 1e-3


def _tensor(array: np.ndarray) -> Any:
    """An array on the GPU; the interpreter reads the CPU's memory."""
    place = "cpu" if interprets() else "cuda"
    name = str(array.dtype)
    carrier = bridge.REINTERPRETED[name][0] if name in bridge.REINTERPRETED else name
    tensor = torch.from_numpy(np.array(array).view(carrier)).to(place)
    return tensor.view(getattr(torch, name))


def _array(tensor: Any) -> np.ndarray:
    return bridge.torch_to_numpy("result", str(tensor.dtype).removeprefix("torch."))(tensor.cpu())


if __name__ == "__main__":
    serve(answered)
