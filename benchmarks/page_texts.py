"""What the pages of figures say beside them; numbers here are of the results that stand beside this file."""

HEAD = """# Performance

Each figure with `x` is keyedwm's figure divided by Spark's, or by the figure after "against". The figure is the median
of all rounds. *Asked* is the project's own target.

"""
COLUMNS = """
Windows are compared with Spark's default state store; the page of windows also shows RocksDB. Rates are of whole runs
unless the row names full batches.

A verdict also names a weak figure: fewer than ten full batches or five rounds, no warm-up, or *unsteady* (warming
rounds differed).

## How to read the figures

A comparison runs keyedwm and its rival alternately, with the same machine, broker and rows. Outputs are checked
first. `benchmarks/README.md` has the rules and explains every column.

- **k rows/s**: thousand rows per second over the whole run, from `start()` to the end of the query.
- **Full batches**: k rows/s without start and first micro-batch.
- **CPU s/M**: CPU seconds per million rows, of all processes except the broker.
- **×** in the column after a figure, or before a side's name: the figure divided by the rival's in the same round,
  median (least–most). A rate above 1 is better, a time or CPU below 1.
- **3 + 5 rounds**: three warm-up rounds, then five counted rounds. A counted round usually has at least ten full
  batches, the same for each side.
- **Warming rounds differed**: warm-up ends when two consecutive rounds agree within 10 %. With this note even
  the third and fourth round differed more.
- **Sliding windows**: Spark runs fewer and smaller batches, because it copies rows.
- **Stage one in the source**: the operator reads a source [without `load()`](windows.md#stage-one-inside-the-source).
- **JSON read by the source**, or *source JSON*: the source reads JSON [fields](source.md#fields-of-records) and
  [filters records](source.md#filtering-records). Other sides filter rows and use `from_json`. In q5 and q11,
  *source JSON* includes stage one in the source.
- **Compare figures of one section only**: sections ran on different days.
- **Older comparisons** with Spark have no warm-up rounds. Except `latency-at-once` and `idle`, they ran without
  `session_conf`, which adds seconds to keyedwm's whole run.

All figures:

"""
TARGETS = """
## Targets

"""
PEERS = """## Flink and Jet on the same work

- **Run**: apart from the comparisons above, November 2026, two cores for engine and broker together, parallelism 2.
- **Engines**: Flink 2.2.1 with a checkpoint per second; Hazelcast Jet 5.5.0 with an exactly-once snapshot per second,
  in memory.
- **Input**: 4,000,000 records of 100 bytes in 4 partitions, 1,000 keys, one record per millisecond of event time. For
  sessions: 2,000,000 records, 100,000 keys.
- **Cells** of Spark, Flink and Jet: thousand records per second; CPU seconds per million records.
- **keyedwm / Spark**: keyedwm ran beside Flink and Jet only with [larger
  batches](performance/windows.md#beside-flink-and-jet). The column has keyedwm's rate divided by the rate of Spark's
  default store on these pages. Windows have two ratios: over loaded rows, and with stage one in the source.

| work | Spark, default store | keyedwm / Spark | Spark, RocksDB | Flink | Flink, RocksDB | Flink SQL | Jet |
|---|---|---|---|---|---|---|---|
| read and discard | 625; 1.5 | 1.48x | | 1,715; 1.4 | | | 1,787; 1.0 |
| tumbling 10 s | 394; 2.9 | 1.49x; 2.01x | 225; 4.6 | 1,288; 1.6 | 143; 9.1 | 518; 3.5 | 1,256; 1.2 |
| sliding 60 s / 1 s | 55; 33 | 9.36x; 10.7x | 36; 46 | 33; 50 | | 38; 50 | 537; 3.1 |
| sliding 600 s / 1 s | about 1; over 1,000 | | | about 3; over 500 | | | 224; 7.0 |
| Kafka to Kafka, at least once | 276; 4.1 | | | 361; 3.3 | | | 427; 3.0 |
| Kafka to Kafka, exactly once | not supported | 1.51x, Spark at least once | | 446; 3.1 | | | 289; 4.3 |
| sessions, gap 2 s | 177; 8.4 | | 113; 15 | 287; 5.4 | 53; 27 | 265; 7.5 | 368; 3.9 |
"""
# Headings of results whose names would say too little.
TITLES = {
    "peers-tumbling": "Beside Flink and Jet",
    "peers-tumbling-800k": "Beside Flink and Jet, batches of 800,000 records",
}
INTRODUCTION = "[Performance](../performance.md) explains rates and ratios."
FLAMES = """
## Where Python's time goes until the first results

The flame graph shows stacks on a CPU, of the driver and of all Python processes. Three windowed queries of one
session ran, each to the end of its first batch (`python -m benchmarks.start_flames`, 28 November 2026).

![Python processes of three windowed queries](../../figures/first-windows-after.svg)
"""
JOIN_FLOOR = """
## Where the rest goes

One-to-one join, stage one in the source: a batch of 200,000 rows takes 0.66 s and 1.2 s of CPU on two cores.

| part | CPU |
|---|---:|
| Python: reading, dividing the rows, joining, packing pairs | 0.44 s |
| Java's tasks | 0.25 s |
| Java's compilers and collector | 0.23 s |
| Spark's work for every batch: planning, scheduling, logs, processes that write a local checkpoint | 0.31 s |

At eight times Spark's rate such a batch would take 0.27 s. A [batch of 2,000 rows](batches.md#small-batch) already
takes 0.25 s. So the target needs larger batches, or a Spark whose batches cost less:

- Spark writes its logs without Hadoop's `FileContext` (`local_checkpoint=True` does this where it is safe).
- Spark emits the results of a bucket before it commits the bucket's state.
"""
WINDOW_FLOOR = """
## A batch, millisecond by millisecond

`windows-tumbling` with stage one in the source (`python -m benchmarks.timeline`):

![Phases, tasks and CPU time of a batch](../../figures/tumbling-batch.svg)

Of the 1,358 ms of two cores 368 are idle, or go to short processes that write the checkpoint.
"""
STATE_FLOOR = """
## Where the rest of a small batch goes

With a million open keys and stage one in the source, a batch of 10,000 rows takes 0.25 s, and 0.35 s of CPU time.

| part | CPU |
|---|---:|
| Python | 0.07 s |
| Java's tasks | 0.05 s |
| Spark's work for every batch: processes that write the checkpoint ([avoid them](../../how-to/speed.md)) | 0.11 s |
| Spark's work for every batch: planning, scheduling and logs | 0.09 s |

A [batch of 2,000 rows](#small-batch) with 1,000 keys also takes 0.25 s: open keys [cost little](#state-entries).

For three times the rate of [Spark with RocksDB](#state-rocksdb) a batch of 10,000 rows must take 0.17 s. Without
`local_checkpoint=True` even an empty batch takes longer. With this setting an empty batch takes 0.16 s, but Spark's
own batch becomes faster by as much.

The tasks of Spark's own batch take 0.59 s of CPU time, because they read and write each key in RocksDB.
"""
STORE_FLOOR = """
## Where the rest goes

CPU seconds for a million messages of `store-median`, with stage one in the source:

| part | keyedwm | `applyInPandasWithState` by bucket |
|---|---:|---:|
| all parts | 3.6 s | 6.7 s |
| Python: reading, the store, the medians | about half of 3.6 s | 3.8 s |
| Java's tasks, to which keyedwm passes messages as columns | 0.5 s | 2.0 s |
| planning, commits and the scheduler | 0.5 s | |
| processes that write the checkpoint | 0.3 s | |
"""
