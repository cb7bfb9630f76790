"""A seeded world: simulated brokers, disk and Spark around the product's own planner, tasks, stage and publish code.

Rule: one process, one seed, virtual time, no sleeping. All chance comes from the seed, so a failing seed replays
exactly.
"""
