"""Requests to brokers: fetch, produce, transactions, offsets, groups."""
