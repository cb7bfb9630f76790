"""Sketches in the binary formats of Apache DataSketches, which Spark, Trino and Druid read and merge.

Rule: a sketch depends on the set (HLL, theta) or multiset (quantiles) of values alone. So its bytes do not depend on
how rows were cut into tasks and batches. The library itself is not used: its Python functions take one value a call,
and its KLL is random. The tests compare with it.
"""
