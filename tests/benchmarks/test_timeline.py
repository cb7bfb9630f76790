"""The timeline of a batch: tasks, sections and CPU time between samples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.timeline import Batch, Span, picture, sections, slots_of, steps, tasks_of

TASKS = [
    Span("first stage", 10, 40), Span("first stage", 12, 30), Span("first stage", 30, 45), Span("second stage", 50, 90),
]  # fmt: skip
SAMPLES = [
    (0.0, {"Java, tasks": 0}),
    (10.0, {"Java, tasks": 5_000_000}),
    (20.0, {"Java, tasks": 9_000_000, "broker": 7}),
]
BATCH = Batch(Span("batch", 0, 100), [Span("addBatch", 0, 100)], TASKS, SAMPLES)


def test_tasks_that_overlap_have_lanes_of_their_own():
    assert slots_of(TASKS) == [[TASKS[0], TASKS[3]], [TASKS[1], TASKS[2]]]


def test_the_sections_of_a_batch_leave_no_gap():
    divided = sections(BATCH)
    assert [section.name for section in divided] == [
        "before the first stage", "first stage", "before the second stage", "second stage", "after the tasks",
    ]  # fmt: skip
    bounds = [at_ms for section in divided for at_ms in (section.start_ms, section.end_ms)]
    assert bounds == [0, 10, 10, 45, 45, 50, 50, 90, 90, 100]


def test_cpu_time_is_counted_between_two_samples_and_a_new_process_from_nothing():
    assert list(steps(BATCH)) == [
        (0.0, 10.0, {"Java, tasks": 5.0}), (10.0, 20.0, {"Java, tasks": 4.0, "broker": 7e-06}),
    ]  # fmt: skip


def test_a_task_is_named_by_the_place_of_its_stage_in_its_job(tmp_path: Path):
    def task(stage: int) -> dict:
        times = {"Launch Time": 1, "Finish Time": 2}
        return {"Event": "SparkListenerTaskEnd", "Stage ID": stage, "Task Info": times}

    events = [{"Event": "SparkListenerJobStart", "Stage IDs": [4, 5]}, task(4), task(5)]
    log = tmp_path / "log"
    log.write_text("\n".join(map(json.dumps, events)))
    assert [one.name for one in tasks_of(log)] == ["first stage", "second stage"]


def test_the_picture_shows_each_lane_that_used_a_hundredth_of_the_batch():
    svg = picture(BATCH, "a batch")
    assert "Java, tasks" in svg
    assert ">broker<" not in svg


@pytest.mark.skipif(sys.platform != "linux", reason="the clock of another process is Linux's")
def test_the_sampler_counts_the_cpu_time_of_a_process_below(tmp_path: Path):
    code = f"""
import os, subprocess, sys, time
from pathlib import Path

samples = Path({str(tmp_path / "s")!r})
work = subprocess.Popen([sys.executable, "-c", "while True: pass"])
sampler = subprocess.Popen([sys.executable, "-m", "benchmarks.cpu_samples", str(os.getpid()), str(samples)],
                           stdin=subprocess.PIPE)
while not samples.exists() or samples.stat().st_size < 16_384:
    time.sleep(0.05)
sampler.communicate()
work.kill()
work.wait()
print(work.pid)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    samples = [lanes for _, lanes in map(json.loads, (tmp_path / "s").read_text().splitlines())]
    lane = f"Python {done.stdout.strip()}"
    assert samples[-1][lane] > samples[len(samples) // 2][lane] > 0
