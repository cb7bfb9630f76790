"""Stateful operators over whole columns: no Spark, no clock."""
