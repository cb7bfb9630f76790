"""Values that the planner and the tasks share: the offset log, splits and ranges, and whose control records count."""
