"""Conditions: SQL texts that are evaluated over whole columns."""
