"""The options that make watermarks: each policy and throttle takes just what it needs."""

from __future__ import annotations

import json

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.core.places import EventTime, Place, Unit
from keyedwm.core.policy import (
    FixedLag,
    LagAndDelay,
    LagAndLull,
    NoWatermarks,
    RealTimeLag,
    TimestampAndWallClockLag,
)
from keyedwm.core.throttle import NoThrottle, ThrottleByBatch, ThrottleByFrame, ThrottleByStep
from pyspark_wm_source.options.axes import axes_of


def read(**options: str) -> dict:
    return axes_of({name.lower(): value for name, value in options.items()})


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({}, FixedLag(0)),
        ({"watermarkLag": "1 hour 30 minutes"}, FixedLag(5_400_000)),
        ({"watermarkPolicy": "LAGANDDELAY", "watermarkDelay": "2 seconds"}, LagAndDelay(0, 2_000)),
        ({"watermarkPolicy": "lagAndLull", "watermarkLag": "1s", "watermarkLull": "2s"}, LagAndLull(1_000, 2_000)),
        (
            {"watermarkPolicy": "timestampAndWallClockLag", "watermarkLag": "1s", "wallClockLag": "2s"},
            TimestampAndWallClockLag(1_000, 2_000),
        ),
        ({"watermarkPolicy": "realTimeLag", "wallClockLag": "2s"}, RealTimeLag(2_000)),
        ({"watermarkPolicy": "none"}, NoWatermarks()),
    ],
)
def test_a_policy_takes_its_own_options(options: dict[str, str], policy: object) -> None:
    assert read(**options)[""].config.policy == policy


@pytest.mark.parametrize(
    ("options", "throttle"),
    [
        ({}, ThrottleByBatch()),
        ({"watermarkThrottle": "frame", "frameSize": "10s"}, ThrottleByFrame(10_000, 0)),
        ({"watermarkThrottle": "frame", "frameSize": "10s", "frameOffset": "3s"}, ThrottleByFrame(10_000, 3_000)),
        ({"watermarkThrottle": "step", "watermarkStep": "5s"}, ThrottleByStep(5_000)),
        ({"watermarkThrottle": "none"}, NoThrottle()),
    ],
)
def test_a_throttle_takes_its_own_options(options: dict[str, str], throttle: object) -> None:
    assert read(**options)[""].config.throttle == throttle


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"watermarkPolicy": "fixedLagg"}, "option watermarkPolicy.*did you mean fixedLag"),
        ({"watermarkPolicy": "lagAndDelay"}, "option watermarkDelay is missing: watermarkPolicy=lagAndDelay needs it"),
        ({"watermarkDelay": "1s"}, "option watermarkDelay has no effect with watermarkPolicy=fixedLag.*lagAndDelay"),
        ({"watermarkThrottle": "frame"}, "option frameSize is missing"),
        ({"frameSize": "1s"}, "option frameSize has no effect with watermarkThrottle=batch"),
        ({"watermarkThrottle": "frame", "frameSize": "1s", "frameOffset": "1s"}, "frameOffset is 1000 ms.*below 1000"),
        ({"watermarkLag": "soon"}, "option watermarkLag: 'soon' is wrong; a duration"),
        ({"watermarkLag": "-1 seconds"}, "option watermarkLag"),
        ({"eventTime": "json:a"}, "option eventTime"),
        ({"eventTimeUnit": "s"}, "option eventTimeUnit.*leave the option out"),
        ({"watermarks": "x"}, "option watermarks.*JSON"),
        ({"watermarks": "{}"}, "option watermarks.*JSON"),
        ({"watermarks": '{"a b": {"key": 0}}'}, "option watermarks: 'a b'"),
        ({"watermarks": '{"a": {"key": 300}}'}, "axis a has key 300"),
        ({"watermarks": '{"a": {}}'}, "axis a has no key"),
        ({"watermarks": '{"a": {"key": 1}, "A": {"key": 2}}'}, "option watermarks: an object has 'a' twice"),
        ({"watermarks": '{"a": {"key": 1, "KEY": 2}}'}, "option watermarks: an object has 'key' twice"),
        ({"watermarks": '{"a": {"key": 1}, "b": {"key": 1}}'}, "two axes have the same key"),
        ({"watermarks": '{"a": {"key": 1, "lag": "1s"}}'}, "option lag is unknown .* axis a"),
        ({"watermarks": '{"a": {"key": 1, "frameSize": "1s"}}'}, "option frameSize has no effect with .*=batch"),
        (
            {"watermarks": '{"a": {"key": 1}, "b": {"key": 2, "watermarkPolicy": "none"}}', "watermarkDelay": "1s"},
            "option watermarkDelay has no effect with watermarkPolicy=fixedLag and none: .* choose lagAndDelay",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        read(**options)


def test_an_option_beside_the_axes_need_be_of_use_to_one_of_them_only() -> None:
    watermarks = {"a": {"key": 0}, "b": {"key": 1, "watermarkPolicy": "lagAndDelay"}}
    axes = read(watermarks=json.dumps(watermarks), watermarkDelay="1s")
    assert [axis.config.policy for axis in axes.values()] == [FixedLag(0), LagAndDelay(0, 1_000)]


def test_axes_come_in_key_order_and_take_what_they_lack_from_beside() -> None:
    watermarks = {
        "shipped": {"key": 2, "eventTime": "json:$.shipped", "eventTimeUnit": "iso", "watermarkLag": "1s"},
        "ordered": {"key": -1, "eventTime": "header:at"},
    }
    axes = read(watermarks=json.dumps(watermarks), watermarkLag="9s")
    assert list(axes) == ["ordered", "shipped"]
    assert [axis.config.key for axis in axes.values()] == [-1, 2]
    assert [axis.config.policy for axis in axes.values()] == [FixedLag(9_000), FixedLag(1_000)]
    assert axes["shipped"].event_time == EventTime(Place.VALUE, ("shipped",), Unit.ISO)
    assert axes["ordered"].event_time == EventTime(Place.HEADER, ("at",), Unit.MILLISECONDS)
