"""Real brokers, manual clocks and seeded simulation for tests and the demo; nothing shipped imports it."""
