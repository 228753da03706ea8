"""python -m examples.real_text [--tokens N] [FILES...]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from examples.jagged import grouped_gemm, jagged_attention

from . import batches, measure, report, text

EXPERTS, WIDTH, HIDDEN = 16, 128, 256
HEADS, HEAD_WIDTH = 2, 64
WRONG = 1e-4  # a relative error that float32 does not explain


def main(argv: Sequence[str]) -> int:
    """Runs both kernels on the files; 0 if every result is right."""
    options = _options(argv)
    try:
        documents = [text.read(p) for p in options.files] or text.documentation()
    except text.UnreadableError as error:
        print(f"real_text: {error}", file=sys.stderr)
        return 2
    sentences = text.batch(documents, options.tokens)
    tokens = sum(map(len, sentences))
    print(text.origin(documents), f"sentences: {len(sentences)}", f"tokens: {tokens:,}", sep="  ")
    print(f"Every token goes to 2 of {EXPERTS} experts; every sentence attends to itself.")
    print("" if tokens else "There are no words: the batch is empty, and runs all the same.\n")
    tasks = [grouped_gemm_task(sentences), attention_task(sentences)]
    runs = [measure.run(task, f) for task in tasks for f in measure.FRAMEWORKS]
    report.show(runs)
    print(FOOTNOTE)
    print(f"\nThe Pallas source of {tasks[0].title}, as it ran:\n")
    print(tasks[0].kernel.source(*tasks[0].arguments))
    wrong = [run for run in runs if not run.error <= WRONG]
    for run in wrong:
        print(f"WRONG: {run.task.title} from {run.framework}: {run.error:.1e}", file=sys.stderr)
    return 1 if wrong else 0


FOOTNOTE = """
useful        what the lengths ask for          computed   what the kernel's tiles cover
padded batch  every group as long as the longest
error         largest difference to float64 NumPy, relative to the largest value
first call    from Python source to result; what torch compiled, JAX finds compiled
Interpreted on the CPU: the times say what a call costs here, and nothing about a TPU."""


def grouped_gemm_task(sentences: Sequence[Sequence[str]]) -> measure.Task:
    """Token rows, sorted by expert, times the weights of their expert."""
    rows, _ = batches.embed(sentences, WIDTH)
    x, offsets = batches.route(rows, EXPERTS)
    w = batches.weights(EXPERTS, WIDTH, HIDDEN)
    expected = grouped_gemm.oracle(x, w, offsets)
    kernel = grouped_gemm.grouped_gemm
    return measure.Task("grouped GEMM", kernel, (x, w, offsets), expected, offsets, 1, "rows")


def attention_task(sentences: Sequence[Sequence[str]]) -> measure.Task:
    """Every token attends to the tokens of its own sentence."""
    rows, offsets = batches.embed(sentences, WIDTH)
    q, k, v = batches.heads(rows, HEADS, HEAD_WIDTH)
    expected = np.zeros(q.shape)
    for begin, end in pairwise(offsets):  # each on its own: all of them at once need T * T * B
        part = (a[:, begin:end] for a in (q, k, v))
        expected[:, begin:end] = jagged_attention.oracle(*part, np.array([0, end - begin]))
    kernel = jagged_attention.jagged_attention
    arguments = (q, k, v, offsets)
    return measure.Task("jagged attention", kernel, arguments, expected, offsets, 2, "scores/head")


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.real_text", description=main.__doc__)
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="text of any kind; by default the documentation of Python and installed packages",
    )
    parser.add_argument(
        "--tokens",
        type=int,
        default=2048,
        help="how many tokens the batch has at most (default %(default)s)",
    )
    options = parser.parse_args(argv)
    if options.tokens < text.MAX_SENTENCE:
        parser.error(f"--tokens must be at least {text.MAX_SENTENCE}, the longest sentence")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
