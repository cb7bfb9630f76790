"""Conformance vectors through a real Kafka, the source, `aggregate` and a real Spark: one micro-batch per watermark."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from keyedwm.spark import aggregate, count, min, session, sliding, sum  # noqa: A004
from tests.spark.started import AHEAD, FAR_MS, event, keyed, panes, steer

VECTORS = Path(__file__).parents[1] / "vectors" / "windows"
AGGREGATES = {"sum": sum("v"), "count": count(), "min": min("v")}
# Of each window, rule for late rows and rule for touching sessions; `tests/core/test_vectors.py` plays all of them.
NAMES = [
    "jet-sliding-late-and-partly-late",
    "jet-sliding-min-no-deduct",
    "jet-session-late-between",
    "jet-session-partial-then-end",
    "session-stream-left-insert",
]
END_MS = FAR_MS // 2


def operator(config: dict) -> dict[str, Any]:
    """The arguments of `aggregate` that a vector's configuration means (as `python -m conformance.replay` reads it)."""
    wanted = {"by": "k", "aggs": {"n": AGGREGATES[config["agg"]]}}
    if "gap" in config:
        rule = "event" if config.get("late") == "ts<wm" else "window"
        return wanted | {"window": session(f"{config['gap']} ms", touching=config["touch"]), "late_rule": rule}
    window = sliding(f"{config['size']} ms", f"{config['slide']} ms")
    return wanted | {"window": window, "late_rule": "frame"}


def rounds(steps: list[dict]) -> list[tuple[list, list[dict]]]:
    """Steps cut behind each watermark: the records of each micro-batch, and what must come out.

    A late event has a micro-batch of its own: late is decided for what a batch brings to a window or session together.
    """
    cut, records, expected = [], [], []
    for step in steps:
        if step["do"] == "event":
            if step.get("dropped"):
                cut += [(records, []), ([event(step["ts"], str(step["key"]), step["value"])], [])]
                records = []
                continue
            records.append(event(step["ts"], str(step.get("key", "")), step["value"]))
            continue
        records.append(steer(END_MS if step["do"] == "end" else step["ts"]))
        expected += [out for out in step["out"] if "wm" not in out]
        cut.append((records, expected))
        records, expected = [], []
    assert not records, "a vector ends with a watermark"
    return cut


@pytest.mark.usefixtures("one_bucket")
@pytest.mark.parametrize("name", NAMES)
def test_a_vector_gives_its_answers(name, topic_of, load, started):
    vector = json.loads((VECTORS / f"{name}.json").read_text())
    topic = topic_of(2)
    rows = keyed(load(topic, idleTimeout="none"))
    query = started(aggregate(rows, **operator(vector["config"])))
    query.give(topic, [AHEAD])
    for records, expected in rounds(vector["steps"]):
        made = panes(query.give(topic, records))
        wanted = [(out["start"], out["end"], str(out.get("key", "")), out["value"]) for out in expected]
        assert sorted(made) == sorted(wanted)
    assert query.metrics()["late_rows"] == builtins.sum(step.get("dropped", False) for step in vector["steps"])
