"""Changed watermark settings on a checkpoint or a savepoint: each axis continues from its last watermark.

Rule: the last watermark that was sent is the only part of a policy's state that all policies share. It is the floor of
the new policy. The fingerprint in the offset shows whether settings changed, so a batch that is run again agrees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from keyedwm.core.axis import AxisState, PropagatedState
from keyedwm.core.policy import state_from
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.values.offsets import QueryOffset


def are_changed(offset: QueryOffset, options: SourceOptions) -> bool:
    """Whether the batch was planned with other settings than these."""
    return offset.settings not in {"", options.settings}


def carried_on(offset: QueryOffset, options: SourceOptions) -> QueryOffset:
    """Return the offset with states of the present policies; the same offset if the settings are unchanged."""
    if not are_changed(offset, options):
        return offset
    keys = {axis.config.key for axis in options.axes.values()}
    channels = {
        tp: replace(
            channel,
            axes=carried_axes(channel.axes, options, offset.now_ms),
            announced=tuple(key for key in channel.announced if key in keys),
        )
        for tp, channel in offset.channels.items()
    }
    retired = {
        tp: replace(one, axes=carried_axes(one.axes, options, offset.now_ms)) for tp, one in offset.retired.items()
    }
    return replace(offset, channels=channels, retired=retired)


def carried_axes(axes: Mapping[int, AxisState], options: SourceOptions, now_ms: int) -> dict[int, AxisState]:
    """Return the state of each current axis, continued from its last watermark. now_ms: the time of the batch."""
    carried = {}
    for axis in options.axes.values():
        state = axes.get(axis.config.key)
        if state is None:
            continue
        # A change of `propagate` itself is an error elsewhere, which names the option.
        if not isinstance(state.policy, PropagatedState) and not options.propagate:
            state = replace(state, policy=state_from(axis.config.policy, state.emitted_ms, now_ms))
        carried[axis.config.key] = state
    return carried
