"""The options of a read, as values: parsed and checked once, before anything is read."""
