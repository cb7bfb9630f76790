"""Stacks: where they are taken, how they are shared out, and that the graph holds them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter

import numpy as np

from benchmarks.flame import by_part, draw, sampled

STACKS = {("run a.py", "read b.py", "decode c.py"): 3.0, ("run a.py", "read b.py"): 1.0, ("run a.py", "sort d.py"): 4.0}


def spinning() -> None:
    for _ in range(200):
        np.sort(np.arange(200_000)[::-1] % 7_919)


def test_stacks_begin_at_the_block_and_end_in_what_runs():
    stacks: Counter = Counter()
    with sampled(stacks):
        spinning()
    assert stacks
    assert {stack[0].split()[0] for stack in stacks} == {"test_stacks_begin_at_the_block_and_end_in_what_runs"}
    assert any(frame.startswith("spinning ") for stack in stacks for frame in stack)


def test_a_stack_goes_to_the_first_part_that_one_of_its_frames_names():
    parts = by_part(STACKS, {"decoding": ("decode ",), "reading": ("b.py",)}, "other")
    assert {part: sum(stacks.values()) for part, stacks in parts.items()} == {
        "decoding": 3.0,
        "reading": 1.0,
        "other": 4.0,
    }


def test_a_flame_graph_holds_each_frame_once_under_its_caller(tmp_path):
    draw(STACKS, "all <of> it", tmp_path / "all.svg")
    root = ET.parse(tmp_path / "all.svg").getroot()  # noqa: S314  our own file
    titles = [element.text for element in root.iter() if element.tag.endswith("title")]
    assert titles == ["run a.py: 100.0%", "read b.py: 50.0%", "decode c.py: 37.5%", "sort d.py: 50.0%"]


def test_an_empty_profile_is_an_empty_graph(tmp_path):
    draw({}, "nothing", tmp_path / "none.svg")
    assert "rect" not in (tmp_path / "none.svg").read_text()
