"""How the keys of an operator stand, read from its state by somebody who only looks: exact, and all keys are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.operators.keyed.key_census import MOST_SHOWN, KeyStanding, bounded, key_texts, ordered
from keyedwm.operators.keyed.key_watermarks import KeyWatermarks
from keyedwm.operators.keyed.own_log import KEYS_LOG, OWN, logs_named
from keyedwm.operators.keyed.per_key import Partitions, PerKey
from keyedwm.operators.names import CHANNEL, HIDDEN
from keyedwm.operators.state.store import logs_of

KEY_WATERMARK = "key_watermark"  # in the description of a plan
LOGS = (*logs_named(OWN), *logs_named(KEYS_LOG))


@dataclass(frozen=True)
class _ReadPlan:
    """The plan, as far as its log tells; see `OwnersPlan`."""

    owner_fields: list[pa.Field]
    channel: tuple[str, ...]

    @property
    def owners(self) -> tuple[str, ...]:
        """The key columns."""
        return tuple(field.name for field in self.owner_fields)


def held_keys(description: Mapping[str, Any], state: Mapping[str, Any], blobs: Mapping[str, bytes]) -> KeyStanding:
    """Return how the keys of a bucket stand. description: of the plan; state: the operator's; blobs: of `LOGS`."""
    given = description[KEY_WATERMARK]
    per_key = PerKey(**{**given, "partitions": Partitions(given["partitions"])})
    own = state.get("key_watermarks", state)
    census, logs = own.get("census", {}), logs_of(blobs)
    forgotten, dropped = census.get("forgotten", 0), ordered(census.get("dropped", {}).items())
    name = next(logs.names(""), None)
    if name is None:
        return KeyStanding([], forgotten, [], dropped)
    schema = logs.read(name)[0].schema
    fields = [field for field in schema if not field.name.startswith(HIDDEN)]
    plan = _ReadPlan(fields, (CHANNEL,) if CHANNEL in schema.names else ())
    keys = KeyWatermarks(plan, per_key, logs, own, KEYS_LOG if name.startswith(KEYS_LOG) else OWN)
    keys.rise(state.get("watermark_ms"))
    columns, times = keys.held()
    behind_ms = np.maximum(keys.front_ms - times, 0)
    by_ms, counts = np.unique(behind_ms, return_counts=True)
    slowest = np.argsort(-behind_ms, kind="stable")[:MOST_SHOWN]
    named = ordered(zip(key_texts(columns, slowest), behind_ms[slowest].tolist(), strict=True))
    return KeyStanding(list(zip(by_ms.tolist(), counts.tolist(), strict=True)), forgotten, named, dropped)


def together(each: Sequence[KeyStanding]) -> KeyStanding:
    """Return how the keys of all buckets stand."""
    behind: Counter[int] = Counter()
    for one in each:
        behind.update(dict(one.behind))
    return KeyStanding(
        sorted(behind.items()), sum(one.forgotten for one in each), ordered(key for one in each for key in one.slowest),
        ordered(bounded(dict(one.dropped) for one in each).items()),
    )  # fmt: skip
