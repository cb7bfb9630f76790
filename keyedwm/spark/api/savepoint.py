"""`savepoint`: the state of a stopped query, read with Spark's own state reader and written for another query.

Rule: it reads the checkpoint and changes nothing there. State that cannot move is an error in one sentence, before
anything is written. The manifest comes last, so an interrupted call leaves no savepoint.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import permutations
from typing import TYPE_CHECKING, Any

from keyedwm.core.errors import FormatError, InputError, OptionError
from keyedwm.core.text import words_of
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.state.manifest import MANIFEST, content_of
from keyedwm.savepoint_files import SAVEPOINT_MANIFEST, STATE, Files, OperatorState, Savepoint, kind_of, write_savepoint
from keyedwm.spark.arguments import require_session
from pyspark_wm_source.values.checkpoint import newest, sources_of
from pyspark_wm_source.values.offsets import QueryOffset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# State variables of a bucket; see `bucket_state.named_state`.
_VARIABLES = {"note", "blobs"}
# The packages whose errors Spark's reader raises: py4j for the JVM of this process, else pyspark.
_SPARKS = ("py4j", "pyspark")
# What Java escapes in the path of an address; Spark's state reader escapes it twice.
_ESCAPED = re.compile(r"""[\s%"<>\\^`{|}\[\]#?]""")
# Versions of the manifests of buckets.
_READABLE = (2,)


def savepoint(spark: SparkSession, checkpoint: str, target: str) -> Savepoint:
    """Write the state of a checkpoint's stopped query to `target`, from which other queries may continue.

    checkpoint, target: directories, or addresses that both Spark and pyarrow can reach. Raises InputError, OptionError
    and FormatError in one sentence: the query is not stopped between two batches, has state that cannot move, or
    `target` is not empty.
    """
    require_session(spark, "savepoint")
    read, write = Files(checkpoint), Files(target)
    batch, sources = offsets_of(checkpoint)
    _check_sources(checkpoint, sources)
    if write.is_in(read):
        raise OptionError(f"{target} lies in the checkpoint {checkpoint}, which stays as it is: name a place outside")
    _check_free(write)
    pairs = list(read_operators(spark, read))
    operators = {operator.name: operator for operator, _ in pairs}
    counts = Counter(operator.name for operator, _ in pairs)
    shared_names = ", ".join(sorted(name for name, count in counts.items() if count > 1))
    if shared_names:
        raise OptionError(
            f"the checkpoint {checkpoint} has several operators of one name ({shared_names}); a result that is used "
            f"twice runs twice, and its state cannot be moved: start the new query from older offsets"
        )
    states = [state for _, state in pairs]
    if states:
        every = states[0]
        for state in states[1:]:
            every = every.unionAll(state)
        every.write.mode("overwrite").parquet(f"{write.for_spark}/{STATE}")
    if offsets_of(checkpoint)[0] != batch:
        raise InputError(f"the query of {checkpoint} runs: a batch came while it was read; stop it first")
    result = Savepoint(
        place=target,
        checkpoint=checkpoint,
        batch=batch,
        sources=[source.to_json() for source in sources],
        operators=operators,
    )
    write_savepoint(write, result)
    return result


def check_places(checkpoint: str, target: str) -> None:
    """Raise the errors of `savepoint` that need no Spark: of the query's offsets and of the target."""
    _check_sources(checkpoint, offsets_of(checkpoint)[1])
    _check_free(Files(target))


def read_operators(spark: SparkSession, files: Files) -> Iterator[tuple[OperatorState, DataFrame]]:
    """Yield the state of each operator after the last batch, and its blobs as rows of a savepoint."""
    with _readable(files):
        for number, kind in _operators(spark, files):
            yield _operator(spark, files, number, kind)


@contextmanager
def _readable(files: Files) -> Iterator[None]:
    """Turn errors of Spark's state reader into one sentence. Raises OptionError and FormatError."""
    escaped = sorted(set(_ESCAPED.findall(files.for_spark)))
    if escaped:
        raise OptionError(
            f"Spark's state reader cannot read {files.place!r}, since its path has {' '.join(map(repr, escaped))}: "
            "copy the checkpoint, or make a link to it, with a plainer name"
        )
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _SPARKS:
            raise
        raise FormatError(
            f"the state of {files.place} cannot be read, so files of it may be missing or damaged: take a whole copy "
            f"of the checkpoint ({words_of(error)})"
        ) from error


def offsets_of(checkpoint: str) -> tuple[int, list[QueryOffset]]:
    """The newest batch of a checkpoint and the offsets at its end. Raises InputError unless it is committed."""
    files = Files(checkpoint)
    planned = newest(files.names("offsets") or ())
    if planned is None:
        raise InputError(f"{files.place} is no checkpoint of a query that has run: it has no batch under offsets")
    if planned != newest(files.names("commits") or ()):
        raise InputError(
            f"the checkpoint {files.place} has batch {planned} planned and not committed: start its query once more, "
            f"with the trigger availableNow, and move it when that has ended"
        )
    sources = []
    name = f"offsets/{planned}"
    for number, offset in sources_of(files.read(name) or "", f"{files.place}/{name}"):
        if offset is None:
            raise OptionError(f"source {number} of {files.place} is not keyedwm's, so where it stands cannot move")
        sources.append(offset)
    return planned, sources


def _check_sources(checkpoint: str, sources: list[QueryOffset]) -> None:
    """Raise OptionError if one source reads all that another reads: `continueFrom` would select both."""
    for one, other in permutations(sources, 2):
        if set(one.channels) <= set(other.channels):
            topics = ", ".join(sorted({channel.topic for channel in one.channels}))
            raise OptionError(
                f"a source of the checkpoint {checkpoint} reads only partitions of another source (topics: "
                f"{topics or 'none yet'}), and a savepoint cannot continue both: start the new query from older offsets"
            )


def _check_free(target: Files) -> None:
    """Raise OptionError for a place that is not empty or not writable; replace an interrupted savepoint."""
    if barred := target.barred_by():
        raise OptionError(
            f"{target.place} cannot be written: {barred} is not a directory in which this user may write; name another"
        )
    names = [name for name in target.names() or () if name not in {STATE, f"_{SAVEPOINT_MANIFEST}"}]
    if SAVEPOINT_MANIFEST in names:
        raise OptionError(f"{target.place} is a savepoint already, which nothing changes: name another place")
    if links := target.links((STATE, f"_{SAVEPOINT_MANIFEST}")):
        raise OptionError(f"{target.place} has a link ({links[0]}), which is not followed: name a new place")
    if names:
        raise OptionError(f"{target.place} is not empty ({names[0]}): name a new place for the savepoint")


def _operators(spark: SparkSession, files: Files) -> list[tuple[int, str]]:
    """Return the stateful operators of the query that hold buckets; raise OptionError for third-party ones."""
    if files.names("state") is None:
        return []
    pairs = []
    for row in spark.read.format("state-metadata").load(files.for_spark).collect():
        properties = json.loads(row.operatorProperties or "{}")
        variables = {one["stateName"] for one in properties.get("stateVariables", ())}
        if not variables >= _VARIABLES:
            raise OptionError(
                f"operator {row.operatorId} of {files.place} ({row.operatorName}) is none of keyedwm, "
                f"so its state cannot move"
            )
        pairs.append((row.operatorId, row.operatorName))
    return sorted(set(pairs))


def _operator(spark: SparkSession, files: Files, number: int, kind: str) -> tuple[OperatorState, DataFrame]:
    """The state of one operator, and its blobs as rows of a savepoint."""
    from pyspark.sql import functions as F

    def variable(name: str) -> DataFrame:
        reader = spark.read.format("statestore").option("operatorId", number).option("stateVarName", name)
        return reader.load(files.for_spark)

    manifests = {
        row.bucket: json.loads(row.note) for row in variable("note").select("key.bucket", "value.note").collect()
    }
    first = manifests.get(0)
    if first is None:
        raise OptionError(f"operator {number} of {files.place} ({kind}) has no state yet")
    if first["version"] not in _READABLE:
        raise FormatError(
            f"{kind_of(first.get('told'))} {first['name']}: its state has version {first['version']}, this keyedwm "
            f"reads {', '.join(map(str, _READABLE))}"
        )
    ids = bucket_ids(first["buckets"])
    blobs = variable("blobs").select(
        F.col("key.bucket").alias("id"), F.col("user_map_key.name").alias("name"),
        F.col("user_map_value.blob").alias("blob"),
    )  # fmt: skip
    states = {row.id: content_of(bytes(row.blob)) for row in blobs.where(F.col("name") == MANIFEST).collect()}
    _check_whole(first, ids, manifests, states, blobs)
    order = F.create_map(*(F.lit(one) for number, bucket in enumerate(ids) for one in (bucket, number)))
    rows = blobs.where(F.col("name") != MANIFEST).select(
        F.lit(first["name"]).alias("operator"), order[F.col("id")].alias("bucket"), "name", "blob"
    )
    operator = OperatorState(
        name=first["name"],
        axis=first["axis"],
        digest=first["plan"],
        description=first.get("description"),
        manifests=[_manifest(manifests[one]) for one in ids],
        states=[states[one] for one in ids],
    )
    return operator, rows


def _manifest(content: Mapping[str, Any]) -> dict[str, Any]:
    parts = ("inbox", "inboxes", "blobs", "emitted_ms", "emitted", "snapshot")
    return {name: content[name] for name in parts if name in content}


def _check_whole(
    first: Mapping[str, Any], ids: list[int], manifests: Mapping[int, Any], states: Mapping[int, Any], blobs: DataFrame
) -> None:
    """Raise FormatError for incomplete state, or buckets that stand at different points."""
    from pyspark.sql import functions as F

    who = f"{kind_of(first.get('told'))} {first['name']}"
    lacking = [number for number, one in enumerate(ids) if one not in manifests or one not in states]
    if lacking or set(manifests) - set(ids):
        raise FormatError(f"{who}: the checkpoint lacks the state of bucket {(lacking or [len(ids)])[0]} of {len(ids)}")
    sizes = blobs.groupBy("id").agg(F.count("*").alias("blobs"), F.sum(F.length("blob")).alias("bytes")).collect()
    actual = {row.id: (row.blobs, row.bytes) for row in sizes}
    for number, one in enumerate(ids):
        sizes_of = manifests[one]["blobs"]
        if actual[one] != (len(sizes_of), sum(sizes_of.values())):
            raise FormatError(
                f"{who}: bucket {number} has {actual[one][0]} blobs of {actual[one][1]} bytes, its manifest names "
                f"{len(sizes_of)} of {sum(sizes_of.values())}"
            )
        for part in ("inbox", "inboxes", "snapshot"):
            if manifests[one].get(part) != first.get(part):
                raise FormatError(f"{who}: buckets 0 and {number} stand at different points ({part})")
