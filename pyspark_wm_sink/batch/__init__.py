"""The steps of a batch that all targets share: tasks, their reports, the seal, and the record of the publication."""
