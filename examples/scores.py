"""Orders scored by an HTTP service, exactly once in the topic behind it, though the service fails on the way.

    keyedwm broker                        # a real Kafka, in another terminal; it prints HOST:PORT
    python examples/scores.py HOST:PORT

`async_map` asks the service many rows at a time, with several questions in flight. A question that fails ends the
query before anything of its batch is visible; started again, it goes on from its checkpoint. The service may be asked
twice about an order; readers of the topic meet it once. It prints:

    the query failed: the service answered 503
    the query ended
    8 orders, 8 of them different; the highest score is 0.70
"""

import asyncio
import json
import sys
import tempfile
import threading
import uuid
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from keyedwm.spark import async_map, kafka, session_conf


class Scores(BaseHTTPRequestHandler):
    """The service: amounts in, scores out. It answers the second question of all with an error."""

    call_count = 0

    def do_POST(self) -> None:
        """Answer a JSON list of amounts."""
        amounts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Scores.call_count += 1
        self.send_response(503 if Scores.call_count == 2 else 200)
        self.end_headers()
        self.wfile.write(json.dumps([amount / 100 for amount in amounts]).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


server = ThreadingHTTPServer(("127.0.0.1", 0), Scores)
threading.Thread(target=server.serve_forever, daemon=True).start()
(bootstrap,) = sys.argv[1:]
ORDERS, SCORED = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("orders", "scored"))
admin = KafkaAdminClient(bootstrap_servers=bootstrap)
admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1) for name in (ORDERS, SCORED)])
admin.close()
producer = KafkaProducer(bootstrap_servers=bootstrap)
for number in range(8):
    producer.send(ORDERS, b"%d" % (number * 10), key=b"%d" % number)
producer.close()


def ask(amounts: list[int], port: int = server.server_port) -> list[str]:
    """One question to the service."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("POST", "/", json.dumps(amounts))
    answer = connection.getresponse()
    if answer.status != 200:
        raise OSError(f"the service answered {answer.status}")
    return [f"{score:.2f}" for score in json.load(answer)]


async def scored(rows: pa.Table) -> pa.Table:
    """Runs in Spark's tasks: rows in, rows with the columns of the new topic out."""
    scores = await asyncio.to_thread(ask, [int(value) for value in rows["value"].to_pylist()])
    return rows.set_column(rows.schema.get_field_index("value"), "value", pa.array(scores))


builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
for name, value in session_conf(cores=2).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

checkpoint = tempfile.mkdtemp()
rows = kafka(spark, bootstrap, subscribe=ORDERS, starting_offsets="earliest").load()
scored_rows = async_map(rows, scored, "key binary, value string", rows_per_call=4, capacity=2)
writer = scored_rows.writeStream.format("keyedwm").option("kafka.bootstrap.servers", bootstrap).option("topic", SCORED)
for _ in range(2):
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
        print("the query ended")
    except StreamingQueryException as error:
        print("the query failed:", "the service answered 503" if "503" in str(error) else error)
server.shutdown()
server.server_close()
read = spark.read.format("keyedwm").option("kafka.bootstrap.servers", bootstrap).option("subscribe", SCORED)
records = read.load().selectExpr("key", "cast(value as string) score").collect()
keys, best = {bytes(record.key) for record in records}, max(record.score for record in records)
print(f"{len(records)} orders, {len(keys)} of them different; the highest score is {best}")
