"""Tumbling, sliding and session windows that keep one accumulator for each frame."""
