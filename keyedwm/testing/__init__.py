"""Tools for tests: a real Kafka broker, pipelines without Kafka, and `check_policy`, the laws of a watermark policy.

Of the shipped code only `keyedwm.cli` imports this package, for `keyedwm broker` and `keyedwm doctor`.
"""

from keyedwm.testing.policies import check_policy

__all__ = ["check_policy"]
