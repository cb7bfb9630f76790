"""docker-compose.yml starts the very Kafka that the container way starts."""

from __future__ import annotations

import re
from pathlib import Path

from keyedwm.testing.container import container_variables
from keyedwm.testing.settings import IMAGE

COMPOSE = (Path(__file__).parents[2] / "docker-compose.yml").read_text()


def test_compose_sets_what_the_container_way_sets():
    # Read line by line: every variable of the file is `NAME: "value"`, and no YAML reader is among our dependencies.
    variables = dict(re.findall(r'^ +(KAFKA_\w+): "(.*)"$', COMPOSE, re.MULTILINE))
    assert variables == container_variables("127.0.0.1", 9092, {})
    assert len(variables) == COMPOSE.count("KAFKA_")


def test_compose_runs_the_same_image_on_loopback():
    assert f"image: {IMAGE}\n" in COMPOSE
    assert '- "127.0.0.1:9092:9092"\n' in COMPOSE
