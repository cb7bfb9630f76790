"""A user's script: prints the columns that `format("keyedwm")` has and the Python that runs the tasks, as JSON.

With `first` it imports keyedwm.spark before the session is created, with `late` afterwards. No broker is asked: the
schema needs none.
"""

import json
import sys

when = sys.argv[1]
if when == "first":
    import keyedwm.spark

from pyspark.sql import SparkSession  # noqa: E402 - when keyedwm is imported is the question

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
if when == "late":
    import keyedwm.spark  # noqa: F401

reader = spark.readStream.format("keyedwm").option("kafka.bootstrap.servers", "127.0.0.1:9")
columns = reader.option("subscribe", "orders").load().columns
python = spark.sparkContext.range(1).map(lambda _: sys.executable).first()
print(json.dumps({"columns": columns, "python": python}))
spark.stop()
