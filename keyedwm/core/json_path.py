"""Paths into a JSON text: `$.a.b`, `$['a']`, `$.a[0]`."""

from __future__ import annotations

import re

_STEP = re.compile(r"\.([A-Za-z_$][\w$-]*)|\['([^']+)'\]|\[\"([^\"]+)\"\]|\[(\d+)\]")


def json_steps(path: str) -> tuple[str | int, ...] | None:
    """Return the steps (a member's name or an array index) of a path, None if it is none."""
    at, steps = 1, list[str | int]()
    while path.startswith("$") and at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        name = step[1] or step[2] or step[3]
        steps.append(name if name is not None else int(step[4]))
        at = step.end()
    return tuple(steps) or None


def json_path(steps: tuple[str | int, ...]) -> str:
    """Write steps as a path, the reverse of `json_steps`."""
    return "$" + "".join(_written(step) for step in steps)


def _written(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _STEP.fullmatch(f".{step}"):
        return f".{step}"
    return f'["{step}"]' if "'" in step else f"['{step}']"
