"""The product and a scalar model of the same rule answered differently."""

from __future__ import annotations


class DisagreementError(Exception):
    """The vector fails, whatever it says. No KeyedwmError, which a vector may expect as the product's own refusal."""
