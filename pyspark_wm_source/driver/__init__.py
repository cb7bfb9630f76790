"""What runs in the driver's planning process: offsets, channel states, splits."""
