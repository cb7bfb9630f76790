"""Aggregate functions over whole columns."""
