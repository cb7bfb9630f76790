"""What the pages of figures say beside them; numbers here are of the results that stand beside this file."""

HEAD = """# Performance

Each comparison runs our job and its rival in turn, on one machine, one broker and the same rows, and checks the
outputs first. `make bench` runs all comparisons, `make bench ONLY=source` one. Lost comparisons are shown too.
`benchmarks/README.md` has the rules.

- **k rows/s**: thousand rows a second of the whole run, from `start()` to the end of the query.
- **Full batches**: the same without the start and the first micro-batch.
- **CPU s/M**: CPU seconds per million rows, of all processes but the broker.
- **×**: our figure divided by the rival's of the same round, median (least–most). A CPU ratio below 1 is better.
- **3 + 5 rounds**: three rounds warmed up, five count. Each has ten full batches a side, the same on both sides. Rounds
  warm up until two agree within a tenth, four at most. *Differed*: the last two of four did not agree.
- **Sliding windows**: Spark gets fewer and smaller batches, because it copies each row size/slide times.
- **Stage one in the source**: the operator gets a `kafka(...)` or `source(...)` that is
  [not loaded](windows.md#stage-one-inside-the-source).
- **JSON read by the source**: options name the [fields](source.md#fields-of-records) and the
  [records](source.md#filtering-records). Other sides filter rows and parse them with `from_json`. In q5 and q11 this
  side has stage one in the source.
- **Verdicts** are medians of the rounds' ratios. Compare the sides of one section only: sections ran on other days
  and beside other load.
- **Older**: comparisons with Spark without warming rounds ran without `session_conf`, except `latency-at-once` and
  `idle`. Each Python process loaded all modules itself, which costs our side some seconds of a whole run.
- **CPU by part** (Java's compilers, collector and tasks, the rest of Java, Python, processes that Java starts) is in
  the result files, `benchmarks/results`.

All figures:

"""
TARGETS = """
## Targets

Ratios are of whole runs unless a row names full batches. The rival of windows is Spark's operator over its default
state store; their page also shows RocksDB. A note beside the verdict names a weak figure: fewer than ten full batches
or five rounds, no warming, or warming rounds that still differed.

"""
PEERS = """## Flink and Jet on the same work

- November 2026, two cores, the broker on the same two, parallelism 2.
- Flink 2.2.1 with a checkpoint a second; Hazelcast Jet 5.5.0 with an exactly-once snapshot a second, in memory.
- 4,000,000 records of 100 bytes, 4 partitions, 1,000 keys, one record a millisecond of event time. Sessions:
  2,000,000 records, 100,000 keys. Counts and sums, checked.
- Each cell: thousand records a second; CPU seconds per million.
- Another run than the comparisons above, with Spark in turn: compare each with its Spark.

| work | Spark, default store | Spark, RocksDB | Flink | Flink, RocksDB | Flink SQL | Jet |
|---|---|---|---|---|---|---|
| read and discard | 625; 1.5 | | 1,715; 1.4 | | | 1,787; 1.0 |
| tumbling 10 s | 394; 2.9 | 225; 4.6 | 1,288; 1.6 | 143; 9.1 | 518; 3.5 | 1,256; 1.2 |
| sliding 60 s / 1 s | 55; 33 | 36; 46 | 33; 50 | | 38; 50 | 537; 3.1 |
| sliding 600 s / 1 s | about 1; over 1,000 | | about 3; over 500 | | | 224; 7.0 |
| Kafka to Kafka, at least once | 276; 4.1 | | 361; 3.3 | | | 427; 3.0 |
| Kafka to Kafka, exactly once | none exists | | 446; 3.1 | | | 289; 4.3 |
| sessions, gap 2 s | 177; 8.4 | 113; 15 | 287; 5.4 | 53; 27 | 265; 7.5 | 368; 3.9 |
"""
INTRODUCTION = "[Performance](../performance.md) explains the columns. `make bench` writes this page."
FLAMES = """
## Where Python's time goes until the first results

Three windowed queries of one session, each to the end of its first batch (`python -m benchmarks.start_flames`,
28 November 2026): stacks on a CPU of the driver and of all Python processes. Open a picture by itself, and the pointer
shows the name of a frame. Before: the version of 25 November, which loaded everything in each process.

![Python processes of three windowed queries, before](../../figures/first-windows-before.svg)

![Python processes of three windowed queries, after](../../figures/first-windows-after.svg)
"""
JOIN_FLOOR = """
## Where the rest goes

One to one, stage one in the source: a batch of 200,000 rows takes 0.66 s and 1.2 s of CPU, so both cores are busy.

| part | CPU |
|---|---:|
| Python: reading, dividing the rows, joining, packing pairs | 0.44 s |
| Java's tasks | 0.25 s |
| Java's compilers and collector | 0.23 s |
| Spark, for every batch: planning, scheduling, the logs, the processes that write a local checkpoint | 0.31 s |

Eight times Spark's rate would be 0.27 s for such a batch, and a [batch of 2,000 rows](batches.md#small-batch) takes
0.25 s. This rate needs larger batches, or a Spark with cheaper batches:

- logs without Hadoop's `FileContext` (`local_checkpoint=True` does this where it is safe)
- results of a bucket that Spark emits before it commits the bucket's state

Spark's own join spends 63 % of its Java code's time in its state, row by row
(`python -m benchmarks.java_flames --case join`).
"""
STATE_FLOOR = """
## Where the rest of a small batch goes

10,000 rows over a million open keys, stage one in the source: a batch takes 0.25 s and 0.35 s of CPU.

| part | CPU |
|---|---:|
| Python | 0.07 s |
| Java's tasks | 0.05 s |
| Spark, for every batch: the processes that write the checkpoint ([avoid them](../../how-to/speed.md)) | 0.11 s |
| Spark, for every batch: planning, scheduling and logs | 0.09 s |

A [batch of 2,000 rows](#small-batch) takes as long: the open keys cost too little to show here
([state-entries](#state-entries)).

Three times Spark's rate would be 0.17 s a batch. An empty batch takes longer on this Spark, and 0.16 s with
`local_checkpoint=True`, which speeds up Spark's own batch as much. Spark's own batch takes 0.59 s of CPU in its tasks,
which read and write each key in RocksDB.
"""
STORE_FLOOR = """
## Where the rest goes

CPU seconds for a million messages, medians with stage one in the source:

| part | keyedwm | rival |
|---|---:|---:|
| all | 3.6 s | 6.7 s |
| Python | half (reading, the store, the medians) | 3.8 s |
| Java's tasks | 0.5 s: messages cross as columns in a few rows | 2.0 s |
| planning, commits and the scheduler | 0.5 s | |
| processes that write the checkpoint | 0.3 s | |

Of the rival's Java tasks, two fifths of the code sort and shuffle rows, and a sixth packs them as pickles
(`python -m benchmarks.java_flames --case median`). Three times the rival's rate leaves two cores 3.1 s for a million
messages.
"""
