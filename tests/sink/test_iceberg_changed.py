"""What others do to the branches, properties and partitions of an Iceberg table that a query writes to."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.types import StringType

from keyedwm.core.errors import InputError, UnavailableError
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.tables.publish import publish
from tests.sink.iceberg_sink import COLUMNS, NAME, catalog_of, foreign_append, how, numbers, rows, stage_rows, table_of

TWO = pa.schema([("n", pa.int64()), ("m", pa.int64())])


def on(place, branch: str) -> list[int]:
    return sorted(table_of(place).scan().use_ref(branch).to_arrow().column("n").to_pylist())


@pytest.mark.parametrize("batches", [0, 1])
@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_branch_that_is_dropped_is_not_made_again_without_the_rows_of_main(guarantee, batches, tmp_path):
    to = how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    audit = replace(how(tmp_path, branch="audit"), guarantee=guarantee)
    for batch in range(batches):
        publish(audit, [stage_rows(audit, [2], batch, query="a")], batch=batch)
    snapshot_id = table_of(tmp_path).refs()["audit"].snapshot_id
    table_of(tmp_path).manage_snapshots().remove_branch("audit").commit()
    for sentence in ("ran: create it again", "ran, and is a tag now: create it again"):
        with pytest.raises(
            InputError, match=rf"branch audit of the Iceberg table db\.t was dropped while the .* {sentence}"
        ):
            publish(audit, [stage_rows(audit, [3], batches, query="a")], batch=batches)
        table_of(tmp_path).manage_snapshots().create_tag(snapshot_id, "audit").commit()
    table_of(tmp_path).manage_snapshots().remove_tag("audit").commit()
    table_of(tmp_path).manage_snapshots().create_branch(snapshot_id, "audit").commit()
    publish(audit, [stage_rows(audit, [3], batches, query="a")], batch=batches)
    assert on(tmp_path, "audit") == sorted([1, 3, *[2] * batches])


def test_a_branch_keeps_how_long_it_and_its_snapshots_are_retained(tmp_path):
    to = how(tmp_path)
    publish(to, [stage_rows(to, [1])], batch=0)
    table = table_of(tmp_path)
    retention = {"max_ref_age_ms": 10**10, "max_snapshot_age_ms": 10**9, "min_snapshots_to_keep": 7}
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit", **retention).commit()
    audit = how(tmp_path, branch="audit")
    publish(audit, [stage_rows(audit, [2], query="a")], batch=0)
    assert on(tmp_path, "audit") == [1, 2]
    assert retention.items() <= dict(table_of(tmp_path).refs()["audit"]).items()


@pytest.mark.parametrize("last", [0, 2])
def test_a_batch_whose_property_somebody_removes_is_known_by_its_snapshot(last, tmp_path):
    to = how(tmp_path)
    for batch in range(last + 1):
        publish(to, [stage_rows(to, [batch], batch)], batch=batch)
    with table_of(tmp_path).transaction() as transaction:
        transaction.remove_properties("keyedwm.main.q")
    for batch in (last, last + 1):
        publish(to, [stage_rows(to, [batch], batch)], batch=batch)
    assert numbers(tmp_path) == list(range(last + 2))


def test_a_rollback_of_a_table_of_version_1_is_noticed_after_the_newer_snapshots_have_expired(tmp_path):
    catalog_of(tmp_path).create_table(NAME, COLUMNS, properties={"format-version": "1"})
    to = how(tmp_path)
    for batch in range(3):
        publish(to, [stage_rows(to, [batch], batch)], batch=batch)
    first, *newer = (one.snapshot_id for one in table_of(tmp_path).snapshots())
    table_of(tmp_path).manage_snapshots().rollback_to_snapshot(first).commit()
    table_of(tmp_path).maintenance.expire_snapshots().by_ids(newer).commit()
    for _ in range(2):  # also once somebody else has written behind it
        with pytest.raises(InputError, match=r"was rolled back to an older snapshot .* now comes batch 3: set the"):
            publish(to, [stage_rows(to, [3], 3)], batch=3)
        foreign_append(tmp_path, 50)


def test_a_required_field_that_others_add_inside_a_column_refuses_the_batch(tmp_path):
    kind = pa.struct([("a", pa.int64())])
    source_rows = pa.table({"s": pa.array([{"a": 1}], kind)})
    to = how(tmp_path, schema=source_rows.schema)
    message = stage_rows(to, source_rows)
    with table_of(tmp_path).update_schema(allow_incompatible_changes=True) as update:
        update.add_column(("s", "b"), StringType(), required=True)
    with pytest.raises(UnavailableError, match=r"the column s of the Iceberg table db\.t changed after the rows"):
        publish(to, [message], batch=0)


def test_a_dropped_column_that_once_partitioned_a_table_of_version_1_is_refused_while_the_table_can_be_read(tmp_path):
    catalog_of(tmp_path).create_table(NAME, TWO, properties={"format-version": "1"})
    with table_of(tmp_path).update_spec() as update:
        update.add_identity("m")
    with table_of(tmp_path).update_spec() as update:
        update.remove_field("m")
    to = how(tmp_path, mergeSchema="true")
    publish(to, [stage_rows(to, [1])], batch=0)
    with table_of(tmp_path).update_schema() as update:
        update.delete_column("m")
    with pytest.raises(UnavailableError, match=r"the partitions of the Iceberg table db\.t changed after the rows"):
        publish(to, [stage_rows(to, [2], 1)], batch=1)
    with pytest.raises(InputError, match=r"was partitioned by a column that was dropped since, and PyIceberg cannot"):
        how(tmp_path)


def test_manifests_with_doubles_of_partitions_are_not_joined_since_they_would_be_rounded(tmp_path):
    source_rows = pa.table({"v": [0.1]})
    merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    catalog_of(tmp_path).create_table(NAME, source_rows.schema, properties=merging)
    with table_of(tmp_path).update_spec() as update:
        update.add_identity("v")
    to = how(tmp_path, schema=source_rows.schema)
    for batch in range(3):
        publish(to, [stage_rows(to, source_rows, batch)], batch=batch)
    table = table_of(tmp_path)
    manifests = table.current_snapshot().manifests(table.io)
    assert all(struct.pack("<d", 0.1) in first_block(table.io, one.manifest_path) for one in manifests)
    assert rows(tmp_path) == source_rows.to_pylist() * 3
    with pytest.raises(InputError, match=r"output mode complete: the Iceberg table db\.t is, or was, partitioned by"):
        how(tmp_path, schema=source_rows.schema, overwrite=True)


def first_block(io, address: str) -> bytes:
    """The rows of a manifest as they stand in it: PyIceberg reads doubles as of 32 bits."""
    with io.new_input(address).open() as file:
        content = file.read()
    start = content.find(content[-16:]) + 16
    block = new_decoder(content[start:])
    block.read_int()
    size = block.read_int()
    begin = start + block.tell()
    return zlib.decompress(content[begin : begin + size], -15)
