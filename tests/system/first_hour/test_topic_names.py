"""A name that no topic can have is refused where it is given."""

from __future__ import annotations

import json

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.values import check_topics
from pyspark_wm_sink.options.sink_options import SinkOptions
from pyspark_wm_source.options.source_options import SourceOptions

SERVERS = {"kafka.bootstrap.servers": "h:1"}
SAID = "the name of a topic has 1 to 249 letters"


@pytest.mark.parametrize("name", ["a b", ".", "..", "a/b", "a:b", "größe", "a\nb", "t" * 250])
def test_a_name_that_no_topic_can_have_is_refused_by_every_option(name):
    for option in ("topic", "errorsTo"):
        with pytest.raises(OptionError, match=f"option {option}: .*{SAID}"):
            SinkOptions.parse({**SERVERS, "topic": "results", option: name})
    with pytest.raises(OptionError, match=f"option assign: .*{SAID}"):
        SourceOptions.parse({**SERVERS, "assign": json.dumps({name: [0]})})
    with pytest.raises(OptionError, match=f"option subscribe: .*{SAID}"):
        SourceOptions.parse({**SERVERS, "subscribe": f"orders,{name}"})


def test_every_name_that_kafka_takes_is_taken():
    check_topics("subscribe", ["a", "A.b_c-9", "...", "_", "t" * 249])
    SourceOptions.parse({**SERVERS, "subscribe": " orders , refunds "})
