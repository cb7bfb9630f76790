"""Watermarks that keys have of their own: as a plan asks for them, how far each has come, and how they stand."""
