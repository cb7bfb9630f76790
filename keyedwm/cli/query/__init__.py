"""A query's own sources of truth, read by the commands: its checkpoint, its consumer group, its topics, its ledger."""
