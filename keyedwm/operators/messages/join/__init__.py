"""Joins of windows that keep their messages (docs/reference/window-join.md)."""
