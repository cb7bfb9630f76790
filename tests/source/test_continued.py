"""Where a source goes on from a savepoint, and what it refuses; the move itself is in tests/spark/test_savepoint.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from keyedwm.core.axis import Counts
from keyedwm.core.coalescer import CommonState
from keyedwm.core.errors import FormatError, OptionError
from keyedwm.core.text import words_of
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.savepoint_files import SAVEPOINT_MANIFEST, STATE, Files, Savepoint, read_savepoint, write_savepoint
from keyedwm.spark.api.savepoint import _check_free
from pyspark_wm_source.driver.resolve_offsets import continued
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.options.start_offsets import Topics
from pyspark_wm_source.values.offsets import Channel, QueryOffset

SERVERS = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "a"}


def offset(*topics: str) -> QueryOffset:
    channel = Channel(next_offset=7, read=2, status=Status.ACTIVE, since_ms=5, counts=Counts(0, 0, 0), axes={})
    return QueryOffset(
        batch=3, group="old", state_key="00" * 32, now_ms=9, coalesced=CommonState(),
        channels={TopicPartition(topic, 0): channel for topic in topics},
    )  # fmt: skip


@pytest.fixture
def place(tmp_path):
    def make(*sources: QueryOffset) -> str:
        files = Files(str(tmp_path / "target"))
        source_texts = [one.to_json() for one in sources]
        write_savepoint(
            files, Savepoint(place=files.place, checkpoint="c", batch=3, sources=source_texts, operators={})
        )
        return files.place

    return make


def test_a_source_finds_the_one_that_read_its_topics(place):
    target = place(offset("a"), offset("b", "c"))
    assert continued(target, Topics(names=("b", "c", "d"))) == offset("b", "c")
    assert continued(f"file:{target}", Topics(pattern="[ax]")) == offset("a")


@pytest.mark.parametrize(
    ("topics", "sentence"),
    [
        (
            Topics(names=("b",)),
            "no source of the savepoint .* read the topics that subscribe selects here; .* read: a; b, c",
        ),
        (Topics(names=("a", "b", "c")), "2 sources of the savepoint"),
    ],
)
def test_a_source_that_is_not_there_is_one_sentence(place, topics, sentence):
    with pytest.raises(OptionError, match=sentence):
        continued(place(offset("a"), offset("b", "c")), topics)


def test_two_sources_of_the_same_topic_are_rejected_with_the_reason(place):
    reason = "2 sources of the savepoint .* read: a; a; a savepoint cannot continue two sources of the same topics"
    with pytest.raises(OptionError, match=reason):
        continued(place(offset("a"), offset("a")), Topics(names=("a",)))
    with pytest.raises(OptionError, match="read: a; b") as error:
        continued(place(offset("a"), offset("b")), Topics(names=("a", "b")))
    assert "the same topics" not in str(error.value)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda text: text[:-9], "is damaged"),
        (lambda text: json.dumps(json.loads(text) | {"version": 2}), "has version 2, this keyedwm reads version 1"),
        (lambda _: "[]", "is damaged"),
        (lambda _: "{}", "is damaged"),
    ],
)
def test_a_savepoint_that_cannot_be_read_is_one_sentence(place, tmp_path, spoil, sentence):
    target = place(offset("a"))
    manifest = tmp_path / "target" / SAVEPOINT_MANIFEST
    manifest.write_text(spoil(manifest.read_text()))
    with pytest.raises(FormatError, match=sentence):
        read_savepoint("option continueFrom", target)


def test_a_place_without_a_savepoint_is_one_sentence(tmp_path):
    with pytest.raises(OptionError, match=r"there is no savepoint at .*: make one with keyedwm savepoint CHECKPOINT"):
        continued(str(tmp_path), Topics(names=("a",)))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"startingOffsets": "earliest"}, "option startingOffsets has no effect with continueFrom"),
        ({"startingTimestamp": "5"}, "option startingTimestamp has no effect with continueFrom"),
        ({"continueFrom": " "}, "option continueFrom: ' ' is wrong"),
    ],
)
def test_options_that_contradict_it_are_refused(more, sentence):
    with pytest.raises(OptionError, match=sentence):
        SourceOptions.parse({**SERVERS, "continueFrom": "/x", **more})


def test_a_batch_read_takes_none():
    with pytest.raises(OptionError, match="option continueFrom is for streams"):
        SourceOptions.parse({**SERVERS, "continueFrom": "/x"}).for_batch()


def test_a_link_that_lies_in_the_place_of_a_savepoint_leads_nowhere(tmp_path):
    own_file, target = tmp_path / "mine", tmp_path / "target"
    own_file.write_text("precious")
    for name, link_name in ((f"_{SAVEPOINT_MANIFEST}", "_savepoint.json"), (STATE, "state")):
        target.mkdir()
        (target / name).symlink_to(own_file)
        with pytest.raises(OptionError, match=rf"target has a link \({link_name}\), which is not followed"):
            _check_free(Files(str(target)))
        (target / name).unlink()
        target.rmdir()
    Files(str(target)).write("first", "left behind")  # and one that is laid there after the look is replaced
    for name in (f"_{SAVEPOINT_MANIFEST}", SAVEPOINT_MANIFEST):
        (target / name).symlink_to(own_file)
    Files(str(target)).write(SAVEPOINT_MANIFEST, "{}")
    assert own_file.read_text() == "precious"
    assert (target / SAVEPOINT_MANIFEST).read_text() == "{}"
    assert not (target / SAVEPOINT_MANIFEST).is_symlink()


@pytest.mark.parametrize(("place", "inside"), [("/c", True), ("/c/x", True), ("file:///c/x", True), ("/cd", False)])
def test_a_savepoint_inside_a_checkpoint_is_seen(place, inside):
    assert Files(place).is_in(Files("/c")) is inside


def test_a_place_that_cannot_be_written_is_told_before_spark_is_asked(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("not a directory")
    for place in (str(file), f"{file}/target", f"file://{file}/a/b"):
        with pytest.raises(OptionError, match=f"cannot be written: {file} is not a directory in which this user may"):
            _check_free(Files(place))
    _check_free(Files(str(tmp_path / "new" / "target")))
    monkeypatch.setattr("os.access", lambda *_: False)  # as of a user who may not; tests may run as root
    with pytest.raises(OptionError, match=f"cannot be written: {tmp_path} is not"):
        _check_free(Files(str(tmp_path / "new" / "target")))


def test_what_a_file_system_says_on_pages_is_told_by_its_beginning():
    assert words_of(OSError("no\nlibrary")) == "no library"
    message = words_of(OSError("no library at " + "/usr/lib " * 500))
    assert message.startswith("no library at /usr/lib")
    assert len(message) < 500


def test_an_interrupted_savepoint_is_written_again(tmp_path):
    target = tmp_path / "target"
    (target / STATE).mkdir(parents=True)
    (target / f"_{SAVEPOINT_MANIFEST}").write_text("half of")
    _check_free(Files(str(target)))
    Files(str(target)).write(SAVEPOINT_MANIFEST, "{}")
    assert sorted(path.name for path in target.iterdir()) == [SAVEPOINT_MANIFEST, STATE]


def places_in(value: object, here: tuple = ()) -> Iterator[tuple]:
    yield here
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield from places_in(one, (*here, name))


def test_a_damaged_savepoint_is_one_short_sentence_wherever_the_damage_is(place):
    files = Files(place(offset("a"), offset("b")))
    sound = json.loads(files.read(SAVEPOINT_MANIFEST))
    note = {"inbox": {"of_source": {}}, "blobs": {}, "snapshot": 2}
    operator = {"name": "x", "axis": 0, "digest": "d", "description": None, "manifests": [note], "states": [{}]}
    sound["operators"] = {"x": operator}
    messages = []
    for path in places_in(sound):
        for wrong in (None, -1, "\x1b[2J" * 1_000, [], {}, [[]]):
            content = {"": json.loads(json.dumps(sound))}
            inner: Any = content
            for name in ("", *path)[:-1]:
                inner = inner[name]
            inner[("", *path)[-1]] = wrong
            files.write(SAVEPOINT_MANIFEST, json.dumps(content[""]))
            try:
                continued(files.place, Topics(names=("a",)))
            except (FormatError, OptionError) as error:
                messages.append(error.message)
    assert len(messages) > 100
    assert not [one for one in messages if not one.isprintable() or len(one) > 400 + len(files.place)]
