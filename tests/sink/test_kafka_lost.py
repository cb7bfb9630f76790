"""A checkpoint of a query to Kafka that was lost, or is an older copy: who follows the sentence has each row once."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import FencedError, InputError
from keyedwm.core.rows import ControlKind
from pyspark_wm_sink.kafka.other_queries import check_topic_reads_nothing_again
from tests.sink.input_log import offered_offsets, plan
from tests.sink.kafka_sink import Died, Sink


@dataclass
class Reader:
    """A query over partition 0 of a topic `in`, whose record at offset N is the text N; a copy is of its checkpoint."""

    sink: Sink
    at: int = 0
    batch: int = 0
    is_stateful: bool = False
    partitions: tuple[str, ...] = field(default=("in-0",))

    def run(self, end: int) -> None:
        texts = [str(offset) for offset in range(self.at, end)]
        known = plan(dict.fromkeys(self.partitions, (self.at, end)), is_stateful=self.is_stateful)
        self.sink.publish(self.batch, self.sink.written(self.batch, *texts), plan=known)
        self.at, self.batch = end, self.batch + 1

    def copied(self, ledger: Path) -> Reader:
        shutil.copytree(self.sink.ledger, ledger)
        return replace(self, sink=replace(self.sink, ledger=ledger))

    def restarted(self) -> Reader:
        self.sink.restart()
        return self

    def anew(self, at: int = 0, **changes) -> Reader:
        """A query with a new checkpoint, and its ledger in there."""
        name = uuid.uuid4().hex
        ledger = self.sink.ledger.with_name(name)
        return Reader(replace(self.sink, query=f"q-{name}", ledger=ledger, run=f"run-{name}", **changes), at=at)


@pytest.fixture
def reader(sink) -> Reader:
    return Reader(sink)


@pytest.fixture
def follows(reader, committed):
    """Start a query with a new checkpoint, and a new ledger, where the sentence says: each record comes once."""

    def follow(error: Exception, end: int) -> None:
        begin = offered_offsets(error)
        assert begin.keys() == {"in-0"}
        assert reader.sink.open() == 0
        reader.anew(begin["in-0"]).run(end)
        assert sorted(committed(reader.sink.topic), key=int) == [str(offset) for offset in range(end)]

    return follow


def test_a_lost_checkpoint_is_refused_with_the_offsets_to_begin_at(reader, follows, committed):
    reader.run(3)
    reader.run(5)
    new_reader = reader.anew()
    with pytest.raises(InputError, match=r"holds what query q-.* wrote of in-0 up to offset 5, .* was the checkpoint "
                       r"lost\? .* set sharedTopic=true") as error:  # fmt: skip
        new_reader.run(6)
    assert new_reader.sink.open() == 0
    assert committed(reader.sink.topic) == ["0", "1", "2", "3", "4"]
    follows(error.value, 6)
    with pytest.raises(InputError, match="wrote of in-0 up to offset 6"):  # by the one that followed
        reader.anew().run(7)
    reader.anew(is_shared=True).run(1)
    assert committed(reader.sink.topic).count("0") == 2


def test_a_query_to_another_topic_or_of_another_one_is_written(reader, topic_of, committed):
    reader.run(3)
    reader.anew(topic=topic_of(1)).run(3)
    replace(reader.anew(), partitions=("other-0",)).run(1)
    assert sorted(committed(reader.sink.topic)) == ["0", "0", "1", "2"]


def operator(name: str) -> ControlRow:
    return ControlRow(kind=ControlKind.BARRIER, channel=f"{name}#0", snapshot=0, channels=1)


def test_results_of_an_operator_are_written_again_by_one_of_its_name_alone(reader, committed):
    def run(of: Reader, name: str, begin: int, end: int) -> None:
        results = of.sink.written(0, *(str(at) for at in range(begin, end)), control=(operator(name),))
        of.sink.publish(0, results, plan=plan({"in-0": (begin, end)}, is_stateful=True))

    run(reader, "sum", 0, 3)
    with pytest.raises(InputError, match=r"wrote of in-0 up to offset 3, .* its checkpoint again, or write to another"):
        run(reader.anew(), "sum", 0, 4)
    run(reader.anew(), "sum", 3, 4)  # from a savepoint
    run(reader.anew(), "count", 0, 1)
    assert sorted(committed(reader.sink.topic)) == ["0", "0", "1", "2", "3"]


def test_an_older_copy_of_the_checkpoint_is_refused_with_the_offsets_to_begin_at(reader, follows, tmp_path):
    reader.run(3)
    older = reader.copied(tmp_path / "older")
    reader.run(5)
    with pytest.raises(InputError, match=r"ends at batch 0, but query .* has decided batch 1: .* an older copy of the "
                       r"checkpoint, .*; restore the newest copy, or start with a new checkpoint that begins behind the"
                       r" published batch 1: startingOffsets=.*, with another ledger, or, if") as error:  # fmt: skip
        older.restarted().run(7)
    follows(error.value, 7)


def test_a_batch_that_another_copy_has_decided_is_refused_with_the_offsets_to_begin_at(reader, follows, tmp_path):
    reader.run(3)
    copy = reader.copied(tmp_path / "copy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyspark_wm_sink.kafka.marker.Marker.write", _dies)
        with pytest.raises(Died):
            copy.run(4)
    reader.restarted().run(5)
    with pytest.raises(InputError, match=r"has decided that batch with other transactions, .*; continue with the copy, "
                       r"or start with a new checkpoint that begins behind the published") as error:  # fmt: skip
        copy.sink.publish(2, copy.restarted().sink.written(2, "x"))
    follows(error.value, 7)


def _dies(*_args, **_kwargs):
    raise Died


def test_entries_that_were_deleted_are_no_loss_of_what_was_published(reader, follows):
    reader.run(3)
    for entry in reader.sink.ledger.glob("0*.json"):
        entry.unlink()
    again = replace(reader, at=0, batch=0).restarted()
    with pytest.raises(InputError, match=r"has no entries any more, .* or start with a new checkpoint") as error:
        again.run(3)
    follows(error.value, 4)


def test_a_ledger_of_a_lost_query_says_where_to_begin(reader, follows):
    reader.run(3)
    new = replace(reader.anew().sink, ledger=reader.sink.ledger)
    with pytest.raises(InputError, match=r"belongs to query q-.*: if the checkpoint of that query was lost, .* with "
                       r"another ledger; if they are two queries, give each a ledger of its") as error:  # fmt: skip
        Reader(new).run(3)
    follows(error.value, 4)


def test_an_older_copy_with_the_newest_ledger_is_refused_with_the_offsets_to_begin_at(reader, follows):
    reader.run(3)
    older = replace(reader)
    reader.run(5)
    with pytest.raises(FencedError, match=r"with in-0 read up to offset 5, now it comes with offset 6: an older "
                       r"copy of the checkpoint was restored") as error:  # fmt: skip
        older.restarted().run(6)
    follows(error.value, 7)


def test_no_new_checkpoint_for_this_topic_is_offered_to_a_query_with_state(reader, tmp_path):
    reader.is_stateful = True
    reader.run(3)
    older = reader.copied(tmp_path / "older")
    reader.run(5)
    with pytest.raises(InputError, match="start with a new checkpoint and another topic, and read the input") as error:
        older.restarted().run(7)
    with pytest.raises(InputError, match="its checkpoint again, or write to another topic") as second_error:
        reader.anew().run(7)
    assert not offered_offsets(error.value)
    assert not offered_offsets(second_error.value)


def test_of_two_runs_on_copies_one_goes_on(reader, committed, tmp_path):
    reader.run(3)
    copy = reader.copied(tmp_path / "copy").restarted()
    copy.run(5)
    with pytest.raises(FencedError, match=r"continue with one of them, and delete the checkpoint and ledger of the"):
        reader.run(6)
    shutil.rmtree(reader.sink.ledger)
    copy.run(7)
    assert committed(reader.sink.topic) == [str(offset) for offset in range(7)]


def test_brokers_that_do_not_list_groups_are_warned_of(reader, monkeypatch, caplog):
    from keyedwm.kafka.client.errors import AccessError

    def denied(*_args):
        raise AccessError("not allowed to list the consumer groups")

    monkeypatch.setattr("pyspark_wm_sink.kafka.other_queries.groups_ending_with", denied)
    check_topic_reads_nothing_again(reader.sink.cluster, None, None, ())
    assert "whether another query has written the same rows cannot be known: not allowed" in caplog.text
