"""Keyed processors of the user's own, and the operators built on them."""
