"""The options of a write and of its target, parsed and checked once, when the writer is created."""
