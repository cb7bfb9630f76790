"""Row schema and vectorised twins of the core, over Arrow and numpy."""
