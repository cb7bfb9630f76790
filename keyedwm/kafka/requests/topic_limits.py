"""How large a record batch a topic takes: its `max.message.bytes`.

Rule: the limit is a hint. A client that may not read it, or reads it too early, learns from the broker's refusal.
"""

from __future__ import annotations

from kafka.protocol.admin import DescribeConfigsRequest

from keyedwm.kafka.client.connection import Connection, TransientError
from keyedwm.kafka.client.errors import Code
from keyedwm.kafka.client.values import number_of

_TOPIC_RESOURCE, _LIMIT = 2, "max.message.bytes"


def largest_batch_bytes(connection: Connection, topic: str) -> int | None:
    """The largest record batch, as compressed, that a topic takes; None if that cannot be read."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[_LIMIT]
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, max_version=2)
    try:
        answer = connection.call(None, request)
    except TransientError:
        return None
    sound = [result for result in answer.results if Code.of(result.error_code) is Code.NONE]
    values = [number_of(config.value) for result in sound for config in result.configs if config.name == _LIMIT]
    return next((value for value in values if value), None)
