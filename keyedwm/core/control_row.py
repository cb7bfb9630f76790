"""A control row, and its only encoding as text, which source, shuffle and sink use.

Rule: a row without a required field of its kind, or with a field of another kind, cannot be built. The text of several
rows is a JSON array of objects, the text of one row a JSON object; a field that does not apply is absent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from keyedwm.core.errors import InputError
from keyedwm.core.parsing import parse_json
from keyedwm.core.pickles import pickled_by_fields
from keyedwm.core.rows import ControlKind, channel_name
from keyedwm.core.text import short_repr
from keyedwm.core.watermark import MAX_KEY, MAX_MS, MIN_KEY, MIN_MS

_INT64 = range(MIN_MS, MAX_MS + 1)
_COUNT = range(2**63)
_RANGES = {
    "offset": _COUNT,
    "key": range(MIN_KEY, MAX_KEY + 1),
    "watermark_ms": _INT64,
    "snapshot": _COUNT,
    "channels": range(1, 2**31),
}
# The fields besides kind, channel and offset; each kind needs all of its fields.
_FIELDS_OF = {
    ControlKind.WATERMARK: ("key", "watermark_ms"),
    ControlKind.BARRIER: ("channel", "snapshot", "channels"),
    ControlKind.ACTIVE: ("channel",),
    ControlKind.RESET: ("channel",),
    ControlKind.IDLE: (),
}
_KINDS: Mapping[object, ControlKind] = {kind.value: kind for kind in ControlKind}
_FIELDS_OF_SOME_KINDS = ("key", "watermark_ms", "snapshot", "channels")
_UNUSED = {kind: tuple(f for f in _FIELDS_OF_SOME_KINDS if f not in own) for kind, own in _FIELDS_OF.items()}


@pickled_by_fields
@dataclass(frozen=True, kw_only=True, slots=True)
class ControlRow:
    """One control row; a field that does not apply is None.

    channel: None for the driver's own rows about all channels. offset: the offset of the record after the row, or the
    next offset. channels: how many channels must deliver this barrier; 0, without a channel, marks the whole snapshot
    of a source without channels. source: the id of the source or operator that emits the row, the same after a restart;
    None in rows of format version 1.
    """

    kind: ControlKind
    channel: str | None = None
    offset: int | None = None
    key: int | None = None
    watermark_ms: int | None = None
    snapshot: int | None = None
    channels: int | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        # Every row of every channel is built several times a batch: only a wrong row is examined in detail.
        if not (
            (self.channel is None or type(self.channel) is str)
            and (self.source is None or type(self.source) is str)
            and (self.offset is None or (type(self.offset) is int and 0 <= self.offset <= MAX_MS))
            and self._fits_kind()
        ):
            self._refuse()

    def _fits_kind(self) -> bool:
        kind, key, ms, snapshot, channels = self.kind, self.key, self.watermark_ms, self.snapshot, self.channels
        if kind is ControlKind.WATERMARK:
            in_range = type(key) is type(ms) is int and MIN_KEY <= key <= MAX_KEY and MIN_MS <= ms <= MAX_MS
            return in_range and snapshot is None and channels is None
        if key is not None or ms is not None:
            return False
        if kind is ControlKind.BARRIER:
            has_counts = type(snapshot) is type(channels) is int and 0 <= snapshot <= MAX_MS and 0 <= channels < 2**31
            if channels == 0:
                return has_counts and self.channel is None and self.source is not None
            return has_counts and self.channel is not None
        return snapshot is None and channels is None and (kind is ControlKind.IDLE or self.channel is not None)

    def _refuse(self) -> NoReturn:
        """Say what is wrong with the row."""
        if not isinstance(self.channel, str | None):
            raise InputError(f"the channel of a control row is {self.channel!r}, a text is expected: {self}")
        if not isinstance(self.source, str | None):
            raise InputError(f"the source of a control row is {self.source!r}, a text is expected: {self}")
        for name in _FIELDS_OF[self.kind]:
            if getattr(self, name) is None:
                raise InputError(f"a control row of kind {self.kind.value} has no {name}, it must have one: {self}")
        for name in _UNUSED[self.kind]:
            if getattr(self, name) is not None:
                raise InputError(f"a control row of kind {self.kind.value} has a {name}, it must have none: {self}")
        for name, allowed in _RANGES.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value not in allowed):
                raise InputError(
                    f"the {name} of a control row is {value!r}, a whole number from {allowed[0]} to {allowed[-1]} is "
                    f"expected: {self}"
                )
        raise InputError(f"a control row of kind {self.kind!r} is not one that keyedwm makes: {self}")

    def as_json(self) -> dict[str, str | int]:
        """Return the fields that apply."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}


FIELDS = tuple(ControlRow.__dataclass_fields__)
_NAMES = frozenset(FIELDS)


def control_row(kind: str | None, **fields: str | int | None) -> ControlRow:
    """Build a row from the values of a column or a text. Raises InputError for a kind that does not exist."""
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        allowed = ", ".join(kind.value for kind in ControlKind)
        raise InputError(f"a control row has kind {short_repr(kind)}, one of {allowed} is expected")
    return ControlRow(kind=known, **fields)  # type: ignore[arg-type]  # the row checks them


def channel_row(
    kind: ControlKind, channel: tuple[str, int], offset: int, source: str, **fields: int | None
) -> ControlRow:
    """Build a control row of a source's channel (topic, partition)."""
    return ControlRow(kind=kind, channel=channel_name(*channel), offset=offset, source=source, **fields)


def encode_rows(rows: Iterable[ControlRow]) -> str:
    """Write rows as text."""
    return json.dumps([row.as_json() for row in rows], separators=(",", ":"))


def decode_rows(text: str) -> list[ControlRow]:
    """Read what `encode_rows` wrote. Raises InputError for anything else."""
    try:
        entries = parse_json(text)
    except ValueError as error:
        raise InputError(f"the text of control rows is not JSON: {error}") from None
    if not isinstance(entries, list) or not all(isinstance(one, dict) and one.keys() <= _NAMES for one in entries):
        raise InputError(f"the text of control rows must be a list of objects with {', '.join(FIELDS)}")
    return [control_row(one.pop("kind", None), **one) for one in entries]


def joined(texts: Iterable[str]) -> str:
    """Return the text of several rows from the texts of single rows."""
    return f"[{','.join(texts)}]"
