"""text(curves), svg(curves): losses over steps, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

ROWS, COLUMNS = 12, 64
SIGNS = "o+x*"
COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
WIDTH, HEIGHT, EDGE = 640, 320, 48

Curves = Mapping[str, Sequence[float]]


def text(curves: Curves) -> str:
    """A plot of characters; of curves that meet, the one named first is seen."""
    low, high = _range(curves)
    field = [[" "] * COLUMNS for _ in range(ROWS)]
    for sign, values in reversed(list(zip(SIGNS, curves.values(), strict=False))):
        for step, value in enumerate(values):
            column = round(step * (COLUMNS - 1) / max(len(values) - 1, 1))
            field[round((high - value) / (high - low) * (ROWS - 1))][column] = sign
    scale = [f"{high:7.3f} |", *["        |"] * (ROWS - 2), f"{low:7.3f} |"]
    lines = [left + "".join(row).rstrip() for left, row in zip(scale, field, strict=True)]
    keys = "   ".join(f"{s} {name}" for s, name in zip(SIGNS, curves, strict=False))
    return "\n".join([*lines, f"        +{'-' * COLUMNS}", f"         {keys}"])


def svg(title: str, curves: Curves) -> str:
    """The same as a picture: a line for each curve, thinner ones above thicker ones."""
    low, high = _range(curves)
    parts = [_text(EDGE, 24, title), _text(4, EDGE + 4, f"{high:.2f}")]
    parts += [_text(4, HEIGHT - EDGE + 4, f"{low:.2f}"), _text(WIDTH // 2, HEIGHT - 12, "step")]
    parts.append(
        f'<path d="M{EDGE} {EDGE}V{HEIGHT - EDGE}H{WIDTH - EDGE}" fill="none" stroke="#888"/>'
    )
    for n, ((name, values), color) in enumerate(zip(curves.items(), COLORS, strict=False)):
        across = (WIDTH - 2 * EDGE) / max(len(values) - 1, 1)
        down = (HEIGHT - 2 * EDGE) / (high - low)
        points = (
            f"{EDGE + s * across:.1f},{EDGE + (high - v) * down:.1f}" for s, v in enumerate(values)
        )
        thick = 2 * (len(curves) - n)
        parts.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" '
            f'stroke-width="{thick}" stroke-opacity="0.8"/>'
        )
        parts.append(_text(WIDTH // 2, EDGE + 18 * (n + 1), name, color))
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    inner = "\n".join(["<rect width='100%' height='100%' fill='white'/>", *parts])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{inner}\n</svg>\n'


def _text(x: int, y: int, words: str, color: str = "#222") -> str:
    style = f'font-family="sans-serif" font-size="13" fill="{color}"'
    return f'<text x="{x}" y="{y}" {style}>{words}</text>'


def _range(curves: Curves) -> tuple[float, float]:
    values = [v for curve in curves.values() for v in curve]
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
