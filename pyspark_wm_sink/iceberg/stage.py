"""The Parquet files of an Iceberg table that a task stages: where the table keeps its data, in none of its manifests.

Rule: a file that a killed task leaves behind is an orphan: no reader sees it, and a removal of orphan files deletes it.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    StatsAggregator,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.types import DateType, DoubleType, FloatType, IcebergType, TimestampType, TimestamptzType
from pyiceberg.utils.properties import property_as_bool, property_as_int

from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.iceberg.partitions import PartitionValues, directory_of, partitions_of
from pyspark_wm_sink.places.paths import local_directory
from pyspark_wm_sink.tables.stage import OpenFile, StagedFile, StagePlan

_COMPRESSION = "write.parquet.compression-codec"
_CODECS = {name: name for name in ("zstd", "snappy", "gzip", "lz4", "brotli")} | {"uncompressed": "none"}
_FLOATS = (FloatType, DoubleType)  # bounds of them leave NaN out, see `columns_with_statistics`
_TIMES = (DateType, TimestampType, TimestamptzType)


@dataclass(frozen=True, kw_only=True, slots=True)
class IcebergStagePlan(StagePlan):
    """An Iceberg table.

    name: its name in the catalog. location: its address. files: settings of its store. properties: the table's own.
    columns: its fields that files hold. spec: its partitions. uuid: the table's id, which changes if the table is
    created again.
    """

    name: str
    location: str
    uuid: str
    files: Mapping[str, str] = field(repr=False)
    properties: Mapping[str, str]
    columns: Schema
    spec: PartitionSpec

    @property
    def place(self) -> str:
        """The table's name."""
        return self.name

    @property
    def options(self) -> tuple[str, str]:
        """The options `table` and `errorsTo`."""
        return "table", "table or errorsTo"

    @property
    def local_directory(self) -> Path | None:
        """The table's location if it is on this machine, else None."""
        return local_directory(self.location)

    def local_path(self, name: str) -> Path | None:
        """The path of a file, whose name is its address."""
        return local_directory(name)

    def partitions_of(self, rows: pa.Table) -> Iterator[tuple[PartitionValues, pa.Table]]:
        """Yield the rows of each partition with its values."""
        return partitions_of(rows, self.spec, self.columns, has_offsets=self.has_offsets)

    def new_file(self, task: Task, partition: Any) -> _ParquetFile:
        """Begin a file at the place that the table's layout has for the partition."""
        return _ParquetFile(self, task, partition)

    def discard(self, names: Iterable[str]) -> None:
        """Remove files that no snapshot names."""
        files = self.io()
        for name in names:
            with suppress(FileNotFoundError):
                files.delete(name)

    def io(self) -> FileIO:
        """The table's store."""
        return load_file_io(dict(self.files), self.location)


@dataclass(frozen=True, kw_only=True, slots=True)
class IcebergFile(StagedFile):
    """One staged file, its name its address, with what a manifest records about it; metrics: PyIceberg's arguments."""

    partition: PartitionValues
    metrics: Mapping[str, Any]


class _ParquetFile(OpenFile):
    def __init__(self, plan: IcebergStagePlan, task: Task, partition: PartitionValues) -> None:
        self._plan, self._partition = plan, partition
        name = f"{task.partition:05d}-{task.number}-{uuid.uuid4()}.parquet"
        layout = load_location_provider(plan.location, dict(plan.properties))
        if not plan.spec.is_unpartitioned():
            name = f"{directory_of(partition, plan.spec, plan.columns)}/{name}"
        name = layout.new_data_location(name)
        super().__init__(
            name, plan.io().new_output(name).create(), plan.schema, plan.limits.group_rows,
            compression=_CODECS[_codec(plan.properties)], store_decimal_as_integer=True,
        )  # fmt: skip

    def _report(self, size: int, footer: pq.FileMetaData) -> IcebergFile:
        return IcebergFile(
            name=self._name, size=size, rows=footer.num_rows, partition=self._partition,
            metrics=_metrics(footer, self._plan),
        )  # fmt: skip


def check_properties(properties: Mapping[str, str], columns: Schema) -> None:
    """Raise ValueError for a wrong value of a table's property that controls how files or commits are written."""
    if _codec(properties) not in _CODECS:
        raise ValueError(f"{_COMPRESSION}={properties[_COMPRESSION]}, one of {', '.join(_CODECS)} is expected")
    compute_statistics_plan(columns, dict(properties))
    if property_as_bool(properties, TableProperties.MANIFEST_MERGE_ENABLED, False):  # noqa: FBT003 - PyIceberg's
        for name in (TableProperties.MANIFEST_TARGET_SIZE_BYTES, TableProperties.MANIFEST_MIN_MERGE_COUNT):
            property_as_int(properties, name)


def _codec(properties: Mapping[str, str]) -> str:
    return properties.get(_COMPRESSION, "zstd").lower()


def _metrics(footer: pq.FileMetaData, plan: IcebergStagePlan) -> dict[str, Any]:
    """Counts and bounds of each column, as the table's properties ask for; none of floats."""
    collectors = compute_statistics_plan(plan.columns, dict(plan.properties))
    without_floats = _limited(collectors, _FLOATS, MetricModeTypes.NONE)
    paths = parquet_path_to_id_mapping(plan.columns)
    try:
        statistics = data_file_statistics_from_parquet_metadata(footer, without_floats, paths)
    except (OverflowError, ValueError):  # a time beyond the years 1 to 9999, which Python cannot hold
        count_only = _limited(without_floats, _TIMES, MetricModeTypes.COUNTS)
        statistics = data_file_statistics_from_parquet_metadata(footer, count_only, paths)
    for number in _without_bounds(footer, paths):
        statistics.column_aggregates.pop(number, None)
    for one in statistics.column_aggregates.values():
        _leave_out_odd_text(one)
    return statistics.to_serialized_dict()


def _without_bounds(footer: pq.FileMetaData, paths: Mapping[str, int]) -> Iterator[int]:
    """Yield the fields of which a row group has values but no bounds: Parquet has no bounds of values above 4 KiB.

    PyIceberg would use the bounds of the other row groups for the whole file, and readers would skip the values.
    """
    for at in range(footer.num_row_groups):
        group = footer.row_group(at)
        for column in map(group.column, range(group.num_columns)):
            statistics = column.statistics
            if statistics is None or (statistics.num_values and not statistics.has_min_max):
                yield paths[column.path_in_schema]


def _leave_out_odd_text(bounds: StatsAggregator) -> None:
    """Drop an upper bound that PyIceberg cannot write: after U+D7FF its next character is half of a surrogate pair."""
    if isinstance(bounds.current_max, str):
        try:
            bounds.max_as_bytes()
        except UnicodeEncodeError:
            bounds.current_max = None


def _limited(
    collectors: Mapping[int, StatisticsCollector], kinds: tuple[type[IcebergType], ...], mode: MetricModeTypes
) -> dict[int, StatisticsCollector]:
    return {
        name: dataclasses.replace(one, mode=MetricsMode(mode)) if isinstance(one.iceberg_type, kinds) else one
        for name, one in collectors.items()
    }
