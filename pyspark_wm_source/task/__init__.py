"""What runs in a reading task on an executor."""
