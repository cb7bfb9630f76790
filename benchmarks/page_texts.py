"""What the pages of figures say beside them; numbers here are of the results that stand beside this file."""

HEAD = """# Performance

Each comparison runs our job and its rival in turn, on one machine, one broker and the same rows. `make bench` runs
all, `make bench ONLY=source` one of them. The outputs are checked before a figure is shown. Lost comparisons are
shown too.

- **Ratios** are ours divided by the rival's of the same round: median (least to most).
- **Whole** is from `start()` to the end of the query. **In full batches** omits the start and the first
  micro-batch.
- **CPU** is seconds per million rows, of all processes but the broker. A CPU ratio below 1 is better.
- **Rounds**: ten full batches a side, and the same batches on both sides. Rounds warm up until two agree, and five
  rounds count. `benchmarks/README.md` has the rules.
- **Sliding windows**: Spark gets fewer and smaller batches, as it copies each row size/slide times.
- **Stage one in the source**: the operator gets `kafka(...)` or `source(...)` and not loaded rows. The tasks that
  read then aggregate, too ([windows](windows.md#stage-one-inside-the-source)).
- **JSON read by the source**: options name the [fields](source.md#fields-of-records) to read and the
  [records](source.md#filtering-records) to keep. Other sides filter rows and parse them with `from_json`. In q5 and
  q11 this side has stage one in the source.
- **Verdicts** are the median of the rounds' ratios, which is not the ratio of two medians. Compare the two sides of
  one section, never two sections: they ran on other days and beside other load.
- **Warmed up**: a heading that names rounds that warmed up was measured with `session_conf`. Latency with each
  batch at once, and idle queries, had it too. Other comparisons with Spark are older. Their Python processes loaded
  each for itself, which costs our side some seconds of every whole run.
- **No CPU figure**: the time of processes that had ended was not counted.
- **CPU by part**, below the newest: Java's compilers and collector, its tasks, the rest of it (planning, commits,
  the scheduler), and all Python processes. The last part is the programs that Hadoop starts to write a checkpoint
  on a local disk ([how to avoid them](../how-to/speed.md)).

All figures:

"""
TARGETS = """
## Targets

Ratios are of whole runs if a row names nothing else. Windows are compared with Spark's own over its default state
store; their page also shows Spark's RocksDB.

A note beside the verdict names figures that say more of the start than of the rest: a side ran fewer than ten full
batches, nothing warmed up, or fewer than five rounds count. The note also says if the last two of four warming
rounds still differed by more than a tenth, as on a busy machine.

"""
PEERS = """## Flink and Jet on the same work

- November 2026, two cores, the broker on the same two, parallelism 2.
- Flink 2.2.1 with a checkpoint a second; Hazelcast Jet 5.5.0 with an exactly-once snapshot a second, in memory.
- 4,000,000 records of 100 bytes, 4 partitions, 1,000 keys, one record a millisecond of event time. Sessions:
  2,000,000 records, 100,000 keys. Counts and sums, checked.
- Each cell: thousand records a second; CPU seconds per million.
- They ran in another run than the comparisons above, with Spark in turn: read each beside its Spark.

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
INTRODUCTION = "How to read them: [performance](../performance.md). Made by `make bench` out of its result files.\n\n"
FLAMES = """
## Where Python's time goes until the first results

The pictures show three windowed queries of one session, each to the end of its first batch
(`python -m benchmarks.start_flames`, 28 November 2026). They show the stacks on a CPU of the driver and of all Python
processes, the widest calls widest.

Before: the version of 25 November, without the process that loads everything once and is forked for sources,
planners, tasks and writes. Open a picture by itself, and the pointer shows the name of a frame.

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
0.25 s. So this rate needs larger batches, or a Spark whose batches cost less. Two things would make them cheaper:

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
| Spark, for every batch: the processes that write the checkpoint | 0.11 s |
| Spark, for every batch: planning, scheduling and logs | 0.09 s |

A [batch of 2,000 rows](#small-batch) takes as long: the cost of the open keys is too small to show here
(`state-entries` above has it).

Three times Spark's rate would be 0.17 s a batch. An empty batch takes longer on this Spark. With
`local_checkpoint=True` an empty one takes 0.16 s, and Spark's own batch gains as much. Spark's own batch takes 0.59
s of CPU in its tasks, where each key is read and written in RocksDB.
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

Of the code in the rival's Java tasks, two fifths sort and shuffle rows, and a sixth packs them as pickles
(`python -m benchmarks.java_flames --case median`). Three times the rival's rate leaves two cores 3.1 s for a million
messages.
"""
