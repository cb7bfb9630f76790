"""Options and arguments: validation, secrets, addresses, functions that options name."""
