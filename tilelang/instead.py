"""What other packages call the things of this one: said where an attribute is not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .errors import CallError, nearest

_WHOLE = "jax.grad(loss) and loss.backward() go through a kernel; k.grad_source(...) prints it"
_TRANSFORMED = "a kernel k is called in what JAX and torch transform: jax.jit, torch.compile, vmap"
_TUNED = "tile.tune(k, [arguments, ...]) finds a config and keeps it"
_CHOSEN = "k(..., config=tile.Config({...})) takes one; k.lower(...).config is what was chosen"
_CALLED = "k(...) compiles what it has not met, and runs it; it chooses its own grid"
_COMPILED = "k.source(...) is what is printed, k.compile(..., target=...) what compilers make of it"
_WHERE = "a kernel runs where its arguments are"

OF_PACKAGE: Mapping[str, str] = {
    **dict.fromkeys(("jit", "function", "prim_func"), "the decorator is tile.kernel"),
    **dict.fromkeys(("grad", "vjp", "backward", "value_and_grad"), _WHOLE),
    **dict.fromkeys(("compile", "vmap", "export"), _TRANSFORMED),
    **dict.fromkeys(("config", "configs", "heuristics"), _CHOSEN),
    "autotune": _TUNED,
}
OF_KERNEL: Mapping[str, str] = {
    **dict.fromkeys(("grad", "backward", "value_and_grad", "register_autograd"), _WHOLE),
    **dict.fromkeys(("jit", "vmap", "export"), _TRANSFORMED),
    **dict.fromkeys(("tune", "autotune", "benchmark"), _TUNED),
    **dict.fromkeys(("config", "configs", "best_config", "set_config"), _CHOSEN),
    **dict.fromkeys(("run", "warmup", "bind", "apply", "forward"), _CALLED),
    **dict.fromkeys(("asm", "ptx", "hlo", "to_triton_code", "get_kernel_source"), _COMPILED),
    **dict.fromkeys(("to", "cuda", "cpu", "device"), _WHERE),
}


_POLICY = 'rows="bucket" lets calls with some more or fewer rows share one program'
_ABOUT: Mapping[tuple[str, ...], str] = {  # how the name of an option begins
    ("autotune", "configs", "key", "tune"): _TUNED,
    ("static", "dynamic"): _POLICY,
    ("block", "num_", "tile"): "config=tile.Config(...) says blocks and what else a device wants",
}


def of_option(name: str) -> str:
    """What there is instead of an option of another package; "" if that is not known."""
    return next((hint for begins, hint in _ABOUT.items() if name.lower().startswith(begins)), "")


def refuse_options(others: Iterable[str], known: Iterable[str]) -> None:
    """CallError for the first of the options of a decorator that there are not."""
    for name in others:
        close = nearest(name, known)
        hint = of_option(name) or (f"did you mean {close}?" if close else "")
        hint = hint or f"its options are {', '.join(known)}"
        raise CallError(f"tile.kernel has no option {name!r}", hint=hint)


def absent(owner: str, name: str, instead: Mapping[str, str], there: Iterable[str]) -> str:
    """The words of an AttributeError, with what there is instead if that is known."""
    what = f"{owner} has no attribute {name!r}"
    if name.startswith("_"):  # what libraries ask everything for
        return what
    close = nearest(name, (n for n in there if not n.startswith("_")))
    hint = instead.get(name, f"did you mean {close}?" if close else "")
    return f"{what}; {hint}" if hint else what
