"""Every operator on messy data, by seeds, against brute force in plain Python.

What runs is the code of Spark's Python workers (stage one, the hash into buckets, the bucket with its state,
unpacking), driven in this process; a bucket begins each batch from the blobs that the one before wrote, and now and
then all state moves to another number of buckets.

    python -m tests.messy --seeds 10000 --from 1        # all families in turn; `--only join` for one
    KEYEDWM_SEED=7 .venv/bin/pytest tests/messy         # 500 other seeds

A seed that fails prints the command that repeats it.

- kinds.py: the types and their values; equality. To add a type: a `_kind` in KINDS with its Arrow type, values as they
  are put into Arrow, and what can be done with it; `array` and `canon` say how it is built and compared.
- feed.py: columns with odd names, NOT NULL ones, channels with idle spells, event times on edges, batches, watermarks.
- scalar.py, conditions.py: aggregates and conditions in plain Python. To add an aggregate: a method of `Maker`.
- drive.py: the workers' code. To add an operator: a module with `play(rng)` that draws a feed and a plan, plays both
  `Pipeline` and a model batch by batch, and asserts that they agree; and its name in families.py.
- test_spark.py, spark_frames.py: frames over a real topic, with random select, casts and names, against Spark's SQL.
"""
