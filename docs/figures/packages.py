# ruff: noqa: INP001  a script beside the picture it draws
"""Draws docs/figures/packages.svg, the picture in docs/design/architecture.md: `python docs/figures/packages.py`.

Rule: packages and arrows are read from the code, so the picture cannot show what is not so. A
test draws it again and compares. An arrow that follows from others (a package over another one) is left out.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Row and column of each package in the picture, from the top down: every arrow finds its way between the boxes.
PLACES = {
    "conformance": (0, 1),
    "keyedwm/cli": (1, 1),
    "keyedwm/testing": (1, 2),
    "keyedwm/spark": (2, 0),
    "pyspark_wm_source": (3, 0),
    "pyspark_wm_sink": (3, 1),
    "keyedwm/windows": (3, 2),
    "keyedwm/operators": (4, 0),
    "keyedwm/expressions": (5, 0),
    "keyedwm/kafka": (5, 1),
    "keyedwm/registry": (5, 2),
    "keyedwm/formats": (6, 1),
    "keyedwm/arrow": (7, 0),
    "keyedwm/config": (8, 0),
    "keyedwm/runtime": (8, 1),
    "keyedwm/core": (9, 0),
}
BOXES = tuple(PLACES)
COMMON = "keyedwm"  # modules beside the packages: the plug-in class, the compiler's decorator, the worker's settings
PACKAGES = ("conformance", "keyedwm", "pyspark_wm_source", "pyspark_wm_sink")
WIDTH, BOX_WIDTH, BOX_HEIGHT, GAP = 860, 230, 66, 38
LINE_LETTERS, LINE_HEIGHT = 34, 16  # of a box: more letters would stand outside it


@functools.cache
def imports() -> Mapping[str, list[str]]:
    """Each package and the packages that it imports, COMMON included, in the order of BOXES."""
    found: dict[str, set[str]] = {package: set() for package in (*BOXES, COMMON)}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            here = _package(path.relative_to(ROOT).with_suffix("").as_posix())
            for module in _imported(path):
                there = _package(module.replace(".", "/"))
                if here is not None and there is not None and here != there:
                    found[here].add(there)
    order = [*BOXES, COMMON]
    return {package: sorted(others, key=order.index) for package, others in found.items()}


def _package(module: str) -> str | None:
    return next(
        (package for package in (*BOXES, COMMON) if module == package or module.startswith(f"{package}/")), None
    )


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def direct(edges: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The arrows between packages that do not follow from others."""
    among = {package: [other for other in edges[package] if other != COMMON] for package in BOXES}

    def reaches(start: str, end: str) -> bool:
        return any(other == end or reaches(other, end) for other in among[start])

    return {
        package: [
            other for other in others if not any(reaches(between, other) for between in others if between != other)
        ]
        for package, others in among.items()
    }


def parts(package: str) -> list[str]:
    """The packages inside a package."""
    return sorted(path.parent.name for path in (ROOT / package).glob("*/__init__.py"))


def picture() -> str:
    """The SVG."""
    height = (max(row for row, _ in PLACES.values()) + 1) * (BOX_HEIGHT + GAP) + GAP
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}">',
        '<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="8" refY="4.5" orient="auto">',
        '<path d="M0,0 L9,4.5 L0,9 z" fill="#555555"/></marker></defs>',
        '<g font-family="sans-serif" font-size="13">',
        "<title>The packages of keyedwm, and which imports which</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    places = _places()
    for package, others in direct(imports()).items():
        out += [_arrow(places[package], places[other]) for other in others]
    for package, (x, y) in places.items():
        inside = wrap(" · ".join(parts(package)), LINE_LETTERS)
        out.append(
            f'<rect x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="{_colour(package)}" '
            f'stroke="#777777"/>'
        )
        middle, top = x + BOX_WIDTH / 2, y + (BOX_HEIGHT - len(inside) * LINE_HEIGHT) / 2 + 5
        out.append(_text(middle, top, package, "bold"))
        out += [
            _text(middle, top + number * LINE_HEIGHT, line, "normal") for number, line in enumerate(inside, start=1)
        ]
    return "\n".join([*out, "</g>", "</svg>", ""])


def _places() -> dict[str, tuple[float, float]]:
    free = (WIDTH - 3 * BOX_WIDTH) / 4
    return {
        package: (free + column * (BOX_WIDTH + free), GAP + row * (BOX_HEIGHT + GAP))
        for package, (row, column) in PLACES.items()
    }


def _colour(package: str) -> str:
    if package.startswith("pyspark"):
        return "#c9efd0"
    return {"keyedwm/core": "#fff0c2", "conformance": "#eeeeee", "keyedwm/testing": "#eeeeee"}.get(package, "#cfe3ff")


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """From the bottom of a box to the top of another, or from side to side."""
    x, y = start[0] + BOX_WIDTH / 2, start[1] + BOX_HEIGHT
    to_x, to_y = end[0] + BOX_WIDTH / 2, end[1]
    if start[1] == end[1]:
        across = BOX_WIDTH / 2 if to_x > x else -BOX_WIDTH / 2
        x, y, to_x, to_y = x + across, y - BOX_HEIGHT / 2, to_x - across, to_y + BOX_HEIGHT / 2
    else:
        towards = BOX_WIDTH / 2 - 30
        x += max(-towards, min(towards, to_x - x))
        to_x += max(-towards, min(towards, x - to_x))
    return (
        f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="#555555" stroke-width="1.3" '
        f'marker-end="url(#tip)"/>'
    )


def _text(x: float, y: float, text: str, weight: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" font-weight="{weight}" fill="#222222">{escape(text)}</text>'


if __name__ == "__main__":
    (HERE / "packages.svg").write_text(picture())
