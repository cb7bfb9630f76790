"""A real Kafka broker for tests, the demo and `keyedwm broker`, started and stopped, and `check_policy`, the laws of a
watermark policy as a test.

Only `keyedwm.cli` imports this package among the shipped code.
"""

from keyedwm.testing.policies import check_policy

__all__ = ["check_policy"]
