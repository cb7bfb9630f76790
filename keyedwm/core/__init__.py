"""The event-time algebra: values in, values out; standard library only, time is an argument."""
