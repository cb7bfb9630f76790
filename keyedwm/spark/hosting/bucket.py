"""A bucket: one group of transformWithState, in the place of one Jet processor (docs/design/operators.md).

Rule: its state is the operator's blobs, and one small manifest of channels, watermarks and the plan that owns them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from keyedwm.core.control_row import ControlRow
from keyedwm.operators.exchange_control import unpack_control
from keyedwm.operators.operator_spec import OperatorSpec
from keyedwm.operators.protocol import KINDS
from keyedwm.operators.state.blobs import unpacked
from keyedwm.runtime.worker import VersionChecked, freeze_gc
from keyedwm.spark.hosting.bucket_batch import BucketBatch, BucketLayout, BucketManifest
from keyedwm.spark.hosting.bucket_state import (
    BucketOwner,
    SparkStore,
    named_state,
    read_manifest,
    require_owner,
    take_over,
    write_state,
)
from keyedwm.spark.hosting.continue_from import FOLLOWS, check_follows
from keyedwm.spark.hosting.rescale_state import RescaledState

if TYPE_CHECKING:
    import pandas as pd

NOTE_VERSION = 2
_log = logging.getLogger("keyedwm.aggregate")
_NO_CLOCK = -1


class Bucket(VersionChecked, StatefulProcessor):
    """The stateful processor; every task has its own copy."""

    def __init__(self, plan: OperatorSpec, layout: BucketLayout, rescaled: RescaledState | None = None) -> None:
        self._plan = plan
        self._layout = layout
        self._rescaled = rescaled
        self._follows: dict[str, int | None] = {}

    def init(self, handle: Any) -> None:
        """Create the state variables."""
        self._handle = handle
        self._manifest, self._blobs = named_state(handle)

    def close(self) -> None:
        """End the task: later garbage collections do not visit the modules' objects."""
        freeze_gc()

    def handleInitialState(
        self,
        key: Any,
        initialState: pd.DataFrame,  # noqa: N803  Spark's names
        timerValues: Any,  # noqa: N803, ARG002
    ) -> None:
        """Write the state of a stopped query, before the first rows; Spark may call this several times."""
        owner = BucketOwner(self._layout, int(key[0]), self._owner())
        take_over((self._manifest, self._blobs), initialState, self._rescaled, owner)

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803  Spark's names
    ) -> Iterator[pd.DataFrame]:
        """Run one micro-batch."""
        shipped = [row for frame in rows for row in frame.itertuples(index=False)]
        shipped.sort(key=lambda row: row.part)
        batch = self._open(key)
        control: list[list[ControlRow]] = [[] for _ in self._layout.axes]
        tables: list[list[pa.Table]] = [[] for _ in self._layout.axes]
        for row in shipped:
            if row.control:
                control[row.input] += unpack_control(bytes(row.control))
            if row.partials is not None:
                tables[row.input].append(unpacked(row.partials))
        if self._follows:
            self._follows = check_follows(self._layout.who, self._follows, chain.from_iterable(control))
        yield from batch.on_input(
            control=control,
            rows=tables,
            null_event_time_rows=sum(int(row.null_event_times) for row in shipped),
            no_gap_rows=sum(int(row.no_gaps) for row in shipped),
            now_ms=self._clock_ms(timerValues),
            rejected=[unpacked(row.rejected) for row in shipped if row.rejected is not None],
        )
        yield self._close(batch)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: Any,  # noqa: N803  Spark's names
        expiredTimerInfo: Any,  # noqa: N803, ARG002
    ) -> Iterator[pd.DataFrame]:
        """Call the operator when its timer has fired: early and late panes, waiting pairs, timers of a processor."""
        batch = self._open(key)
        yield from batch.on_timer(timerValues.getCurrentProcessingTimeInMs())
        yield self._close(batch)

    def _open(self, key: Any) -> BucketBatch:
        """Open the state that the batch before wrote; only the manifest is read here."""
        content = read_manifest(self._manifest)
        self._follows = {} if content is None else content.get(FOLLOWS, {})
        if content is not None:
            settings, earlier = KINDS[self._plan.kind].settings, self._plan.earlier_digests
            require_owner(self._layout.kind, content, self._owner(), settings, earlier)
        manifest = BucketManifest() if content is None else BucketManifest.from_json(content)
        return BucketBatch(
            self._plan, self._layout, int(key[0]), manifest, SparkStore(self._blobs, dict(manifest.blobs))
        )

    def _close(self, batch: BucketBatch) -> pd.DataFrame:
        """Write the changes of the state; return the batch's last rows."""
        changes = batch.drain()
        self._set_timer(batch)
        content = batch.manifest.as_json() | self._owner() | ({FOLLOWS: self._follows} if self._follows else {})
        write_state(self._manifest, self._blobs, changes, content)
        if batch.late_rows:
            late = {"late_rows": batch.late_rows, "watermark_ms": batch.watermark_ms}
            content = {self._layout.kind: self._layout.name} | late
            _log.warning("rows were late: %s", json.dumps(content))
        if (counts := batch.store_counts).dropped_windows:
            losses = {"windows": counts.dropped_windows, "rows": counts.dropped_messages}
            content = {self._layout.kind: self._layout.name} | losses
            _log.warning("a limit of size dropped windows before their time: %s", json.dumps(content))
        return batch.last_rows()

    def _set_timer(self, batch: BucketBatch) -> None:
        """Set the bucket's one timer to the time that the operator asks for."""
        manifest = batch.manifest
        if batch.next_timer_ms == manifest.timer_ms:
            return
        if manifest.timer_ms is not None:
            self._handle.deleteTimer(manifest.timer_ms)
        manifest.timer_ms = batch.next_timer_ms
        if manifest.timer_ms is not None:
            self._handle.registerTimer(manifest.timer_ms)

    def _owner(self) -> dict[str, Any]:
        """Return the owner of the state; another owner's state is an error."""
        return {
            "version": NOTE_VERSION,
            "buckets": len(self._layout.ids),
            "plan": self._plan.digest(),
            "description": self._plan.description(),
            "axis": self._layout.axis,
            "name": self._layout.name,
        }

    def _clock_ms(self, timers: Any) -> int | None:
        now_ms = timers.getCurrentProcessingTimeInMs()
        return None if now_ms == _NO_CLOCK else now_ms
