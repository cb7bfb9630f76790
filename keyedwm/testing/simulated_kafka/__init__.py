"""Kafka in memory, behind its own wire protocol: for seeded simulations, and for tests of pipelines without Kafka."""
