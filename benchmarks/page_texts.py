"""What the pages of figures say beside them; numbers here are of the results that stand beside this file."""

HEAD = """# Performance

Each comparison runs our job and its rival in turn on one machine, one broker and the same rows (`make bench`, or one
of them with `make bench ONLY=source`); outputs are checked before a figure is shown. Ratios are ours divided by the
rival's of the same round: median (least to most). *Whole* is from `start()` to the end of the query; *in full batches*
leaves the start and the first micro-batch out; CPU is seconds per million rows of all processes but the broker, so
less than 1 is better there. The rules: ten full batches a side, the same batches on both sides (of
sliding windows Spark is given fewer and smaller ones, as it copies each row size/slide times), rounds that warm up
until two agree, and five rounds that count. How a figure is taken: `benchmarks/README.md`. Lost comparisons stay in.
*Stage one in the source*: the operator was given `kafka(...)` or `source(...)` itself and not loaded rows, so the tasks
that read aggregate, too ([windows](windows.md#stage-one-inside-the-source)). *JSON read by the source*: its options
name the fields that it reads and the records that it keeps ([fields](source.md#fields-of-records),
[filters](source.md#filtering-records)), where other sides filter rows and parse them with `from_json`; of q5 and
q11 that is the side with stage one in the source.

Compare the two sides of one section, never two sections: they ran on other days and beside other load. A verdict is the
median of the rounds' ratios, which is not the ratio of two medians.

Where a heading says how many rounds warmed up, `session_conf` was on, as users have it; so it was for latency with each
batch at once and for idle queries. Other comparisons with Spark are older: their Python processes loaded each for
itself, which costs our side some seconds of every whole run. CPU is left out where the time of processes that had ended
was not counted. Below the newest stands where the CPU seconds went: Java's compilers and collector, the threads of its
tasks, the rest of it (planning, commits, the scheduler), all Python processes with the driver's own program, and the
programs that Hadoop starts to write a checkpoint on a local disk ([how to do without](../how-to/speed.md)).

All figures, by what was measured:

"""
TARGETS = """
## Targets

Ratios are of whole runs where nothing else is said; windows are compared with Spark's own over its default state store
(its RocksDB stands beside it on their page). Where a side ran fewer than ten full batches, nothing warmed up, or fewer
than five rounds count, that stands beside the verdict: such a figure says more of the start than of the rest. So does
that the last two of four warming rounds still differed by more than a tenth, as on a busy machine.

"""
PEERS = """## Flink and Jet on the same work

November 2026, two cores, the broker on the same two, parallelism 2; Flink 2.2.1 with a checkpoint a second, Hazelcast
Jet 5.5.0 with an exactly-once snapshot a second, in memory. 4,000,000 records of 100 bytes, 4 partitions, 1,000 keys,
one record a millisecond of event time (sessions: 2,000,000 records, 100,000 keys); counts and sums, checked. Thousand
records a second; CPU seconds per million. They ran in another run than the comparisons above, with Spark in turn: read
each beside its Spark.

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
INTRODUCTION = (
    "How to read them, and what was asked: [performance](../performance.md). Made by `make bench` out of its result "
    "files.\n\n"
)
FLAMES = """
## Where Python's time goes until the first results

Three windowed queries of one session, each to the end of its first batch (`python -m benchmarks.start_flames`): the
stacks on a CPU of the driver and of all Python processes, the widest calls widest; 28 November 2026. Before: the
version of 25 November, without the process that loads everything once and is forked for sources, planners, tasks and
writes. A frame names itself under the pointer when the picture is opened by itself.

![Python processes of three windowed queries, before](../../figures/first-windows-before.svg)

![Python processes of three windowed queries, after](../../figures/first-windows-after.svg)
"""
JOIN_FLOOR = """
## Where the rest goes

One to one, stage one in the source: a batch of 200,000 rows takes 0.66 s, in which both cores are busy: 1.2 s of CPU.
Of that Python takes 0.44 s (reading, dividing the rows, joining, packing pairs), Java's tasks 0.25 s, its compilers and
collector 0.23 s, and 0.31 s go into what Spark does for every batch, whatever is in it: planning, scheduling, the logs,
and the processes that write a checkpoint on a local disk. Eight times Spark's rate would be 0.27 s for such a batch,
and a [batch of 2,000 rows](start.md#small-batch) takes 0.25 s. So it takes larger batches, or a Spark whose batches
cost less: one that logs without Hadoop's `FileContext` (`local_checkpoint=True` does it where it is safe), and that
hands a bucket's results on before it has committed its state. Spark's own join spends 63 % of its Java code's time in
its state, row by row (`python -m benchmarks.java_flames --case join`).
"""
STATE_FLOOR = """
## Where the rest of a small batch goes

10,000 rows over a million open keys, stage one in the source: a batch takes 0.25 s and 0.35 s of CPU. Python takes 0.07
s, Java's tasks 0.05 s; 0.20 s are Spark's for every batch: 0.11 s the processes that write the checkpoint, 0.09 s
planning, scheduling and logs. A [batch of 2,000 rows](start.md#small-batch) takes as long: what the open keys cost is
below what can be seen here (`state-entries` above has it). Three times Spark's rate would be 0.17 s a batch, less than
an empty one takes on this Spark; with `local_checkpoint=True` an empty one takes 0.16 s, and Spark's own batch is
quicker by as much. Spark's own takes 0.59 s of CPU in its tasks, where each key is read and written in RocksDB.
"""
STORE_FLOOR = """
## Where the rest goes

Medians with stage one in the source take 3.6 s of CPU a million messages: half in Python (reading, the store, the
medians), 0.5 s in Java's tasks, where messages cross as columns in a few rows, 0.5 s in planning, commits and the
scheduler, 0.3 s in processes that write the checkpoint. The rival's 6.7 s: 3.8 s in Python, 2.0 s in Java's tasks, of
whose code two fifths sort and shuffle rows and a sixth packs them as pickles (`python -m benchmarks.java_flames --case
median`). Three times its rate leaves two cores 3.1 s for a million messages.
"""
