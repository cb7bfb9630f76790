"""`held_rows`: the rows that a processor keeps between batches.

Rule: as in `list_state`, Spark's own state reader reads the last committed batch and changes nothing. A row is read
where Spark has it; neither the processor's code nor a clock is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.core.errors import InputError, OptionError
from keyedwm.operators.keyed.key_watermark_log import KEYS_LOG, is_own
from keyedwm.operators.process.plan import ProcessPlan
from keyedwm.operators.state.blobs import read_stored
from keyedwm.operators.state.store import PART
from keyedwm.spark.arguments import require_session
from keyedwm.spark.inspect.saved_store import chosen_operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG = "log"
_MOST_SHOWN = 10


def held_rows(spark: SparkSession, checkpoint: str, logs: str = "", name: str | None = None) -> DataFrame:
    """Return the rows in the logs of a processor, in no order: the column `log`, then the columns of its tables.

    logs: the name of a log, or the beginning of the names of logs with equal columns. A column of a table that is
    called `log` is `row_log` there. checkpoint: of the query. name: of the processor (`process`, `deduplicate`,
    `running`), needed if the query has several. Raises InputError, OptionError and FormatError in one sentence.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    require_session(spark, "held_rows")
    if not isinstance(logs, str):
        raise OptionError(f"held_rows: logs={logs!r}: the name of a log, or its beginning, is expected, as text")
    operator, blobs = chosen_operator(
        spark, checkpoint, name, kinds=(ProcessPlan.kind,), feature="a processor",
        requirement="processor: that of process, deduplicate or running is expected",
    )  # fmt: skip
    who, counts = f"{checkpoint}, {operator.name}", rows_by_log(operator.states)
    chosen_logs = {logs} & counts.keys() or {log for log in counts if log.startswith(logs)}
    if not chosen_logs:
        known = "; ".join(log_lines(counts)) or "none"
        raise OptionError(f"{who}: no log begins with logs={logs!r}: the processor's logs are {known}")
    log_of = F.split("name", f"\\{PART}")[0]
    parts = blobs.where(log_of.isin(*chosen_logs) if len(chosen_logs) == 1 else log_of.startswith(logs))
    (part,) = parts.where(log_of == min(chosen_logs)).limit(1).collect()
    reading = ReadLogs(who, min(chosen_logs), read_stored(part.name, bytes(part.blob)).schema)
    return parts.select("name", "blob").mapInArrow(reading, from_arrow_schema(reading.listing_schema))


def rows_by_log(states: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Return the number of rows in each log of a processor. states: the manifests of its buckets."""
    counts: Counter[str] = Counter()
    for state in states:
        counts.update({log: rows for log, rows in state.get("rows", {}).items() if not is_own(log, KEYS_LOG)})
    return counts


def log_lines(counts: Counter[str]) -> list[str]:
    """Return a line for each of the largest logs, and one for the others."""
    lines = [f"log {log!r}: {rows} rows" for log, rows in counts.most_common(_MOST_SHOWN)]
    if more := len(counts) - len(lines):
        shown_rows = sum(rows for _, rows in counts.most_common(_MOST_SHOWN))
        lines.append(f"{more} more logs: {counts.total() - shown_rows} rows")
    return lines


@dataclass(frozen=True)
class ReadLogs:
    """Reads parts of logs; a value for `mapInArrow`. who: for errors. log, schema: the first log, and its schema."""

    who: str
    log: str
    schema: pa.Schema

    @property
    def listing_schema(self) -> pa.Schema:
        """The columns of the listing."""
        fields = [field.with_name(f"row_{_LOG}") if field.name == _LOG else field for field in self.schema]
        return pa.schema([pa.field(_LOG, pa.string()), *fields])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read names and blobs; yield rows. Raises InputError for logs of several schemas."""
        for batch in batches:
            for name, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                log = name.partition(PART)[0]
                if is_own(log, KEYS_LOG):
                    continue
                rows = read_stored(name, blob)
                if not rows.schema.equals(self.schema):
                    raise InputError(
                        f"{self.who}: the logs {self.log!r} and {log!r} have different columns: give the name of one "
                        "of them as logs"
                    )
                columns = [pa.repeat(log, rows.num_rows), *rows.combine_chunks().columns]
                yield from pa.Table.from_arrays(columns, schema=self.listing_schema).to_batches()
