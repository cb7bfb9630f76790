"""What operators hold between batches."""
