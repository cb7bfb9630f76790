"""Records of all kinds of values, and results in a form that is compared bit by bit."""

from __future__ import annotations

import json
import random
from collections import Counter

from tests.spark.started import BASE_MS, EVENTS
from tests.tools import Record


def random_record(chance: random.Random, ms: int, partition: int = EVENTS) -> Record:
    value = {
        "at": BASE_MS + ms if chance.random() < 0.95 else "who knows",
        "v": chance.choice([None, 7, -3, 10**17, chance.randrange(100)]),
        "x": chance.choice([0.1, -0.3, 1e300, -1e300, 2.5e-8, None, chance.uniform(-1, 1)]),
        "s": chance.choice(["", "p", 'né "q" \\ ☃ 😀', None, f"text {chance.randrange(20)}"]),
    }  # fmt: skip
    key = chance.choice([None, b"a", b"b", "clé".encode(), b"%d" % chance.randrange(4)])
    return Record(partition, BASE_MS + ms, json.dumps(value, ensure_ascii=chance.random() < 0.5).encode(), key)


def shown(rows) -> Counter:
    """Results as texts, floats by their bits; the watermark stamped on them depends on where batches were cut."""
    results = [row.asDict() for row in rows if row["control"] is None]
    return Counter(repr([bits(row[name]) for name in row if name != "watermark"]) for row in results)


def bits(value):
    """A value in which floats stand by their bits, as one is equal to another of other bits."""
    return value.hex() if isinstance(value, float) else [bits(v) for v in value] if isinstance(value, list) else value
