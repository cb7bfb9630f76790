"""Commands: demo, broker, vectors, watch, inspect, plot."""
