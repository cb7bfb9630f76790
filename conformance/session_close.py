"""Sessions that end exactly at the watermark: a vector may close them one watermark later or earlier than the product.

Rule: rule 11 ties both together, sessions that touch merge and close above their end, or neither. Where a vector takes
one without the other, a session that ends exactly at the watermark is put off by a watermark, on the side that has it
first; it must come, as it was, with the next watermark or with the end of the input.
"""

from __future__ import annotations

from collections.abc import Mapping

from keyedwm.core.window_rules import Touching


class Closing:
    """Moves such sessions of one vector. has_moved: whether there was one."""

    def __init__(self, config: Mapping, touching: Touching) -> None:
        close_when = config.get("close_when")
        waits = touching is Touching.MERGE
        self._wanted_waits = waits if close_when is None else "=" not in close_when
        self._waits = waits
        self._put_off: list[dict] = []
        self.has_moved = False

    def moved_to(self, step: Mapping, actual: list[dict]) -> tuple[list[dict], list[dict]] | None:
        """What the vector tells and what was made, less the sessions of the side that has them first.

        None if one does not come on the other side.
        """
        expected = list(step["out"])
        if self._wanted_waits == self._waits or step["do"] not in {"watermark", "end"}:
            return expected, actual
        late, early = (expected, list(actual)) if self._wanted_waits else (list(actual), expected)
        for one in self._put_off:
            pair = next((other for other in late if one.items() <= other.items() or other.items() <= one.items()), None)
            if pair is None:
                return None
            late.remove(pair)
        self._put_off = [one for one in early if step["do"] == "watermark" and one.get("end") == step["ts"]]
        early[:] = [one for one in early if one not in self._put_off]
        self.has_moved = self.has_moved or bool(self._put_off)
        return (late, early) if self._wanted_waits else (early, late)

    def is_kept(self, left: list[dict]) -> bool:
        """Whether the sessions that the vector told first are among those that are left at the end."""
        return self._wanted_waits or all(any(_is_part(one, other) for other in left) for one in self._put_off)


def _is_part(one: dict, other: dict) -> bool:
    return one.items() <= other.items() or other.items() <= one.items()
