"""Conditions as the text of SQL, over whole columns."""
