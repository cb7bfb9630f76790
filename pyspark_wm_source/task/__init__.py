"""The code of a reading task on an executor."""
