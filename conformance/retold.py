"""Vectors of Samza's windows, retold as streams of events and watermarks.

Rule: the words are exchanged, nothing is computed. Where a window follows the clock, the clock is the event time and
timers that run are a watermark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.verdict import Verdict
from conformance.window_streams import streams

_TIMING = {"EARLY": "EARLY", "DEFAULT": "ON_TIME"}


def samza(vector: dict) -> Verdict:
    """Windows of processing time."""
    config, now_ms, steps = vector["config"], vector["config"].get("clock_start", 0), []
    for step in vector["steps"]:
        now_ms += step.get("by", 0)
        own: dict[str, Any] = {"out": [_pane(one, config) for one in step["out"]]}
        if step["do"] == "message":
            own |= {"do": "event", "ts": now_ms, "value": step["value"], "key": step["key"]}
        elif step["do"] == "partitions":
            rows = [{"ts": now_ms, "key": key, "value": 0} for keys in step["data"].values() for key in keys]
            own |= {"do": "rows", "rows": rows}
        elif step["do"] == "advance_clock":
            own |= {"do": "nothing"}
        else:
            own |= {"run_timers": {"do": "timers", "ms": now_ms}, "end_of_stream": {"do": "end"}}[step["do"]]
        steps.append(own)
    if not config.get("keyed", True):
        steps = [{name: value for name, value in step.items() if name != "key"} for step in steps]
    stream_config = config | {"clock": "processing", "agg": config.get("fold", "count"), "touch": "separate"}
    return streams(vector | {"config": stream_config, "steps": steps})


def _pane(pane: Mapping, config: Mapping) -> dict:
    answer: dict[str, Any] = {"value": pane["value"] if "fold" in config else pane["size"]}
    if "key" in pane:
        answer["key"] = pane["key"]
    if "pane_start" in pane:
        answer["start"] = pane["pane_start"]
    if "firing" in pane:
        answer["timing"] = _TIMING[pane["firing"]]
    return answer
