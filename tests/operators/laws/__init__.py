"""Laws of operators over kept messages: each holds for every kind of window, whatever its input and its restarts."""
