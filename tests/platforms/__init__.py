"""Trials on the platforms of other makers, which `make test` leaves out: each is one module."""
