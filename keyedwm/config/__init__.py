"""Options and arguments: validation, secrets, TLS, addresses, places of values, functions that options name."""
