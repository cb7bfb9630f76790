# ruff: noqa: INP001  a script beside the picture it draws
"""Draws the picture of docs/explanation/per-key-watermarks.md, and prints its table: `python docs/figures/per_key.py`.

Rule: the operators of the product answer. The stream: 200 devices tell something every 10 minutes for three days; one
in twenty has no network for 20 hours of the second day and uploads then. Windows of an hour, a lag of 15 minutes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pyarrow as pa

from keyedwm.operators.aggregates.functions import count
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.store import MemoryStore

HERE = Path(__file__).parent
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
LAG_MS = 15 * MINUTE_MS
DEVICES, LATE = 200, 10
SCHEMA = pa.schema([("device", pa.string()), ("time", pa.int64())])
ASKED = {
    "one watermark": {},
    "allowed lateness of a day": {"lateness_ms": DAY_MS},
    "a watermark per key, behind a day": {"key_watermark": PerKey(LAG_MS, DAY_MS)},
}
COLOURS = ("#999999", "#c2571a", "#1a6bc2")


@dataclass
class Answer:
    """What a way of closing windows gave. delay_ms: from a window's end to its result, for devices on time."""

    lost: int = 0
    delays_ms: list[int] = field(default_factory=list)
    results: int = 0
    held: list[int] = field(default_factory=list)


def stream():
    """Yield for each 10 minutes what arrives: (device, event time)."""
    kept, rng = {number: [] for number in range(LATE)}, random.Random(7)  # noqa: S311  a picture
    for now_ms in range(0, 3 * DAY_MS, 10 * MINUTE_MS):
        is_away = DAY_MS + 2 * HOUR_MS <= now_ms < DAY_MS + 22 * HOUR_MS
        rows = []
        for number in range(DEVICES):
            made = (number, now_ms - rng.randrange(5 * MINUTE_MS))
            if number < LATE and is_away:
                kept[number].append(made)
            else:
                rows += [*kept.pop(number, []), made]
                kept.setdefault(number, []) if number < LATE else None
        yield now_ms, rows


def answered(how) -> Answer:
    """Run the stream through the plan's operator."""
    plan = WindowPlan(
        schema=SCHEMA, by=("device",), time="time", window=SlidingWindow(HOUR_MS, HOUR_MS),
        aggregates=(("rows", count()),), **how,
    )  # fmt: skip
    operator, answer = operator_of(plan, MemoryStore()), Answer()
    for now_ms, rows in stream():
        columns = [[f"device {number}" for number, _ in rows], [time_ms for _, time_ms in rows]]
        partials = combine_rows(plan, pa.table(columns, schema=SCHEMA))
        made = [*operator.on_rows(0, partials, None), *operator.on_watermark(0, 0, now_ms - LAG_MS)]
        for output in made:
            answer.results += output.rows.num_rows
            for device, end in zip(output.rows["device"].to_pylist(), output.event_ms.tolist(), strict=True):
                if int(device.split()[1]) >= LATE:
                    answer.delays_ms.append(now_ms - end)
        answer.held.append(operator.open_entries)
    answer.lost = operator.late_rows
    return answer


def picture(answers: dict[str, Answer]) -> str:
    """Entries held over time, as a picture."""
    width, height, left, bottom = 720, 260, 60, 225
    top = max(max(one.held) for one in answers.values())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">',
        '<g font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<text x="12" y="20" font-weight="bold">Windows held in state, 200 devices, one in twenty offline 20 h</text>',
    ]
    for day in range(4):
        x = left + day * 190
        parts.append(f'<line x1="{x}" y1="40" x2="{x}" y2="{bottom}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">day {day}</text>')
    for at, (name, one) in enumerate(answers.items()):
        step = 570 / len(one.held)
        points = " ".join(f"{left + n * step:.1f},{bottom - held * 170 / top:.1f}" for n, held in enumerate(one.held))
        parts.append(f'<polyline fill="none" stroke="{COLOURS[at]}" stroke-width="1.5" points="{points}"/>')
        parts.append(f'<text x="{left + 8}" y="{52 + 15 * at}" fill="{COLOURS[at]}">{name}: {max(one.held):,}</text>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


if __name__ == "__main__":
    found = {name: answered(how) for name, how in ASKED.items()}
    print(
        "| | rows lost | results | median delay of devices on time | windows held, at most |\n|---|---:|---:|---:|---:|"
    )
    for name, one in found.items():
        minutes = median(one.delays_ms) / MINUTE_MS
        print(f"| {name} | {one.lost:,} | {one.results:,} | {minutes:.0f} min | {max(one.held):,} |")
    (HERE / "per-key.svg").write_text(picture(found))
