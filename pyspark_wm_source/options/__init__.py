"""What the user asked for, as values: parsed and checked once, before anything is read."""
