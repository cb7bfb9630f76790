"""Connections to brokers: framing, TLS, login, metadata; everything that touches private parts of kafka-python."""
