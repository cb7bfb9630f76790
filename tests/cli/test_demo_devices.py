"""The made-up devices of the demo: who is late, by how much, and what of it a step holds."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from rich.console import Console

from examples.demo import devices, show_devices
from examples.demo.show_devices import KEY, PARTITION, SPARK
from keyedwm.core.errors import OptionError


def test_one_device_in_twenty_is_late_by_up_to_a_day_and_the_others_by_minutes():
    events, late = devices.made_up(400)
    assert (len(events), len(late)) == (400 * devices.HOURS, 20)
    behind_ms = events.reach_ms - events.event_ms
    is_late = np.array([devices.name(device) in late for device in events.devices.tolist()])
    assert behind_ms[~is_late].max() < 5 * 60_000
    assert 12 * devices.HOUR_MS < behind_ms[is_late].max() < 24 * devices.HOUR_MS
    assert (np.diff(events.reach_ms) >= 0).all()


def test_steps_hold_every_event_once_and_none_before_it_reached_kafka():
    events, _ = devices.made_up(40)
    steps = devices.steps(events, 5)
    assert sum(len(some) for _, some in steps) == len(events)
    assert all((some.reach_ms < end_ms).all() for end_ms, some in steps)
    assert sum(table.num_rows for _, some in steps for table in some.as_kafka().values()) == len(events)


@pytest.mark.parametrize(("share", "code"), [(1.0, 0), (0.5, 1)])
def test_a_lost_event_of_a_device_with_a_watermark_of_its_own_ends_with_1(monkeypatch, tmp_path, share, code):
    def run(_plan, results, _console: Console) -> None:
        events, late = devices.made_up(40)
        events_by_device = Counter(map(devices.name, events.devices.tolist()))
        for way, one in results.items():
            rows = {name: n for name, n in events_by_device.items() if way == KEY or name not in late}
            one.rows.update({name: round(n * (share if way == KEY else 1)) for name, n in rows.items()})
            one.delays.update({7: 3, 90: 1})

    monkeypatch.setattr(show_devices, "_run", run)
    assert show_devices.show_devices(devices=40, step_count=3, out=tmp_path) == code
    figures = json.loads((tmp_path / "demo-devices.json").read_text())
    assert list(figures) == [SPARK, PARTITION, KEY]
    assert figures[SPARK] == {
        "lost": 2 * devices.HOURS, "lost_of_late_devices": 2 * devices.HOURS, "delay_minutes": 7
    }  # fmt: skip


def test_no_device_is_one_sentence(tmp_path):
    with pytest.raises(OptionError, match="--devices 0 --steps 3: 1 device and 2 steps are expected at least"):
        show_devices.show_devices(devices=0, step_count=3, out=tmp_path)
