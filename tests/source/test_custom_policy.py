"""A watermark policy of the user's own, by name, and the kit that checks its laws."""

from __future__ import annotations

import pickle
import re

import pytest

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.policy import (
    FixedLag,
    LagAndDelay,
    LagAndLull,
    NoWatermarks,
    RealTimeLag,
    TimestampAndWallClockLag,
)
from keyedwm.testing import check_policy
from pyspark_wm_source.options.axes import axes_of
from pyspark_wm_source.options.custom_policy import CustomPolicy
from tests import own_policies
from tests.own_policies import HOUR_MS, Broken, WholeHours
from tests.tools import Record, produce

HOURS = "tests.own_policies:whole_hours"


@pytest.mark.parametrize(
    "policy",
    [
        WholeHours(), CustomPolicy(HOURS), FixedLag(5_000), LagAndDelay(5_000, 30_000), LagAndLull(5_000, 20_000),
        TimestampAndWallClockLag(5_000, 60_000), RealTimeLag(2_000), NoWatermarks(),
    ],
    ids=lambda policy: type(policy).__name__,
)  # fmt: skip
def test_a_policy_that_keeps_the_laws_passes(policy):
    check_policy(policy, seeds=15)


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (own_policies.Falls, "monotone"),
        (own_policies.Counts, "cut-independent"),
        (own_policies.Forgets, "cut-independent"),
        (own_policies.Drags, "event_lag_ms"),
    ],
)
def test_a_policy_that_breaks_a_law_is_named_with_the_law_and_the_seed(broken, law):
    with pytest.raises(AssertionError, match=rf"the policy is not {law} \(seed 7\)"):
        check_policy(Broken(broken), seeds=3, first_seed=7)


def test_a_state_that_grows_is_found():
    with pytest.raises(AssertionError, match=r"the policy is not (small|cut-independent)"):
        check_policy(Broken(own_policies.Hoards), seeds=1)


def test_the_name_alone_travels():
    policy = axes_of({"watermarkpolicy": HOURS})[""].config.policy
    assert pickle.loads(pickle.dumps(policy)) == policy  # noqa: S301
    assert repr(policy) == f"CustomPolicy(name={HOURS!r})"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tests.own_policies:nowhere", "option watermarkPolicy: module 'tests.own_policies' has no 'nowhere'"),
        ("no.such.module:f", "option watermarkPolicy: module 'no.such.module' cannot be imported"),
        ("tests.own_policies:HOUR_MS", "'tests.own_policies:HOUR_MS' is of type int; a function without arguments"),
        ("a b:c", "option watermarkPolicy: 'a b:c' is wrong; module:function is expected"),
        ("tests.own_policies:exits", r"tests.own_policies:exits\(\) raised SystemExit: 3"),
        ("tests.own_policies:unreadable", r"tests.own_policies:unreadable\(\) raised ValueError: no lag"),
        ("tests.own_policies:fails", r"tests.own_policies:fails\(\) raised ValueError: no such file"),
        (
            "tests.own_policies:nothing",
            r"gave <object .*>, which has no event_lag_ms; a policy with",
        ),
    ],
)
def test_what_is_no_policy_is_refused_when_the_plan_is_built(name, sentence):
    with pytest.raises(OptionError, match=sentence):
        axes_of({"watermarkpolicy": name})


def test_an_option_of_another_policy_is_refused():
    with pytest.raises(OptionError, match="option watermarkLag has no effect with watermarkPolicy=module:factory"):
        axes_of({"watermarkpolicy": HOURS, "watermarklag": "1 second"})


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("leaves", "build(None) raised SystemExit: 4"),
        ("shouts", "build(None) raised ValueError: not today"),
        ("floats", "gave the watermark 1.5; None or a whole"),
    ],
)
def test_what_the_users_code_does_wrong_names_it(name, sentence):
    policy = CustomPolicy(f"tests.own_policies:{name}")
    with pytest.raises(InputError, match=re.escape(sentence)):
        policy.build().current(0)


@pytest.mark.parametrize("limits", [{}, {"maxOffsetsPerTrigger": "1"}, {"maxRecordsPerPartition": "1"}])
def test_it_makes_the_watermarks_of_a_topic_however_it_is_read(kafka, topic_of, open_stream, limits):
    topic = topic_of(1)
    stream = open_stream(topic, {"watermarkPolicy": HOURS, **limits})
    for hour in (5, 7):
        times = (hour * HOUR_MS + 1, hour * HOUR_MS + 59 * 60_000, (hour - 1) * HOUR_MS)
        produce(kafka.bootstrap, topic, [Record(0, ms) for ms in times])
        stream.restart()
        stream.drain()
        assert stream.watermark_ms() == hour * HOUR_MS
