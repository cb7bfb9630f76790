"""The time axes, parsed from the options: place of the event time, watermark policy and throttle of each axis.

Rule: an option that the policy or throttle does not use is rejected with an error, and so is a missing one. With
`watermarks` each axis has its own settings. A setting that an axis lacks has the value of the option beside
`watermarks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from keyedwm.arrow.schema import axis_column
from keyedwm.config.places import UNIT_WORDS, event_time_of
from keyedwm.config.validation import boolean, choice, duration_ms, refuse_unknown, wrong
from keyedwm.core.axis import AxisConfig
from keyedwm.core.errors import OptionError
from keyedwm.core.parsing import parse_json
from keyedwm.core.places import EventTime, FutureTime, OnFuture, Place, Unit
from keyedwm.core.policy import (
    FixedLag,
    LagAndDelay,
    LagAndLull,
    NoWatermarks,
    Policy,
    RealTimeLag,
    TimestampAndWallClockLag,
)
from keyedwm.core.rows import EVENT_TIME
from keyedwm.core.throttle import NoThrottle, Throttle, ThrottleByBatch, ThrottleByFrame, ThrottleByStep
from keyedwm.core.watermark import MAX_KEY, MIN_KEY
from pyspark_wm_source.options.custom_policy import CustomPolicy, is_custom

AXIS_OPTIONS = (
    "eventTime", "eventTimeUnit", "watermarkPolicy", "watermarkLag", "watermarkDelay", "watermarkLull", "wallClockLag",
    "watermarkThrottle", "frameSize", "frameOffset", "watermarkStep", "maxEventTimeAhead", "onFutureTime",
)  # fmt: skip
NO_LIMIT = "none"
_NAME = re.compile(r"[A-Za-z]\w*")


class _PolicyName(Enum):
    FIXED_LAG = "fixedLag"
    LAG_AND_DELAY = "lagAndDelay"
    LAG_AND_LULL = "lagAndLull"
    TIMESTAMP_AND_WALL_CLOCK_LAG = "timestampAndWallClockLag"
    REAL_TIME_LAG = "realTimeLag"
    NONE = "none"
    CUSTOM = "module:factory"


class _ThrottleName(Enum):
    BATCH = "batch"
    FRAME = "frame"
    STEP = "step"
    NONE = "none"


# The options of each policy and throttle, in the order of its arguments: option → default (None: required).
_POLICIES: Mapping[_PolicyName, tuple[Callable[..., Policy], Mapping[str, str | None]]] = {
    _PolicyName.FIXED_LAG: (FixedLag, {"watermarkLag": "0 seconds"}),
    _PolicyName.LAG_AND_DELAY: (LagAndDelay, {"watermarkLag": "0 seconds", "watermarkDelay": None}),
    _PolicyName.LAG_AND_LULL: (LagAndLull, {"watermarkLag": "0 seconds", "watermarkLull": None}),
    _PolicyName.TIMESTAMP_AND_WALL_CLOCK_LAG: (
        TimestampAndWallClockLag,
        {"watermarkLag": "0 seconds", "wallClockLag": None},
    ),
    _PolicyName.REAL_TIME_LAG: (RealTimeLag, {"wallClockLag": None}),
    _PolicyName.NONE: (NoWatermarks, {}),
    _PolicyName.CUSTOM: (CustomPolicy, {}),
}
_THROTTLES: Mapping[_ThrottleName, tuple[Callable[..., Throttle], Mapping[str, str | None]]] = {
    _ThrottleName.BATCH: (ThrottleByBatch, {}),
    _ThrottleName.FRAME: (ThrottleByFrame, {"frameSize": None, "frameOffset": "0 seconds"}),
    _ThrottleName.STEP: (ThrottleByStep, {"watermarkStep": None}),
    _ThrottleName.NONE: (NoThrottle, {}),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeAxis:
    """One time axis of the source. future: which event times are too far ahead to move its watermark."""

    config: AxisConfig
    event_time: EventTime
    future: FutureTime | None = None

    @property
    def settings(self) -> tuple[str | int, ...]:
        """The settings that the state of a channel depends on. Offsets store the default of maxEventTimeAhead."""
        ahead = () if self.future is None or self.future.is_default else (self.future.ahead_ms,)
        return (repr(self.config), self.where.text, self.where.unit.value, *ahead)

    @property
    def where(self) -> EventTime:
        """The place of the event time in the fingerprint of settings.

        Earlier versions had timestamps for sink headers.
        """
        return EventTime() if self.event_time.place is Place.SINK_HEADER else self.event_time

    def lenient(self) -> TimeAxis:
        """Return the axis for a caller that needs only the states: no event time raises an error."""
        return self if self.future is None else replace(self, future=replace(self.future, on=OnFuture.IGNORE))

    @property
    def moves_by_clock(self) -> bool:
        """Whether the watermark can move while nothing is read."""
        return not isinstance(self.config.policy, (FixedLag, NoWatermarks))


def ahead_of(axes: Mapping[str, TimeAxis]) -> dict[int, int]:
    """Return how far event times may be ahead, in ms by watermark key, as an offset stores them."""
    return {axis.config.key: axis.future.ahead_ms for axis in axes.values() if axis.future is not None}


def guards_of(axes: Mapping[str, TimeAxis], ahead_ms: Mapping[int, int]) -> dict[str, FutureTime]:
    """Return the limits of a batch by the name of the axis.

    ahead_ms: watermark key → the limit in the batch's offset. An offset of an earlier version has no limits. Then the
    batch is read without limits.
    """
    if not ahead_ms:
        return {name: one.future for name, one in axes.items() if one.future is not None and not one.future.is_default}
    keys = {name: axis.config.key for name, axis in axes.items()}
    return {
        name: replace(axes[name].future or FutureTime(), ahead_ms=ahead_ms[key])
        for name, key in keys.items()
        if key in ahead_ms
    }


def axes_of(options: Mapping[str, str]) -> dict[str, TimeAxis]:
    """Parse the axes, in key order: the axes of `watermarks` by name, else one axis with an empty name.

    options: by lower-case names.
    """
    text = options.get("watermarks")
    if text is None:
        _refuse_needless(options, [options])
        return {"": _axis("", 0, options)}
    axes: dict[str, TimeAxis] = {}
    settings_of_all = []
    for name, settings in _settings_by_axis(text).items():
        refuse_unknown(settings, ("key", *AXIS_OPTIONS), side=f"source's option watermarks, axis {name}")
        own = {option.lower(): str(value) for option, value in settings.items()}
        settings_of_all.append({**options, **own})
        _refuse_needless(own, settings_of_all[-1:])
        axes[name] = _axis(name, _key(name, settings), settings_of_all[-1])
    _refuse_needless(options, settings_of_all)
    keys = [axis.config.key for axis in axes.values()]
    if len(set(keys)) < len(keys):
        raise OptionError(f"option watermarks: two axes have the same key ({sorted(keys)}); give each its own")
    return dict(sorted(axes.items(), key=lambda item: item[1].config.key))


def _settings_by_axis(text: str) -> dict[str, dict[str, Any]]:
    right = 'JSON such as {"created": {"key": 0, "eventTime": "json:$.created"}} is expected'
    try:
        parsed = parse_json(text, pairs=_distinct)
    except ValueError:
        raise wrong("watermarks", text, right) from None
    if not isinstance(parsed, dict) or not parsed or not all(isinstance(s, dict) for s in parsed.values()):
        raise wrong("watermarks", text, right)
    for name in parsed:
        if not _NAME.fullmatch(name):
            raise wrong("watermarks", name, "an axis is named by letters, digits and underscores, a letter first")
    return parsed


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object. Raises OptionError for names that differ only by case: options ignore case."""
    names = [name.lower() for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(
                f"option watermarks: an object has {name!r} twice (names ignore case): remove one of them"
            )
    return dict(pairs)


def _key(name: str, settings: Mapping[str, Any]) -> int:
    key = next((value for option, value in settings.items() if option.lower() == "key"), None)
    if not isinstance(key, int) or isinstance(key, bool) or not MIN_KEY <= key <= MAX_KEY:
        value = "no key" if key is None else f"key {key!r}"
        raise OptionError(
            f"option watermarks: axis {name} has {value}; a whole number from {MIN_KEY} to {MAX_KEY} is expected"
        )
    return key


def _axis(name: str, key: int, options: Mapping[str, str]) -> TimeAxis:
    throttle = _throttle(options)
    build_throttle, throttle_defaults = _THROTTLES[throttle]
    unit = choice("eventTimeUnit", options.get("eventtimeunit", Unit.MILLISECONDS.value), Unit, UNIT_WORDS)
    return TimeAxis(
        config=AxisConfig(
            key=key,
            policy=_built_policy(options),
            throttle=build_throttle(*_durations(options, "watermarkThrottle", throttle, throttle_defaults)),
        ),
        event_time=_event_time(name, options, unit),
        future=_future(options),
    )


def _event_time(name: str, options: Mapping[str, str], unit: Unit) -> EventTime:
    """Parse the place of the event time. By default a propagated one is in the sink's header."""
    event_time = event_time_of(options.get("eventtime", "timestamp"), unit)
    propagated = boolean("propagate", options.get("propagate", "false"))
    return (
        EventTime.of_sink_header(axis_column(EVENT_TIME, name))
        if propagated and "eventtime" not in options
        else event_time
    )


def _future(options: Mapping[str, str]) -> FutureTime | None:
    """Parse how far ahead event times may be.

    Propagated watermarks have no limit here: upstream has applied its own.
    """
    limit = options.get("maxeventtimeahead")
    if boolean("propagate", options.get("propagate", "false")):
        return None
    on = choice("onFutureTime", options.get("onfuturetime", OnFuture.IGNORE.value), OnFuture)
    if limit is None:
        return FutureTime(on=on, is_default=True)
    if limit.strip().lower() != NO_LIMIT:
        return FutureTime(duration_ms("maxEventTimeAhead", limit), on)
    if "onfuturetime" in options:
        raise OptionError(f"option onFutureTime has no effect with maxEventTimeAhead={NO_LIMIT}: leave one of them out")
    return None


def _built_policy(options: Mapping[str, str]) -> Policy:
    policy = _policy(options)
    if policy is _PolicyName.CUSTOM:
        return CustomPolicy(options["watermarkpolicy"].strip())
    build, defaults = _POLICIES[policy]
    return build(*_durations(options, "watermarkPolicy", policy, defaults))


def _policy(options: Mapping[str, str]) -> _PolicyName:
    value = options.get("watermarkpolicy", _PolicyName.FIXED_LAG.value)
    return _PolicyName.CUSTOM if is_custom(value) else choice("watermarkPolicy", value, _PolicyName)


def _throttle(options: Mapping[str, str]) -> _ThrottleName:
    return choice("watermarkThrottle", options.get("watermarkthrottle", _ThrottleName.BATCH.value), _ThrottleName)


def _durations(options: Mapping[str, str], by: str, setting: Enum, defaults: Mapping[str, str | None]) -> list[int]:
    durations_ms = []
    for name, default in defaults.items():
        value = options.get(name.lower(), default)
        if value is None:
            raise OptionError(
                f"option {name} is missing: {by}={setting.value} needs it, a duration such as '10 seconds'"
            )
        durations_ms.append(duration_ms(name, value))
    return durations_ms


def _refuse_needless(own: Mapping[str, str], axes: Sequence[Mapping[str, str]]) -> None:
    """Raise OptionError for an option of `own` that no axis uses. axes: the settings of each axis."""
    _refuse_needless_by("watermarkPolicy", own, [_policy(axis) for axis in axes], _POLICIES)
    _refuse_needless_by("watermarkThrottle", own, [_throttle(axis) for axis in axes], _THROTTLES)


def _refuse_needless_by(
    by: str, own: Mapping[str, str], values: Sequence[Enum], kinds: Mapping[Any, tuple[Any, Mapping[str, Any]]]
) -> None:
    used_options = {option for one in values for option in kinds[one][1]}
    for name in sorted({option for _, defaults in kinds.values() for option in defaults} - used_options):
        if name.lower() in own:
            value_text = " and ".join(sorted({str(one.value) for one in values}))
            users = " or ".join(str(other.value) for other, (_, defaults) in kinds.items() if name in defaults)
            raise OptionError(f"option {name} has no effect with {by}={value_text}: leave it out, or choose {users}")
