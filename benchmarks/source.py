"""Reading Kafka into a no-op sink: the keyedwm source beside Spark's own Kafka connector, in turn, on one broker.

Run: python -m benchmarks.source [--case all-in-one|batches|json|zstd|small] [--records 5000000] [--pairs 5]
Each round is a fresh query per side over the whole topic; row counts are checked before a figure is shown. `batches`:
500,000 rows a micro-batch; `all-in-one`: the whole topic in one; `json`: event time out of the value; `zstd`:
compressed records; `small`: micro-batches of ten rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from benchmarks.measure import PARTITIONS, Run, Sheet, drained, load_hundred_bytes, new_topic
from benchmarks.turns import Bench, bench, in_turn
from keyedwm.kafka.client.values import Codec
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.produce import send

FOUR = "key,value,event_time,watermark"
SPARK = "spark"
SMALL_ROWS, SMALL_BATCHES = 10, 30
# Control rows are rows too: a few for each channel and batch.
SPARE = 10_000


@dataclass(frozen=True, slots=True)
class Case:
    """What is read, in batches of how many rows (None: all), and by which sides: name → (format, options)."""

    batch: int | None
    sides: dict[str, tuple[str, dict[str, str]]]
    codec: Codec = Codec.NONE


KEYEDWM = {"keyedwm": ("keyedwm", {}), "keyedwm, 4 columns": ("keyedwm", {"columns": FOUR})}
CASES = {
    "all-in-one": Case(None, {SPARK: ("kafka", {}), **KEYEDWM}),
    "batches": Case(500_000, {SPARK: ("kafka", {}), **KEYEDWM}),
    "json": Case(None, {"timestamp": ("keyedwm", {}), "json": ("keyedwm", {"eventTime": "json:$.at"})}),
    "zstd": Case(None, {SPARK: ("kafka", {}), "keyedwm": ("keyedwm", {})}, codec=Codec.ZSTD),
    "small": Case(SMALL_ROWS, {SPARK: ("kafka", {}), "keyedwm": ("keyedwm", {})}),
}


def load(cluster: Cluster, topic: str, case: str, records: int) -> None:
    """Produce the records of a case."""
    if case != "json":
        load_hundred_bytes(cluster, topic, records, CASES[case].codec)
        return
    new_topic(cluster, topic)
    each = records // PARTITIONS
    filling = "x" * 60
    values = [b'{"id":%d,"note":"%s","at":%d}' % (i, filling.encode(), 1_700_000_000_000 + i) for i in range(each)]
    table = pa.table({"key": pa.array([b"k%03d" % (i % 1_000) for i in range(each)]), "value": pa.array(values)})
    send(cluster, topic, dict.fromkeys(range(PARTITIONS), table))


def compare(on: Bench, name: str) -> None:
    """One case: load its records, and read them with every side in turn."""
    case, topic = CASES[name], f"bench-{name}"
    records = SMALL_ROWS * SMALL_BATCHES if name == "small" else on.records
    load(on.cluster, topic, name, records)
    common = {**on.where, "subscribe": topic, "startingOffsets": "earliest"}
    if case.batch:
        common["maxOffsetsPerTrigger"] = str(case.batch)

    def read(form: str, options: dict[str, str]) -> Run:
        return drained(on.reader(form).options(**common, **options).load(), records, SPARE)

    setting = {"records": records, "batch": case.batch, "codec": case.codec.name}
    sheet = Sheet(f"source-{name}", next(iter(case.sides)), setting)
    in_turn(sheet, {side: partial(read, *how) for side, how in case.sides.items()}, on.pairs)


def main() -> None:
    """Run the cases and write their results."""
    with bench(__doc__, CASES) as on:
        for name in on.cases:
            compare(on, name)


if __name__ == "__main__":
    main()
