"""A process that publishes batches to one table by the sink's own stage and commit, without Spark, until it is killed.

Run: python -m tests.support.table_writer JOB.json   (a `Job` as JSON)

It prints READY, waits for a line, then prints each batch that is published. It publishes a batch three times: twice the
same staged files, as a commit that Spark repeats, and files of a second attempt. An answer `retry` of the sink is
followed by the same batch again, as after a restart of a query.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

ROWS = 3  # of a batch
READY = "ready"
_OF_QUERY = 1_000  # numbers that a query may write
_LIMIT_S = 300.0
_PAUSE_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a writer writes; options: of the sink; packages: folders that its Python finds modules in, too."""

    options: Mapping[str, str]
    query: str
    first: int
    end: int
    number: int = 0
    packages: Sequence[str] = field(default_factory=tuple)


def numbers_of(number: int, batch: int) -> list[int]:
    """Return the rows of a batch of the query with this number; no other batch has one of them."""
    start = number * _OF_QUERY + batch * ROWS
    return list(range(start, start + ROWS))


def run(job: Job) -> None:
    """Publish each batch; prints its number when it is published, and at the end the conflicts with other writers."""
    from keyedwm.core.errors import UnavailableError
    from pyspark_wm_sink.tables.publish import publish
    from tests.sink.table_sink import stage_rows

    to, conflicts = publication(job.options)
    print(READY, flush=True)
    sys.stdin.readline()
    limit = time.monotonic() + _LIMIT_S
    for batch in range(job.first, job.end):
        rows = pa.table({"n": pa.array(numbers_of(job.number, batch), pa.int64())})
        while True:
            try:
                message = stage_rows(to, rows, batch, job.query)
                publish(to, [message], batch=batch)
                publish(to, [message], batch=batch)
                publish(to, [stage_rows(to, rows, batch, job.query)], batch=batch)
                break
            except (UnavailableError, OSError) as error:
                print(f"again: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                if time.monotonic() > limit:
                    raise
                time.sleep(_PAUSE_S)
        print(batch, flush=True)
    print(f"conflicts {len(conflicts)}", flush=True)


def publication(options: Mapping[str, str]):
    """Return the publication that the sink uses for these options, and its conflicts with other writers."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from pyspark_wm_sink.delta.publish import CurrentDelta, delta_publication
    from pyspark_wm_sink.iceberg.publish import CurrentIceberg, iceberg_publication
    from pyspark_wm_sink.options.sink_options import SinkOptions, SnapshotMode
    from pyspark_wm_sink.tables.rows import with_errors

    sink_options = SinkOptions.parse({"replayCheck": "counts", "sharedTable": "true", **options})
    columns = from_arrow_schema(pa.schema([("n", pa.int64())]))
    make, current = (iceberg_publication, CurrentIceberg) if "table" in options else (delta_publication, CurrentDelta)
    to = with_errors(make, sink_options, sink_options.target, SnapshotMode.BATCH, columns, overwrite=False, stream=True)
    real, conflicts = current.append, []

    def counting(self, files, record):
        try:
            real(self, files, record)
        except to.conflicts as error:
            conflicts.append(error)
            raise

    current.append = counting
    return to, conflicts


if __name__ == "__main__":
    job = Job(**json.loads(Path(sys.argv[1]).read_text()))
    sys.path.extend(job.packages)
    run(job)
