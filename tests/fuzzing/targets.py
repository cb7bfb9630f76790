"""Bytes from outside, made up: `python -m tests.fuzzing.targets --seconds 600`.

A target takes bytes and must end in a value that fits its promise or in an error that is meant for the user. What is
made up starts from sound samples, changed by hypothesis, which also shrinks what it finds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path as Directory
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keyedwm.arrow.json_scan import Path, find
from keyedwm.arrow.time_text import MAX_EVENT_MS, MIN_EVENT_MS, milliseconds
from keyedwm.core.axis import AxisState, Counts, PropagatedState
from keyedwm.core.coalescer import CommonState
from keyedwm.core.encoding import KEY_BYTES, CommittedState, decode_committed, encode_committed, try_decode
from keyedwm.core.errors import FormatError, InputError, KeyedwmError
from keyedwm.core.inline import VERSION, Upstream, UpstreamBarrier, decode_cut, encode_cut, is_genuine
from keyedwm.core.places import Unit
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import Committed, TopicPartition
from keyedwm.kafka.requests.transactions import Transaction
from pyspark_wm_sink.batch.record import ChannelRecord, Record
from pyspark_wm_sink.kafka.ledger import Entry, Ledger
from pyspark_wm_sink.kafka.marker import Marker
from pyspark_wm_source.values.offsets import Channel, CutLimits, QueryOffset, RetiredChannel
from tests.kafka import fuzz

Target = Callable[[bytes], None]
MOST_SAID = 1_000  # characters of an error
_KEY, _PLACE = bytes(range(KEY_BYTES)), "g t-0 5 s"
_STATE = CommittedState(7, Counts(1, 2, 3), {0: AxisState(emitted_ms=1_700_000_000_000), 3: AxisState(emitted_ms=None)})
_PATHS = [Path(["t"]), Path(["a", "b", 2]), Path([0]), Path(["ä", "t"])]
_BATCHES = fuzz.seeds()
_JSON = (
    b'{"t": 1700000000000, "a": {"b": [1, "2", 3.5e2, null]}, "\\u00e4": {"t": "2024-01-01T00:00:00Z"}}',
    b'[[1, 2], {"t": -1.25E+3}]', b'{"t"', b'"', b'{"a":{"b":[0,1,"x\\"y"]}}',
)  # fmt: skip
_TIMES = (
    b"1700000000.123456789",
    b"2024-02-29T23:59:59.9+05:30",
    b"-62135596800000",
    b"1e400",
    b"9" * 40,
    b"+1",
    b"1.",
)
_CUT = encode_cut(
    UpstreamBarrier(query="q", snapshot=3, channels={"t-0": Upstream(offset=5, idle=True, watermarks={0: 1_000})})
)
_TP, _GONE = TopicPartition("t", 0), TopicPartition("t", 1)
_AXES = {0: AxisState((1_000, 7), 1_000), 3: AxisState(PropagatedState(5, 6, 0, idle=True), None)}
_OFFSET = QueryOffset(
    batch=4, group="g", state_key="00", now_ms=1, settings="s", limits=CutLimits(most_records=5), topic_ids={"t": "x"},
    coalesced=CommonState(emitted={0: 90}, top={0: 135}, history={0: ((1_000, 95),)}),
    channels={_TP: Channel(next_offset=5, read=2, status=Status.IDLE, since_ms=9, counts=Counts(1, 2, 3), axes=_AXES)},
    retired={_GONE: RetiredChannel(missed_ms=3, next_offset=4, counts=Counts(), axes=_AXES)},
)  # fmt: skip


def records(data: bytes) -> None:
    """A record batch: the rows that a plain reader gives, or an error that says where."""
    assert fuzz.outcome(data) in {"refused", "read", "no rows"}
    signed = bytearray(data)
    if len(signed) > fuzz.HEADER:
        signed[8:12] = (len(signed) - 12).to_bytes(4, "big")
        assert fuzz.outcome(fuzz.signed(signed)) in {"refused", "read", "no rows"}


def json_values(data: bytes) -> None:
    """A JSON text: what is found lies in the text; in a sound one of plain values it is what Python finds."""
    texts = pa.array([b"before", data, None, b"behind"], pa.binary())
    for path in _PATHS:
        held, start, end = find(texts, path)
        assert start[2] == -1
        for row, at in enumerate(start):
            if at >= 0:
                first, last = len(b"before") * (row > 0) + len(data) * (row > 1), len(b"before") * (row >= 0)
                assert first <= at <= end[row] <= last + len(data) * (row > 0) + len(b"behind") * (row > 2)
        if start[1] >= 0:
            assert bytes(held[start[1] : end[1]]) in data
    with suppress(ValueError, RecursionError):
        whole = json.loads(data)
        if isinstance(whole, dict) and type(whole.get("t")) is int and data.count(b'"t"') == 1:
            held, start, end = find(texts, _PATHS[0])
            assert start[1] >= 0
            assert int(bytes(held[start[1] : end[1]])) == whole["t"]


def times(data: bytes) -> None:
    """A time as a text: none, or one that an event can have."""
    text = np.frombuffer(b"x" + data + b"9", np.uint8)
    for unit in Unit:
        ms, valid = milliseconds(text, np.array([1, -1]), np.array([1 + len(data), 0]), unit)
        assert not valid[1]
        assert not valid[0] or MIN_EVENT_MS <= ms[0] <= MAX_EVENT_MS


def control_records(data: bytes) -> None:
    """A control record's value and version: a cut of whole numbers, or one clean sentence."""
    for version, value in ((VERSION, data), (data, _CUT), (None, data), (VERSION, None)):
        try:
            cut = decode_cut(version, value, "t-0@5")
        except FormatError as error:
            said = str(error)
            assert len(said) <= MOST_SAID
            assert said.isprintable()
            continue
        if cut is not None:
            assert isinstance(cut.query, str)
            assert isinstance(cut.snapshot, int)
            cut.promise()
    assert not is_genuine(data, _KEY, VERSION, "t", 0)


def committed_metadata(data: bytes) -> None:
    """A committed state: only what this query wrote for this place."""
    for text in (data.decode("latin-1"), data.decode("utf-8", "replace")):
        assert try_decode(text, _KEY, _PLACE) in [None, _STATE]
        try:
            assert decode_committed(text, _KEY, _PLACE) == _STATE
        except (FormatError, InputError) as error:
            assert len(str(error)) <= MOST_SAID  # noqa: PT017 (most of what is tried is refused)


def ledger_files(data: bytes) -> None:
    """A file of the ledger: an entry, or an error that names the file; with a fitting checksum, too."""
    for file in (data, _sealed(data)):
        with suppress(KeyedwmError):
            _read_ledger(file)


def _sealed(body: bytes) -> bytes:
    """A file of the ledger with a fitting checksum."""
    text = body.decode("utf-8", "replace")
    return json.dumps({"checksum": hashlib.sha256(text.encode()).hexdigest(), "body": text}).encode()


def _read_ledger(data: bytes) -> Entry | None:
    with tempfile.TemporaryDirectory() as name:
        (Directory(name) / "000000000007.decided.json").write_bytes(data)
        return Ledger(Directory(name)).newest()


def _ledger_body(entry: Entry) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        ledger = Ledger(Directory(name))
        with ledger.locked():
            ledger.decide(entry)
        (path,) = Directory(name).glob("*.decided.json")
        return json.loads(path.read_text())["body"].encode()


def offsets(data: bytes) -> None:
    """A line of the offset log: an offset that can be written again, or a refusal."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(found, dict):
        try:
            offset = QueryOffset.from_json(found)
        except FormatError as error:
            assert len(str(error)) <= MOST_SAID  # noqa: PT017 (most of what is tried is refused)
        else:
            offset.to_json()


def markers(data: bytes) -> None:
    """The marker of the last decided batch: a whole number, or none, or one of a later version."""
    cluster = SimpleNamespace(fetch_offsets=lambda _group, _places: {_TP: Committed(8, data.decode("latin-1"))})
    try:
        found = Marker(group="g").read(cluster, _TP.topic)  # type: ignore[arg-type]
    except FormatError as error:
        assert len(str(error)) <= MOST_SAID  # noqa: PT017 (the few that are refused)
        return
    assert found is None or type(found.batch) is int


_SOUND_METADATA = encode_committed(_STATE, _KEY, _PLACE)
_RECORD = Record(
    query="q", run="r", batch=7, attempt="a", snapshot=7, rows=3, ignored=0, coalesced={0: 5},
    channels={"t-0": ChannelRecord(snapshot=7, offset=4, idle=True, watermarks={0: 5})},
)  # fmt: skip
_ENTRY = Entry(batch=7, record=_RECORD, transactions=(Transaction("x", 1, 0),), control=(Transaction("y", 2, 0),))
TARGETS: dict[str, tuple[Target, tuple[bytes, ...]]] = {
    "records": (records, tuple(_BATCHES)),
    "json": (json_values, _JSON),
    "times": (times, _TIMES),
    "control records": (control_records, (_CUT, b'{"kind":"idle"}', b'{"kind":"barrier","snapshot":1e400}')),
    "committed metadata": (committed_metadata, (_SOUND_METADATA.encode(),)),
    "ledger": (ledger_files, (_ledger_body(_ENTRY), b"[]", b"{}", b'{"body":5,"checksum":6}')),
    "offsets": (offsets, (json.dumps(_OFFSET.to_json()).encode(),)),
    "markers": (markers, (b'{"version":1,"batch":7}',)),
}  # fmt: skip
_VALUES = st.sampled_from([
    b"null", b"-1", b"1e400", b"NaN", b"true", b"[]", b"{}", b'""', b"9" * 30, b"[" * 3_000, b"\x00", b"\xff",
    b"\x1b[2J", b'"\\ud800"', b"1.5", b"\xff\xff\xff\x7f", b"\x80" * 10,
])  # fmt: skip


@st.composite
def changed(draw: st.DrawFn, samples: tuple[bytes, ...]) -> bytes:
    """A sample with some bytes set, cut, doubled, or replaced by values that break readers."""
    data = bytearray(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        length = draw(st.integers(0, 12))
        kind = draw(st.integers(0, 4))
        if kind == 0:
            data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        elif kind == 1:
            del data[at : at + length]
        elif kind == 2:
            data[at:at] = data[at : at + length]
        elif kind == 3:
            data[at : at + length] = draw(_VALUES)
        else:
            data[at:at] = draw(st.binary(max_size=12))
    return bytes(data)


def check(name: str, examples: int, seed: int | None = None) -> int:
    """Try so many made-up inputs on a target; returns how many were tried."""
    target, samples = TARGETS[name]
    tried = 0

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(changed(samples) | st.binary(max_size=200))
    def run(data: bytes) -> None:
        nonlocal tried
        tried += 1
        target(data)

    if seed is not None:
        from hypothesis import seed as seeded

        run = seeded(seed)(run)
    run()
    return tried


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600)
    options.add_argument("--seed", type=int, default=random.randrange(2**31))
    given_options = options.parse_args()
    deadline_s = time.monotonic() + given_options.seconds
    tried = dict.fromkeys(TARGETS, 0)
    seed = given_options.seed
    while time.monotonic() < deadline_s:
        for name in TARGETS:
            tried[name] += check(name, 500, seed)
        seed += 1
    print(f"seeds {given_options.seed} to {seed - 1}, no finding; tried: {tried}")


if __name__ == "__main__":
    main()
