"""What every target does with a batch: tasks, their reports, the seal, and the record of what was published."""
