"""Nexmark's generator and answers, held against the golden vectors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.nexmark import GOLDEN, IN_VECTORS, QUERIES, golden_trouble
from benchmarks.nexmark_channels import LARGE
from benchmarks.nexmark_events import AUCTION, BID, KINDS, PERSON, Stream, auctions, kinds, persons, records
from benchmarks.nexmark_frames import Events, checksum

VECTORS = Path(__file__).parents[1] / "vectors" / "nexmark"
NAMES = {"email": "emailAddress"}


def expected(name: str) -> dict:
    return json.loads((VECTORS / f"nexmark-{name}.json").read_text())["expect"]


def objects(table: pa.Table) -> list[dict]:
    return [json.loads(value) for value in table["value"].to_pylist()]


def rows_of(table: pa.Table) -> list[tuple]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_the_first_events_are_those_of_beam():
    made = records(Stream(rate=10_000), 0, 6)
    wanted = expected("first-events")["events"]
    assert made["key"].to_pylist() == [event["type"].encode() for event in wanted]
    for found, event in zip(objects(made), wanted, strict=True):
        assert (len(found["extra"]), found["extra"][:12]) == (event["extra_len"], event["extra_head"])
        told = {NAMES.get(name, name): value for name, value in event.items() if not name.startswith(("extra", "type"))}
        assert {name: found[name] for name in told} == told


def test_kinds_and_ids_follow_the_number():
    numbers = np.arange(160)
    kind = kinds(numbers)
    made = {PERSON: persons, AUCTION: auctions}
    found = []
    for one, make in made.items():
        ids = make(Stream(), numbers[kind == one])["id"].to_pylist()
        found += [
            [number, KINDS[one].decode(), id_] for number, id_ in zip(np.flatnonzero(kind == one), ids, strict=True)
        ]
    assert sorted(found) == expected("ids-and-types")["events"]


@pytest.mark.parametrize("at", [0, 2, 3])
def test_the_event_time_follows_the_number(at):
    case = expected("timestamps")["cases"][at]
    stream = Stream(rate=case["rate_per_second"])
    assert stream.times(np.array(case["event"])).tolist() == case["ts"]


def test_an_event_is_the_same_wherever_the_stream_begins():
    whole = records(Stream(), 0, 500)
    assert records(Stream(), 237, 120).equals(whole.slice(237, 120))


def test_groups_mix_the_order_and_nothing_else():
    mixed, straight = records(Stream(group=100), 0, 1_000), records(Stream(), 0, 1_000)
    assert not mixed.equals(straight)
    assert sorted(rows_of(mixed)) == sorted(rows_of(straight))


def test_channels_are_beside_what_beam_draws():
    plain, named = (records(Stream(channels=channels), 0, 500) for channels in (False, True))
    both = list(zip(objects(plain), objects(named), strict=True))
    assert [without for without, _ in both] == [
        {name: value for name, value in one.items() if name not in ("channel", "url")} for _, one in both
    ]
    channels = [one["channel"] for _, one in both if "auction" in one]
    assert len(channels) == 460
    assert 200 < sum(channel in LARGE for channel in channels) < 260
    assert len(set(channels)) > 180


@pytest.mark.parametrize("name", [*IN_VECTORS, "q11"])
def test_the_answers_are_the_golden_ones(name):
    answer = QUERIES[name].answer(GOLDEN)
    assert tuple(answer.column_names) == QUERIES[name].columns
    assert golden_trouble(name, rows_of(answer)) is None
    assert golden_trouble(name, rows_of(answer)[1:]) is not None


def test_a_checksum_notices_a_changed_value():
    answer = QUERIES["q8"].answer(Events(Stream(), 20_000))
    changed = answer.set_column(1, "name", pc.replace_substring(answer["name"], "Peter", "Paul"))
    assert checksum(answer) != checksum(changed)


def test_sessions_of_bidders_are_those_of_bids_looked_at_one_by_one():
    events = Events(Stream(rate=10), 3_000)
    sessions: dict[int, list[list[int]]] = {}
    for bid in events.rows(BID).select(["bidder", "dateTime"]).to_pylist():
        of_bidder = sessions.setdefault(bid["bidder"], [])
        if of_bidder and bid["dateTime"] <= of_bidder[-1][2]:
            of_bidder[-1][0] += 1
            of_bidder[-1][2] = bid["dateTime"] + 10_000
        else:
            of_bidder.append([1, bid["dateTime"], bid["dateTime"] + 10_000])
    expected = sorted((bidder, *one) for bidder, made in sessions.items() for one in made)
    assert sorted(rows_of(QUERIES["q11"].answer(events))) == expected
    assert len(expected) > len(sessions) > 10
