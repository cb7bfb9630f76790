"""The wire: connections, fetch, record batches to and from Arrow, offsets, transactions."""
