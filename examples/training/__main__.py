"""python -m examples.training [--model NAME] [--framework NAME] [--steps N] [--plot FOLDER]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from . import batches, curves, in_jax, in_torch
from .models import LONGEST, MODELS

ROWS, SEQUENCES, BATCHES = 512, 12, 8
FRAMEWORKS = {"jax": in_jax, "torch": in_torch}
APART = 1e-3  # of losses that should be the same: products are summed in another order


def main(argv: Sequence[str]) -> int:
    """Trains with kernels and without, and compares; 0 if every pair of curves is the same."""
    options = _options(argv)
    found = batches.batches(BATCHES, ROWS, SEQUENCES, LONGEST)
    lengths = [n for b in found for n in b.offsets[1:] - b.offsets[:-1]]
    print(
        f"{len(found)} batches of {ROWS} rows; sequences of {min(lengths)} to {max(lengths)} bytes"
    )
    apart = [_train(m, f, found, options) for m in options.model for f in options.framework]
    return int(max(apart) > APART)


def _train(
    model: str, framework: str, found: Sequence[batches.Batch], options: argparse.Namespace
) -> float:
    """One model in one framework; returns how far its two curves are apart."""
    module: ModuleType = FRAMEWORKS[framework]
    both = {
        name: module.losses(MODELS[model], found, options.steps, kernels)
        for name, kernels in (("kernels", True), (f"{framework} alone", False))
    }
    ours, theirs = both.values()
    apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    title = f"{model} from {framework}: nats per byte"
    print(f"\n{title}, {ours[0]:.3f} -> {ours[-1]:.3f}; curves are {apart:.1e} apart at most")
    print(curves.text(both))
    if options.plot:
        options.plot.mkdir(parents=True, exist_ok=True)
        path = options.plot / f"{model}-{framework}.svg"
        path.write_text(curves.svg(title, both), encoding="utf-8")
        print(f"plotted in {path}")
    return apart


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.training", description=main.__doc__)
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--framework", nargs="+", choices=FRAMEWORKS, default=list(FRAMEWORKS))
    parser.add_argument("--steps", type=int, default=32, help="of Adam (default %(default)s)")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="for an SVG of each pair")
    options = parser.parse_args(argv)
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
