"""The picture of a soak: memory, processes, files and delays over the hours, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from docs.figures.draw import Drawing
from tests.soak.samples import Sample
from tests.soak.stream import Stream

WIDTH, LANE, LEFT, RIGHT, TOP, GAP = 760, 110, 70, 150, 44, 34
COLOURS = ("#1f77b4", "#d62728")
DELAY_STEP_S = 60
Points = list[tuple[float, float]]


def picture(samples: Sequence[Sample], delays: Sequence[tuple[float, float]], stream: Stream) -> str:
    """Return the picture as SVG. delays: (seconds since the begin, ms) of the copy."""
    lanes: list[tuple[str, dict[str, Points]]] = [
        ("MiB", {"Java": _points(samples, "java_mib"), "Python": _points(samples, "python_mib")}),
        ("processes", {"Python": _points(samples, "python_processes")}),
        ("files", {"checkpoints": _points(samples, "checkpoint_files")}),
        ("ms, copy", dict(zip(("p99 a minute", "median a minute"), _delays(delays), strict=True))),
    ]
    height = TOP + len(lanes) * (LANE + GAP) + 20
    title = f"{stream.seconds / 60:.0f} minutes at {stream.rate:,} events/s, with kills"
    drawing = Drawing(WIDTH, height, title)
    for number, (unit, lines) in enumerate(lanes):
        _lane(drawing, TOP + number * (LANE + GAP), unit, lines, stream.seconds)
    return drawing.svg()


def _points(samples: Sequence[Sample], field: str) -> Points:
    return [(one.at_s, getattr(one, field)) for one in samples if one.at_s >= 0]


def _delays(delays: Sequence[tuple[float, float]]) -> tuple[Points, Points]:
    """Return p99 and median of each minute."""
    by_step: dict[int, list[float]] = {}
    for at_s, ms in delays:
        by_step.setdefault(int(at_s // DELAY_STEP_S), []).append(ms)
    each = [((step + 0.5) * DELAY_STEP_S, values) for step, values in sorted(by_step.items())]
    high = [(at_s, float(np.percentile(values, 99))) for at_s, values in each]
    return high, [(at_s, float(np.median(values))) for at_s, values in each]


def _lane(drawing: Drawing, top: float, unit: str, lines: dict[str, Points], seconds: float) -> None:
    most = max((value for points in lines.values() for _, value in points), default=1.0) or 1.0
    bottom, width = top + LANE, WIDTH - LEFT - RIGHT
    for share in (0, 0.5, 1):
        y = bottom - share * LANE
        drawing.line(LEFT, y, LEFT + width, y, colour="#e0e0e0")
        drawing.text(LEFT - 8, y + 4, f"{share * most:,.0f}", anchor="end")
    drawing.text(LEFT + width + 12, top + 8, unit, weight="bold")
    for share in (0, 0.25, 0.5, 0.75, 1):
        drawing.text(LEFT + share * width, bottom + 16, f"{share * seconds / 60:.0f} min", anchor="middle")
    for number, (name, points) in enumerate(lines.items()):
        pixels = [(LEFT + min(x / seconds, 1) * width, bottom - y / most * LANE) for x, y in points]
        for (x, y), (to_x, to_y) in pairwise(pixels):
            drawing.line(x, y, to_x, to_y, colour=COLOURS[number], width=1.5)
        drawing.line(LEFT + width + 12, top + 28 + number * 18, LEFT + width + 30, top + 28 + number * 18,
                     colour=COLOURS[number], width=2)  # fmt: skip
        drawing.text(LEFT + width + 36, top + 32 + number * 18, name)
