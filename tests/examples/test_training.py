"""Training with kernels gives the losses that each framework's own operations give."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="one of the two frameworks")

from examples.training import batches, curves, in_jax, in_torch
from examples.training.models import LONGEST, MODELS

SLOW, THOROUGH = pytest.mark.slow, pytest.mark.thorough


@pytest.mark.parametrize(
    ("model", "framework"),
    [
        ("experts", in_torch),
        pytest.param("experts", in_jax, marks=THOROUGH),
        pytest.param("transformer", in_jax, marks=SLOW),
        pytest.param("transformer", in_torch, marks=THOROUGH),
        pytest.param("hstu", in_jax, marks=THOROUGH),
        pytest.param("hstu", in_torch, marks=SLOW),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_curves_are_those_of_the_framework(model, framework):
    found = batches.batches(2, 256, 8, LONGEST)
    ours = framework.losses(MODELS[model], found, 5)
    theirs = framework.losses(MODELS[model], found, 5, kernels=False)
    assert ours == pytest.approx(theirs, abs=2e-5)
    assert ours[4] < ours[0] - 0.5  # the batch of the first step again


def test_batches_have_rows_in_no_sequence_and_sequences_without_rows():
    (batch,) = batches.batches(1, 256, 64, LONGEST)
    alive = batch.offsets[-1]
    assert alive < 256 and batch.weights.sum() == alive
    assert (batch.offsets[1:] == batch.offsets[:-1]).any()
    first = batch.offsets[1]
    assert (batch.following[: first - 1] == batch.tokens[1:first]).all()
    assert batch.places[first] == 0


def test_plots():
    both = {"kernels": [3.0, 2.0, 1.0], "alone": [3.0, 2.0, 2.0]}
    text = curves.text(both).splitlines()
    assert text[0].startswith("  3.000 |o") and text[11].endswith("o")
    assert sum(line.count("+") for line in text[:12]) == 1  # where the curves are apart
    picture = curves.svg("loss", both)
    assert picture.count("<polyline") == 2 and "48.0,48.0" in picture
