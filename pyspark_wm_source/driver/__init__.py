"""The code of the driver's planning process: offsets, channel states, splits."""
