"""Values that the planner and the tasks share, as the offset log holds them."""
