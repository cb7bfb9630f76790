"""Stacks of a running program: taken by a timer, told apart by what they do, drawn as a flame graph.

Rule: a stack weighs the wall time since the one before, so a long call into compiled code counts in full although
Python hands it a signal only at its end. Frames are words (`function file`), the outermost first.
"""

from __future__ import annotations

import html
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from zlib import crc32

Stack = tuple[str, ...]
INTERVAL_S = 0.001
_WIDTH, _ROW, _LETTER = 1_200, 17, 6.6
_LEAST = 0.5  # of a pixel
_OWN_PACKAGES = ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink", "benchmarks")


@contextmanager
def sampled(stacks: Counter[Stack]) -> Iterator[None]:
    """Add the stacks of the main thread, in seconds of wall time, while the block runs."""
    stack_seconds: Counter[tuple[CodeType, ...]] = Counter()
    outside = len(_codes(sys._getframe(2)))  # noqa: SLF001  no other way to the frame of the block
    last = time.perf_counter()

    def sample(_signal: int, frame: FrameType | None) -> None:
        nonlocal last
        stack_seconds[_codes(frame)] += time.perf_counter() - last  # type: ignore[assignment]  # seconds, not a count
        last = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_S)  # not before: what is slow must not interrupt itself

    before = signal.signal(signal.SIGALRM, sample)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for codes, seconds in stack_seconds.items():
        stack = tuple(f"{code.co_name} {_place(code.co_filename)}" for code in reversed(codes))
        stacks[stack[outside - 1 :]] += seconds  # type: ignore[assignment]


def by_part(stacks: Mapping[Stack, float], parts: Mapping[str, Sequence[str]], rest: str) -> dict[str, Counter[Stack]]:
    """Share the stacks out: each goes to the first part that one of its frames names, to `rest` if none does."""
    shared: dict[str, Counter[Stack]] = {part: Counter() for part in [*parts, rest]}
    for stack, weight in stacks.items():
        stack_text = "\n".join(stack)
        part = next((part for part, marks in parts.items() if any(mark in stack_text for mark in marks)), rest)
        shared[part][stack] += weight  # type: ignore[assignment]
    return shared


def draw(stacks: Mapping[Stack, float], title: str, path: Path, least: float = _LEAST) -> None:
    """Write a flame graph (SVG): roots at the top, width is weight; a frame under the mouse tells its share.

    least: pixels; a thinner frame is not drawn.
    """
    total = sum(stacks.values()) or 1.0
    boxes = list(_boxes(sorted((stack, weight / total) for stack, weight in stacks.items()), 0, 0.0, least))
    height = (max((level for level, _ in boxes), default=0) + 3) * _ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="monospace"'
    name = f'<text x="4" y="13">{html.escape(title)}</text>'
    lines = [f'{head} font-size="11">', name, *(box for _, box in boxes), "</svg>", ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def _boxes(stacks: list[tuple[Stack, float]], level: int, left: float, least: float) -> Iterator[tuple[int, str]]:
    """The frames of one level from left to right, each with what it called; weights and places are shares."""
    at = 0
    while at < len(stacks):
        stack, weight = stacks[at]
        if len(stack) <= level:  # nothing was called from here
            at, left = at + 1, left + weight
            continue
        first = at
        while at < len(stacks) and stacks[at][0][level] == stack[level]:
            at += 1
        inside = stacks[first:at]
        weight = sum(part for _, part in inside)
        if weight * _WIDTH >= least:
            yield level, _box(stack[level], level, left, weight)
            yield from _boxes(inside, level + 1, left, least)
        left += weight


def _box(frame: str, level: int, left: float, share: float) -> str:
    top, width = (level + 1) * _ROW, share * _WIDTH
    colour = f"hsl({crc32(frame.rsplit(' ', maxsplit=1)[-1].encode()) % 60},80%,70%)"
    label = html.escape(frame[: int(width / _LETTER)]) if width > 3 * _LETTER else ""
    return (
        f'<g><title>{html.escape(frame)}: {share:.1%}</title><rect x="{left * _WIDTH:.1f}" y="{top}" '
        f'width="{width:.1f}" height="{_ROW - 1}" fill="{colour}"/>'
        f'<text x="{left * _WIDTH + 2:.1f}" y="{top + 12}">{label}</text></g>'
    )


def _codes(frame: FrameType | None) -> tuple[CodeType, ...]:
    """What runs, the innermost first."""
    codes: list[CodeType] = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    return tuple(codes)


def _place(file: str) -> str:
    """A file's path from its package on."""
    parts = Path(file).parts
    for at, part in enumerate(parts):
        if part in _OWN_PACKAGES:
            return "/".join(parts[at:])
    return "/".join(parts[-3:])
