"""Joins of windows that keep their messages (docs/window-store.md)."""
