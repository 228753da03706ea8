"""Candidate: a legal config, and what is known of it before anything is compiled."""

from __future__ import annotations

from dataclasses import dataclass

from .config import Config


@dataclass(frozen=True)
class Candidate:
    """A config that plans.

    seconds  estimated with typical offsets; None for what nothing estimates: the CPU and GPUs
    memory   bytes of a TPU's vector memory, or of a GPU's shared memory, of the largest launch
    fitted   whether the estimate was fitted to schedules of kernels that run in this form
    """

    config: Config
    seconds: float | None
    memory: int
    fitted: bool = False

    def __str__(self) -> str:
        """A line."""
        time = "no estimate" if self.seconds is None else f"{self.seconds * 1e6:.4g} us"
        doubt = "" if self.fitted or self.seconds is None else " (a form it was not fitted to)"
        return f"{time}{doubt}, {self.memory / 1024:.0f} KiB: {self.config.to_json()}"
