"""Contents of a checkpoint or a query, and why it waits."""
