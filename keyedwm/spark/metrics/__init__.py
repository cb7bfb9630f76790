"""Figures of running queries, and the systems that they are exported to."""
