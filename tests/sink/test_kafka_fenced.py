"""Who may publish: of two drivers, or of a query and its copy, one stops; a lost, old or foreign ledger is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import FencedError, InputError
from keyedwm.core.rows import ControlKind
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.requests.cluster import close_shared
from pyspark_wm_sink.options.sink_options import SnapshotMode
from tests.sink.kafka_sink import Died
from tests.support.protocol_proxy import Instead, protocol_proxy


def dies(*_args, **_kwargs):
    raise Died


def test_a_run_that_was_replaced_is_fenced(sink, committed):
    sink.write_and_publish(0, "a")
    zombie = replace(sink)
    sink.restart()
    sink.write_and_publish(1, "b")
    with pytest.raises(FencedError, match=rf"run {sink.run} of query {sink.query} has taken over the ledger"):
        zombie.write_and_publish(1, "z")
    assert sink.open() == 0
    assert committed(sink.topic) == ["a", "b"]


def test_a_copy_of_the_checkpoint_fences_the_query_it_was_copied_from(sink, committed, tmp_path):
    sink.write_and_publish(0, "a")
    copy = replace(sink, ledger=tmp_path / "copy", run="run-copy")
    shutil.copytree(sink.ledger, copy.ledger)
    copy.write_and_publish(1, "b")
    with pytest.raises(FencedError, match="two queries run from copies of one checkpoint"):
        sink.write_and_publish(1, "b")
    assert committed(sink.topic) == ["a", "b"]


def test_a_ledger_that_lacks_batches_is_refused_and_goes_on_without_its_entries(sink, committed):
    def publish_batch(batch: int) -> None:
        barrier = ControlRow(kind=ControlKind.BARRIER, offset=batch, channel="t-0", snapshot=batch, channels=1)
        sink.publish(batch, sink.written(batch, f"{batch}", control=(barrier,)))

    sink.mode = SnapshotMode.BARRIER
    publish_batch(0)
    sink.guarantee, ledger, sink.ledger = Guarantee.AT_LEAST_ONCE, sink.ledger, None
    publish_batch(1)
    sink.guarantee, sink.ledger = Guarantee.EXACTLY_ONCE, ledger
    with pytest.raises(InputError, match=r"it must be 1: .* were written at-least-once \(see the runbook"):
        publish_batch(2)
    for entry in ledger.glob("*.published.json"):
        entry.unlink()
    publish_batch(2)
    assert committed(sink.topic) == ["0", "1", "2"]


def test_a_published_batch_that_comes_with_other_offsets_is_refused(sink, committed):
    def barrier(offset):
        return ControlRow(kind=ControlKind.BARRIER, channel="t-0", snapshot=0, channels=1, offset=offset)

    sink.mode = SnapshotMode.BARRIER
    sink.publish(0, sink.written(0, "a", control=(barrier(1),)))
    sink.restart()
    with pytest.raises(FencedError, match=r"is in the ledger .* with snapshot 0 at next offset 1 for channel t-0"):
        sink.publish(0, sink.written(0, "x", control=(barrier(2),)))
    assert sink.open() == 0
    assert committed(sink.topic) == ["a"]


def test_a_published_batch_that_comes_with_other_rows_is_refused_without_any_barrier(sink, committed):
    sink.write_and_publish(0, "a")
    sink.restart()
    with pytest.raises(FencedError, match="with 1 rows, now it comes with 2: an older copy of the checkpoint was"):
        sink.write_and_publish(0, "a", "b")
    assert sink.open() == 0
    assert committed(sink.topic) == ["a"]


def test_a_ledger_belongs_to_one_query(sink):
    sink.write_and_publish(0, "a")
    with pytest.raises(InputError, match=f"belongs to query {sink.query}, this is query other"):
        replace(sink, query="other").write_and_publish(0, "b")


def test_a_lost_ledger_is_refused_and_nothing_is_doubled(sink, committed):
    sink.write_and_publish(0, "a")
    sink.write_and_publish(1, "b")
    shutil.rmtree(sink.ledger)
    sink.restart()
    with pytest.raises(InputError) as error:
        sink.write_and_publish(1, "b")
    assert f"the ledger {sink.ledger} is empty, but query {sink.query} has decided batch 1" in error.value.message
    assert f"delete the consumer group {sink.query}-ledger" in error.value.message
    assert sink.open() == 0
    assert committed(sink.topic) == ["a", "b"]


def test_an_older_copy_of_the_ledger_is_refused_after_the_original_has_ended(sink, committed, tmp_path):
    sink.write_and_publish(0, "a")
    copy = replace(sink, ledger=tmp_path / "copy")
    shutil.copytree(sink.ledger, copy.ledger)
    sink.write_and_publish(1, "b")
    copy.restart()
    with pytest.raises(InputError, match=r"ends at batch 0, but query .* has decided batch 1: the ledger was lost or"):
        copy.write_and_publish(1, "b")
    assert committed(sink.topic) == ["a", "b"]
    sink.restart()
    sink.write_and_publish(2, "c")
    assert committed(sink.topic) == ["a", "b", "c"]


def test_an_older_copy_of_the_ledger_from_before_the_first_decision_is_refused(sink, committed, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("pyspark_wm_sink.kafka.ledger.Ledger.decide", dies)
        with pytest.raises(Died):
            sink.write_and_publish(0, "a")
    copy = replace(sink, ledger=tmp_path / "copy")
    shutil.copytree(sink.ledger, copy.ledger)
    sink.restart()
    sink.write_and_publish(0, "a")
    copy.restart()
    with pytest.raises(InputError, match=r"is empty, but query .* has decided batch 0: the ledger was lost or"):
        copy.write_and_publish(0, "a")
    assert committed(sink.topic) == ["a"]


def test_a_ledger_whose_entries_were_deleted_by_hand_goes_on(sink, committed):
    sink.write_and_publish(0, "a")
    for entry in sink.ledger.glob("0*.json"):
        entry.unlink()
    sink.restart()
    sink.write_and_publish(1, "b")
    assert committed(sink.topic) == ["a", "b"]


def test_entries_deleted_by_hand_do_not_let_the_batch_that_they_told_of_be_written_twice(sink, committed):
    sink.write_and_publish(0, "a")
    sink.write_and_publish(1, "b")
    for entry in sink.ledger.glob("0*.json"):
        entry.unlink()
    sink.restart()  # a driver that died before Spark had noted the batch
    with pytest.raises(InputError, match=r"has no entries any more, and batch 1, .* has decided .* is replayed"):
        sink.write_and_publish(1, "b")
    assert sink.open() == 0
    assert committed(sink.topic) == ["a", "b"]
    sink.write_and_publish(2, "c")
    assert committed(sink.topic) == ["a", "b", "c"]


def test_a_decision_that_a_dead_driver_did_not_mark_is_marked_by_the_next(sink, committed, tmp_path, monkeypatch):
    from pyspark_wm_sink.kafka.ledger import Ledger
    from pyspark_wm_sink.kafka.publish import recover

    sink.write_and_publish(0, "a")
    copy = replace(sink, ledger=tmp_path / "copy")
    shutil.copytree(sink.ledger, copy.ledger)
    with monkeypatch.context() as patch:
        patch.setattr("pyspark_wm_sink.kafka.marker.Marker.write", dies)
        with pytest.raises(Died):
            sink.write_and_publish(1, "b")
    recover(sink.cluster, Ledger(sink.ledger), owner="next")
    copy.restart()
    with pytest.raises(InputError, match=r"ends at batch 0, but query .* has decided batch 1: the ledger was lost or"):
        copy.write_and_publish(1, "b")
    assert committed(sink.topic) == ["a", "b"]


def test_a_ledger_that_lacks_a_batch_is_refused_without_any_barrier(sink, committed):
    sink.write_and_publish(0, "a")
    with pytest.raises(InputError, match=r"the newest batch in the ledger .* is 0, and now comes batch 2"):
        sink.write_and_publish(2, "c")
    assert committed(sink.topic) == ["a"]


def claimed(sink, owner, **changes):
    """The sink as a driver has it when a batch begins, which is when Spark starts a writer."""
    from pyspark_wm_sink.kafka.ledger import Ledger
    from pyspark_wm_sink.kafka.publish import recover

    return replace(sink, claim=recover(sink.cluster, Ledger(sink.ledger), owner=owner), **changes)


def test_a_driver_that_was_replaced_before_it_committed_cannot_fence_the_one_that_replaced_it(sink, committed):
    zombie = claimed(sink, "driver-0", run="run-zombie")
    live = claimed(sink, "driver-1", run="run-live")
    live.write_and_publish(0, "a")
    with pytest.raises(FencedError, match=r"a later start of query .* has taken over the ledger"):
        zombie.write_and_publish(0, "z")
    live.write_and_publish(1, "b")
    assert committed(sink.topic) == ["a", "b"]


def test_the_next_batch_of_a_replaced_driver_is_refused_also_before_the_later_one_has_committed(sink, committed):
    claimed(sink, "driver-0", run="run-0").write_and_publish(0, "a")
    claimed(sink, "driver-1", run="run-1")
    with pytest.raises(FencedError, match=r"a later start of query .* has taken over the ledger"):
        claimed(sink, "driver-0", run="run-0").write_and_publish(1, "z")
    claimed(sink, "driver-1", run="run-1").write_and_publish(1, "b")
    assert committed(sink.topic) == ["a", "b"]


def test_a_query_that_is_started_again_in_a_replaced_driver_takes_the_ledger_back(sink, committed):
    claimed(sink, "driver-0", run="run-0").write_and_publish(0, "a")
    claimed(sink, "driver-1", run="run-1").write_and_publish(1, "b")
    claimed(sink, "driver-0", run="run-2").write_and_publish(2, "c")
    with pytest.raises(FencedError, match=r"a later start of query .* has taken over the ledger"):
        claimed(sink, "driver-1", run="run-1").write_and_publish(3, "z")
    claimed(sink, "driver-0", run="run-2").write_and_publish(3, "d")
    assert committed(sink.topic) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("before", ["AddOffsetsToTxn", "DescribeTransactions"])
def test_a_run_that_its_own_late_request_has_fenced_names_that_and_goes_on_after_a_restart(sink, committed, before):
    """The request to take the fence over is not answered, so it is repeated; the broker carries it out later on.

    That is before the fence writes its marker, or before the next batch looks who has it.
    """
    late = []

    def begin(exchange):
        if not exchange.request.transactional_id.endswith("-fence") or late:
            return exchange.answer
        late.append(exchange.frame)
        return Instead.CLOSE

    def overtake(exchange):
        of_fence = before == "AddOffsetsToTxn" or exchange.request.transactional_ids[0].endswith("-fence")
        if of_fence and len(late) == 1:
            late.append(exchange.forward(late[0]))
        return exchange.answer

    def publish_two():
        for batch in range(2):
            sink.write_and_publish(batch, f"{batch}")

    with protocol_proxy(sink.bootstrap, InitProducerId=begin, **{before: overtake}) as proxy:
        sink.bootstrap = proxy.bootstrap
        with pytest.raises(FencedError, match=r"if there is no other run, a request of this one reached .* late"):
            publish_two()
        sink.restart()
        publish_two()
        close_shared()  # or it would try to reach the closed proxy
    assert committed(sink.topic) == ["0", "1"]
