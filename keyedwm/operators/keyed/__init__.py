"""Watermarks of single keys: their settings in a plan, their values, and their figures."""
