"""docker-compose.yml starts the very Kafka that the container way starts."""

from __future__ import annotations

import re
from pathlib import Path

from keyedwm.testing.container import container_variables
from keyedwm.testing.settings import IMAGE

COMPOSE = (Path(__file__).parents[2] / "docker-compose.yml").read_text()
ONE = COMPOSE[COMPOSE.index("  kafka:\n") : COMPOSE.index("  kafka-1:\n")]
THREE = COMPOSE.replace(ONE, "")


def variables_of(text: str) -> dict[str, str]:
    """Its variables: all are `NAME: "value"` on a line, and no YAML reader is among our dependencies."""
    return dict(re.findall(r'^ +(KAFKA_\w+): "(.*)"$', text, re.MULTILINE))


def test_compose_sets_what_the_container_way_sets():
    assert variables_of(ONE) == container_variables("127.0.0.1", 9092, {})
    assert len(variables_of(ONE)) == ONE.count("KAFKA_")


def test_the_three_brokers_of_the_profile_differ_from_the_one_by_what_three_need():
    one, shared = variables_of(ONE), variables_of(THREE[: THREE.index("services:")])
    differing = {name for name in shared if one.get(name) != shared[name]}
    for name in differing:
        assert re.search("FACTOR|ISR|INSYNC|LISTENER|QUORUM", name), name
    assert set(one) - set(shared) == {"KAFKA_NODE_ID", "KAFKA_ADVERTISED_LISTENERS"}
    for number in (1, 2, 3):
        assert f'ports: ["127.0.0.1:919{number}:9092"]' in COMPOSE
        assert f'"INSIDE://kafka-{number}:19092,PLAINTEXT://127.0.0.1:919{number}"' in COMPOSE


def test_compose_runs_the_same_image_on_loopback():
    assert COMPOSE.count(f"image: {IMAGE}\n") == COMPOSE.count("image:")
    assert '- "127.0.0.1:9092:9092"\n' in COMPOSE
