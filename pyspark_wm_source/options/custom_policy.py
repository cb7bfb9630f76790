"""A user-defined watermark policy, `watermarkPolicy=module:factory`.

Rule: only the name is pickled, and every process builds the policy from its name. This module checks each value that
the user's code returns, so that no caller has to. An error names the type of the user's exception.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from keyedwm.config.user_functions import find
from keyedwm.core.errors import InputError, KeyedwmError, OptionError
from keyedwm.core.policy import Policy, PolicyRun
from keyedwm.core.watermark import MAX_MS, MIN_MS

T = TypeVar("T")

_OPTION = "watermarkPolicy"
_PARTS = ("event_lag_ms", "build", "concatenate")
_RUN_PARTS = ("observe", "current", "snapshot")


def is_custom(text: str) -> bool:
    """Whether the option names a function: no built-in policy has a colon."""
    return ":" in text


@dataclass(frozen=True, slots=True)
class CustomPolicy:
    """The policy that the function `name` returns, a `keyedwm.core.policy.Policy`."""

    name: str

    def __post_init__(self) -> None:
        _policy_of(self.name)

    @property
    def event_lag_ms(self) -> int | None:
        """How far the watermark is behind an event when the event is observed; None if events do not move it."""
        lag_ms = _policy_of(self.name).event_lag_ms
        if lag_ms is not None and not (_is_whole(lag_ms) and lag_ms >= 0):
            raise OptionError(f"option {_OPTION}: {self.name} has event_lag_ms {lag_ms!r}; None or 0 or more is right")
        return lag_ms

    def build(self, resume_from: Sequence[int] | None = None) -> PolicyRun:
        """Return the policy in its first state, or in the state of a snapshot."""
        state = None if resume_from is None else tuple(resume_from)
        run = self.answer_of(f"build({state})", lambda: _policy_of(self.name).build(state))
        for part in _RUN_PARTS:
            if not callable(getattr(run, part, None)):
                raise OptionError(f"option {_OPTION}: {self.name}.build() gave {run!r}, which has no {part}()")
        return _CustomRun(self, run)

    def concatenate(self, first: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
        """Return the state after two ranges of rows, from the state after each range run alone."""
        return self.state(
            self.answer_of("concatenate()", lambda: _policy_of(self.name).concatenate(tuple(first), tuple(then)))
        )

    def state(self, value: object) -> tuple[int, ...]:
        """Return a state of the user's code. Raises InputError unless it is a tuple of whole numbers."""
        if isinstance(value, tuple) and all(map(_is_whole, value)):
            return value
        raise InputError(
            f"option {_OPTION}: {self.name} gave the state {value!r}; a tuple of whole numbers of 64 bits is right"
        )

    def answer_of(self, call_text: str, call: Callable[[], T]) -> T:
        """Call the user's code. Raises InputError for any exception of it. call_text: the call in the message."""
        try:
            return call()
        except KeyedwmError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(
                f"option {_OPTION}: {self.name}: {call_text} raised {type(error).__name__}: {error}"
            ) from error


class _CustomRun:
    """The user's policy and its state."""

    def __init__(self, policy: CustomPolicy, run: PolicyRun) -> None:
        self._policy, self._run = policy, run

    def observe(self, event_ms: int, now_ms: int, /) -> None:
        if event_ms == MIN_MS:
            return  # no event: the caller asks for the watermark without one
        self._policy.answer_of(f"observe({event_ms}, {now_ms})", lambda: self._run.observe(event_ms, now_ms))

    def current(self, now_ms: int, /) -> int | None:
        watermark_ms = self._policy.answer_of(f"current({now_ms})", lambda: self._run.current(now_ms))
        if watermark_ms is None or _is_whole(watermark_ms):
            return watermark_ms
        raise InputError(
            f"option {_OPTION}: {self._policy.name} gave the watermark {watermark_ms!r}; None or a whole number of ms "
            f"is right"
        )

    def snapshot(self) -> tuple[int, ...]:
        return self._policy.state(self._policy.answer_of("snapshot()", self._run.snapshot))


def _is_whole(value: object) -> bool:
    return type(value) is int and MIN_MS <= value <= MAX_MS


@cache
def _policy_of(name: str) -> Policy:
    factory = find(_OPTION, name)
    try:
        policy: Policy = factory()
        missing = [part for part in _PARTS if not hasattr(policy, part)]
    except (Exception, SystemExit) as error:
        raise OptionError(f"option {_OPTION}: {name}() raised {type(error).__name__}: {error}") from error
    if missing:
        raise OptionError(
            f"option {_OPTION}: {name}() gave {policy!r}, which has no {missing[0]}; a policy with {', '.join(_PARTS)} "
            f"is expected"
        )
    return policy
