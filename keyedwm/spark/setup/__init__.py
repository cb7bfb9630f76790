"""The Spark session: its settings, its Python, its start."""
