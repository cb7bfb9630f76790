"""What a checkpoint or a query holds, and why it waits."""
