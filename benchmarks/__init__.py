"""Comparisons with figures that anyone can repeat; see README.md beside it."""
