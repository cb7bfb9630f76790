"""Small window vectors for tests, and what replaying one says."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from conformance import windows
from conformance.reading import Vector
from conformance.verdict import Verdict

TUMBLING = {"type": "tumbling", "size": 10}
SESSION = {"type": "session", "gap": 10, "touch": "separate"}


def replayed(family: str, config: dict, steps: list[dict], order: str = "any") -> Verdict:
    vector = {"id": "new", "family": family, "config": config, "compare": {"order": order, "partial": True}}
    return Vector(Path("new.json"), "new", partial(windows.replay, vector | {"steps": steps})).replay().verdict


def beam(trigger: str, steps: list[dict], **config: Any) -> Verdict:
    full_config = {"window": TUMBLING, "mode": "accumulating", "output_time": "eow", "allowed_lateness": 0, **config}
    return replayed("beam.trigger", full_config | {"trigger": trigger}, steps)


def bundle(*times: int, out: tuple[dict, ...] = ()) -> dict:
    return {"do": "bundle", "ts": list(times), "out": list(out)}


def event(time: int, value: int = 1, *, out: tuple[dict, ...] = (), **more: Any) -> dict:
    return {"do": "event", "ts": time, "value": value, "out": list(out), **more}


def watermark(time: int | str, *out: dict) -> dict:
    return {"do": "watermark", "ts": time, "out": list(out)}


def pane(start: int, end: int, values: list[int], timing: str, **more: Any) -> dict:
    return {"start": start, "end": end, "values": values, "timing": timing, **more}
