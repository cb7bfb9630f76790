"""One channel on one time axis: its settings, policy then throttle (rules 7, 8), and its stored state.

Rule: values only; `AxisRun` in keyedwm.arrow.axis runs them over whole batches. Counts travel with the channel's state,
so that they too are the same after a replay or a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from keyedwm.core.errors import FormatError, OptionError
from keyedwm.core.pickles import pickled_by_fields
from keyedwm.core.policy import Policy
from keyedwm.core.throttle import Throttle
from keyedwm.core.watermark import check_key

_HEAD = 2  # of a list: the watermark and the kind of state


class StateTag(Enum):
    """The kinds of state of an axis, by their names in offsets."""

    POLICY = "policy"
    PROPAGATED = "propagated"


_POLICY = StateTag.POLICY.value


@dataclass(frozen=True, slots=True)
class AxisConfig:
    """The settings that make the watermarks of one key."""

    key: int
    policy: Policy
    throttle: Throttle

    def __post_init__(self) -> None:
        check_key(self.key)


PolicyState = tuple[int, ...]


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class PropagatedState:
    """The last barrier of a channel of a `propagate=true` read, instead of a policy's state.

    query: a number made of the upstream query's id. repeated: how many duplicate barriers were ignored (at-least-once).
    idle: whether all upstream channels were idle.
    """

    query: int
    snapshot: int
    repeated: int = 0
    idle: bool = False


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class AxisState:
    """The stored state of one channel and key: the state of its policy, and the last watermark sent (None: none yet).

    policy: the numbers of a watermark policy; if watermarks are propagated, the last barrier.
    """

    policy: PolicyState | PropagatedState = ()
    emitted_ms: int | None = None

    def policy_state(self) -> PolicyState:
        """The numbers of the policy. Raises OptionError for the state of a read with `propagate=true`."""
        if isinstance(self.policy, PropagatedState):
            raise OptionError(
                "option propagate: the checkpoint holds propagated watermarks, it was made with propagate=true, which "
                "cannot be switched off later: start with a new checkpoint"
            )
        return self.policy

    def numbers(self) -> tuple[StateTag, tuple[int, ...]]:
        """Return the kind of the state, and its numbers."""
        state = self.policy
        if isinstance(state, PropagatedState):
            return StateTag.PROPAGATED, (state.query, state.snapshot, state.repeated, int(state.idle))
        return StateTag.POLICY, state

    @staticmethod
    def of_numbers(tag: StateTag, numbers: Sequence[int], emitted_ms: int | None) -> AxisState:
        """Return the inverse of `numbers`. Raises FormatError for numbers that are never written."""
        if tag is StateTag.POLICY:
            return AxisState(tuple(numbers), emitted_ms)
        if len(numbers) != len(PropagatedState.__slots__) or numbers[-1] not in (0, 1):
            raise FormatError(f"the saved state of a propagated watermark is {list(numbers)}, which is never written")
        query, snapshot, repeated, idle = numbers
        return AxisState(PropagatedState(query, snapshot, repeated, idle=bool(idle)), emitted_ms)

    def as_list(self) -> list:
        """[emitted or null, kind of state, its numbers ...] for JSON."""
        if type(self.policy) is tuple:  # as nearly all are
            return [self.emitted_ms, _POLICY, *self.policy]
        tag, numbers = self.numbers()
        return [self.emitted_ms, tag.value, *numbers]

    @classmethod
    def from_list(cls, value: Sequence) -> AxisState:
        """The inverse of `as_list`."""
        subject = f"the saved state of a time axis is {value!r}"
        if len(value) < _HEAD or any(type(number) is not int for number in value[_HEAD:]):
            raise FormatError(f"{subject}, it must be [emitted, kind, numbers ...]")
        if value[0] is not None and type(value[0]) is not int:
            raise FormatError(f"{subject}, the watermark in it must be a whole number or null")
        try:
            tag = StateTag(value[1])
        except ValueError:
            raise FormatError(
                f"{subject}, its kind must be one of {', '.join(tag.value for tag in StateTag)}"
            ) from None
        return cls.of_numbers(tag, value[_HEAD:], value[0])


def concatenate(config: AxisConfig, first: AxisState, then: AxisState) -> AxisState:
    """Return the state after two consecutive ranges of rows; the second was run alone from a neutral state.

    Watermarks that the second range emitted alone do not count: no task sent them, and `end` emits the watermarks that
    are due.
    """
    numbers = config.policy.concatenate(first.policy_state(), then.policy_state())
    return AxisState(policy=numbers, emitted_ms=first.emitted_ms)


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Counts:
    """bad: event times that could not be read; late: events below the coalesced watermark stamped on their batch.

    With several time axes an event counts once for each. control: records with the reserved header that are neither
    rows nor read as control records. future: event times too far ahead (option `maxEventTimeAhead`). bad_values: values
    with a schema that could not be read, as (number of the reason, count), by reason.
    """

    bad: int = 0
    late: int = 0
    control: int = 0
    future: int = 0
    bad_values: tuple[tuple[int, int], ...] = field(default=(), kw_only=True)

    def plus(self, more: Counts) -> Counts:
        """Return the sums of both counts."""
        by_reason = dict(self.bad_values)
        for reason, count in more.bad_values:
            by_reason[reason] = by_reason.get(reason, 0) + count
        return Counts(
            self.bad + more.bad, self.late + more.late, self.control + more.control, self.future + more.future,
            bad_values=tuple(sorted(by_reason.items())),
        )  # fmt: skip


# The counts of nearly all channels; a shared value, so that readers can skip it.
NO_COUNTS = Counts()
