"""Conformance vectors: files of recorded sequences, replayed through keyedwm.core."""
