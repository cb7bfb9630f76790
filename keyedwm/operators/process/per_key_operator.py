"""The operator that runs a processor whose keys have watermarks of their own.

Rule: the processor is told `W - behind` as its watermark, below which no row of any key is on time. Each row is handed
over with the watermark that counted for its key when the batch began; behind the rows of a batch the keys whose
watermarks have risen are told, and those that are idle, once, when W has made them so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, contiguous, ints
from keyedwm.arrow.hashing import hashed_rows
from keyedwm.operators.keyed.key_census import KeyStanding
from keyedwm.operators.keyed.key_watermarks import NEVER, KeyWatermarks
from keyedwm.operators.keyed.own_log import KEYS_LOG, is_own
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.process.operator import ProcessOperator
from keyedwm.operators.process.plan import ProcessPlan
from keyedwm.operators.process.processor import KEY_WATERMARK, RISEN
from keyedwm.operators.results import Output
from keyedwm.operators.state.key_dictionary import key_columns
from keyedwm.operators.state.manifest import read_manifest
from keyedwm.operators.state.store import BlobStore

FACTS = "key_watermarks"  # in the manifest


class PerKeyProcessOperator(ProcessOperator):
    """One instance of the operator; its `watermark_ms` is `W - behind`."""

    def __init__(self, plan: ProcessPlan, per_key: PerKey, store: BlobStore) -> None:
        super().__init__(plan, store)
        self._behind_ms = per_key.behind_ms
        self._own = KeyWatermarks(plan, per_key, self._logs, read_manifest(plan, store).get(FACTS, {}), KEYS_LOG)
        self._own.rise(self._processor.watermark_ms)

    @property
    def open_entries(self) -> int:
        """How many rows the processor holds."""
        return sum(rows for log, rows in self._logs.rows.items() if not is_own(log, KEYS_LOG))

    def standing(self) -> KeyStanding:
        """Return how the keys stand at the end of a batch."""
        return self._own.standing()

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return what the processor makes of `W - behind`."""
        return super().output_watermark_ms(watermark_ms - self._behind_ms)

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:
        """Hand rows to the processor, then the keys whose watermarks they have raised."""
        owners = self._own.numbers(key_columns(self._plan.owners, rows), rows.num_rows)
        before = self._own.reached()
        counted = before[owners]
        channels = None
        if self._plan.channel:
            channels = hashed_rows([contiguous(rows[name]) for name in self._plan.channel], rows.num_rows)
        times = ints(contiguous(rows[self._plan.inputs[input_number].time]))
        if (late := times < counted).any():
            self._own.lost(owners[late], np.ones(int(late.sum()), np.int64))
        self._own.advance(owners, None if channels is None else channels.view(np.int64), times, row_by_row=False)
        told = rows.append_column(KEY_WATERMARK, _times(counted))
        yield from super().on_rows(input_number, told, now_ms)
        yield from self._tell(input_number, np.unique(owners), before)

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:
        """Tell `W - behind`, then the keys that W has made idle."""
        floor_ms = time_ms - self._behind_ms
        before_ms = self._processor.watermark_ms
        if before_ms is not None and floor_ms <= before_ms:
            return
        yield from super().on_watermark(input_number, key, floor_ms)
        self._own.rise(floor_ms)
        idle = self._own.idle(_done_ms)
        if len(idle):
            before = self._own.recorded()
            self._own.close_idle(idle, _done_ms)
            yield from self._tell(input_number, idle, before, self._own.recorded())

    def _manifest_state(self) -> dict[str, Any]:
        return {**super()._manifest_state(), FACTS: self._own.state()}

    def _merge(self, log: str, tables: Sequence[pa.Table]) -> pa.Table:
        return self._own.merge(tables) if self._own.owns(log) else super()._merge(log, tables)

    def _tell(self, input_number: int, owners: Ints, before: Ints, after: Ints | None = None) -> Iterator[Output]:
        """Tell the processor those of these owners whose watermarks have risen."""
        now = (self._own.reached() if after is None else after)[owners]
        risen = np.flatnonzero(now > before[owners])
        if len(risen):
            owners, now = owners[risen], now[risen]
            columns = [*self._own.columns(owners), _times(before[owners]), pa.array(now)]
            keys = pa.table(columns, [*self._plan.owners, *RISEN])
            yield from self._told(self._processor.on_key_watermark(input_number, keys))


def _done_ms(tops: Ints) -> Ints:
    """When rows with these highest event times are complete."""
    return np.where(tops > NEVER // 2, tops + 1, NEVER)


def _times(times: Ints) -> pa.Array:
    """Return watermarks of keys, null where there is none."""
    return pa.array(times, mask=times <= NEVER // 2)
