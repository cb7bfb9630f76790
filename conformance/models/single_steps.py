"""A coalescer that is driven change by change, as the peers' classes are."""

from __future__ import annotations

from keyedwm.core.coalescer import (
    ChannelAdded,
    ChannelFinished,
    ChannelRemoved,
    ChannelWentIdle,
    ChannelWoken,
    Coalescer,
    Output,
    WatermarkAdvanced,
)


class SingleSteps(Coalescer):
    """The product's coalescer; each method is a step of one change."""

    def add(self, channel: str, now_ms: int = 0) -> list[Output]:
        """Add a channel; it never moves the output."""
        return self.step((ChannelAdded(channel),), now_ms)

    def remove(self, channel: str, now_ms: int = 0) -> list[Output]:
        """Remove a channel, whatever its status."""
        return self.step((ChannelRemoved(channel),), now_ms)

    def watermark(self, channel: str, key: int, time_ms: int, now_ms: int = 0) -> list[Output]:
        """Apply a watermark of one channel and key."""
        return self.step((WatermarkAdvanced(channel, key, time_ms),), now_ms)

    def event(self, channel: str, now_ms: int = 0) -> list[Output]:
        """Apply an event: it wakes an idle channel."""
        return self.step((ChannelWoken(channel),), now_ms)

    def idle(self, channel: str, now_ms: int = 0) -> list[Output]:
        """Apply an idle marker of one channel."""
        return self.step((ChannelWentIdle(channel),), now_ms)

    def done(self, channel: str, now_ms: int = 0) -> list[Output]:
        """Apply the end of one channel."""
        return self.step((ChannelFinished(channel),), now_ms)

    def check(self, now_ms: int) -> list[Output]:
        """Ask what became true by the clock alone (retention), or because there are no channels."""
        return self.step((), now_ms)
