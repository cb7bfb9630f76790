"""Every recorded sequence of the peers, as `python -m conformance.replay` plays it; test_oracle_vectors.py has more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from conformance.families import table
from conformance.reading import replay_all
from conformance.replay import main
from conformance.verdict import Outcome
from keyedwm.core.errors import InputError
from tests.core.played import VECTORS, Played, outcomes_of_the_oracle

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"
PLAYED = Played(is_oracle=False)


# What a rule of the design decides otherwise, and the step at which that shows first.
DECIDED = {
    "keyed-111": 3,  # rule 4: one idle marker per idle spell
    "keyed-201": 4,  # rule 3: a watermark wakes its channel for every key
    "keyed-202": 2,  # rule 4
    "keyed-204": 2,  # rule 3
    "sess-106": 2,  # rule 11: touching sessions merge and close above their end, or neither
    "slide-113": 5,  # rule 11: a key whose total is 0 is still in the window
    "session-lateness-inside": 3,  # rule 11: a late pane comes at once
    "beam-pane-early-ontime-late-final": 17,  # no pane is the last one while rows are allowed late
    "beam-closing-fire-always": 3,  # no pane when the allowed lateness is over
    "beam-hold-ignores-late-elements": 2,  # a result's event time is its window's end
    "beam-output-time-earliest": 1,
    "stream-hopping-10-3-sum": 15,  # windows before time 0
    "stream-hopping-10-5-out-of-order": 6,
    "stream-two-windows-share-slices": 5,
    "samza-any-trigger": 4,  # an early trigger repeats
    "samza-once-trigger": 3,
    "samza-tumbling-keyed-discarding": 10,  # the pane on time always comes
    "seed-aggregate-time-max": 1,  # a window is full with a message, not with the tick of a clock
    "seed-message-key-matrix": 3,  # one layout
    "seed-backpressure": 4,  # nobody pushes input
    "samza-join-latest": 20,  # a join meets every row within its time
    "nexmark-golden-q9": None,  # no counterpart
    "join-110": None,  # full joins are supported
    "join-106": 3,  # rule 13: what was emitted is part of the state
    "hist-001": 6,  # rules 6 and 7: exact, not a slot early
    "hist-006": 2,
    "flink-align-min-plus-drift": None,  # no counterpart: rate limits bound a batch
    "flink-align-sampler-depth2": None,
    "flink-align-two-sources-one-group": None,
    "flink-split-pause-strictly-above": None,
    "flink-split-pause-subtask-waits": None,
    "flink-barrier-aligned-end-of-input-aborts": 1,  # rule 12: a finished channel is not waited for
    "flink-idle-timer-arming": 6,  # rule 10: idle is exact
    "flink-idle-timer-never-any-event": 2,
    "flink-idle-timer-paused-clock": 5,
    "flink-idle-timer-probe-longer-than-timeout": 1,
    "flink-mux-never-had-splits": 0,  # rule 5: without channels all is idle
    "flink-mux-remove-lowest": 4,  # rule 5: a removal counts at once
    "flink-valve-finished-input-max-hazard": 4,  # rule 2: the end of a channel is no watermark
    "flink-valve-idle-input-watermark-dropped": 6,  # rule 3: any watermark wakes
    "flink-valve-laggard-excluded-until-caught-up": 5,  # rule 2: a woken laggard holds the output
    "flink-valve-sole-aligned-reactivation-emits": 7,  # rule 2
    "flink-valve-ties": 9,  # rule 2
    "flink-valve-watermark-does-not-reactivate": 4,  # rule 3
}


@PLAYED.every_file
def test_the_core_keeps_the_vector_or_a_rule_decides_otherwise(name: str) -> None:
    assert PLAYED.of(name)
    assert PLAYED.failures(name) == []


@pytest.mark.starts  # no process, but every vector is played
def test_the_jet_and_flink_vectors_decided_otherwise_are_these_and_differ_exactly_there() -> None:
    differing_steps = {
        replayed.case: replayed.verdict.step
        for replayed in PLAYED.all()
        if replayed.verdict.outcome is Outcome.OTHERWISE
    }

    assert differing_steps == DECIDED


@pytest.mark.starts  # no process, but every vector is played
def test_the_table_of_the_page_counts_these_vectors() -> None:
    expected_table = table(
        [*((replayed.path, replayed.verdict.outcome) for replayed in PLAYED.all()), *outcomes_of_the_oracle()]
    )
    assert expected_table in PAGE.read_text(), f"docs/reference/conformance.md must hold this table:\n{expected_table}"


@pytest.mark.starts  # no process, but every vector is played
def test_every_decision_names_its_reason() -> None:
    assert all(replayed.verdict.reason for replayed in PLAYED.all() if replayed.verdict.outcome is Outcome.OTHERWISE)


def test_the_command_ends_with_the_counts_and_tells_by_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(VECTORS / "jet" / "keyed_coalescer.json", tmp_path)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == ["15 match, 4 decided otherwise, 0 fail"]


def test_a_failure_has_a_line_with_file_case_step_expected_and_got(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (VECTORS / "flink" / "flink-valve-min-over-four.json").read_text()
    path = tmp_path / "wrong.json"
    vector = json.loads(text)
    step = next(index for index, step in enumerate(vector["steps"]) if step["expect"])
    vector["steps"][step]["expect"] = [{"wm": 123456}]
    path.write_text(json.dumps(vector))
    assert main([str(path)]) == 1
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith(f'FAIL {path} flink-valve-min-over-four step {step}: expected [["wm", 123456]], got [["wm"')
    assert last == "0 match, 0 decided otherwise, 1 fail"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '{"what": 1}', "the format is not known"),
        ("b.json", "{", "not readable as JSON"),
        ("c.jsonl", '{"oracle": "new", "config": {}, "ops": [], "out": []}', "oracle 'new' is not known"),
        ("d.json", '{"component": "new", "vectors": [{"id": "x"}]}', "component 'new' is not known"),
        ("e.json", '{"schema": "wm-vectors/1", "model": "new", "steps": []}', "model 'new' is not known"),
        ("f.json", '{"schema": "keyedwm.windows.vector/1", "family": "new"}', "window family 'new' is not known"),
        ("g.jsonl", '{"oracle": "jet-frames", "config": {}, "ops": [["at", 1]], "out": [[]]}', "cannot be replayed"),
        ("h.json.gz", "no gzip", "not readable as JSON"),
    ],
)
def test_what_nobody_has_seen_is_a_failure_line_and_the_next_file_is_tried(
    name: str, content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(content)
    shutil.copy(VECTORS / "flink" / "flink-mux-single.json", tmp_path / "z.json")
    assert main([str(tmp_path)]) == 1
    line, last = capsys.readouterr().out.splitlines()
    assert message in line
    assert last == "1 match, 0 decided otherwise, 1 fail"


def test_a_path_without_vectors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no vectors"):
        list(replay_all([tmp_path]))
    with pytest.raises(InputError, match="neither a file nor a folder"):
        list(replay_all([tmp_path / "none"]))
