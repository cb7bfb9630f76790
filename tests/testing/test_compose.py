"""docker-compose.yml starts the Kafka of the container way; its Spark is the package's, its store that of the tests."""

from __future__ import annotations

import re
from pathlib import Path

from keyedwm.testing.container import container_variables
from keyedwm.testing.local import IMAGE

ROOT = Path(__file__).parents[2]
OWN_IMAGE = "keyedwm-cluster"
MONITORING = ("prom/prometheus:v3.5.0", "grafana/grafana:12.1.0")
COMPOSE = (ROOT / "docker-compose.yml").read_text()
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
ENTRYPOINT = (ROOT / "docker" / "entrypoint.sh").read_text()
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


def test_compose_runs_the_same_image_of_kafka_and_one_of_our_own():
    images = re.findall("image: (.*)", COMPOSE)
    assert set(images) == {IMAGE, OWN_IMAGE, *MONITORING}
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in MONITORING)
    assert '- "127.0.0.1:9092:9092"\n' in COMPOSE


def test_every_port_is_published_on_loopback_alone_and_none_twice():
    published = re.findall(r'"([^" ]*:\d+:\d+)"', COMPOSE)
    assert len(published) == 8
    assert all(one.startswith("127.0.0.1:") for one in published)
    assert len({one.rpartition(":")[0] for one in published}) == 8


def test_all_but_the_one_broker_belong_to_a_profile():
    services = COMPOSE[COMPOSE.index("\nservices:\n") :]
    services_of_kinds = re.findall(r"^  ([a-z0-9-]+):\n    <<: \*(\w+)$", services, re.MULTILINE)
    watching = re.findall(r'^  ([a-z]+):\n    image: .*\n    profiles: \["monitoring"\]$', services, re.MULTILINE)
    assert watching == ["prometheus", "grafana"]
    assert len(services_of_kinds) == len(re.findall(r"^  [a-z0-9-]+:$", services, re.MULTILINE)) - 1 - len(watching)
    assert {name for name, _ in services_of_kinds} == {
        *(f"{kind}-{number}" for kind in ("kafka", "spark-worker") for number in (1, 2, 3)),
        "spark-master", "object-store", "driver",
    }  # fmt: skip
    for kind in {kind for _, kind in services_of_kinds} - {"worker"}:
        assert re.search(rf'^x-\w+: &{kind}\n(  .*\n)*?  profiles: \["cluster"\]\n', COMPOSE, re.MULTILINE), kind
    assert re.search(r"^x-worker: &worker\n  <<: \*spark\n", COMPOSE, re.MULTILINE)


def test_what_monitoring_mounts_is_there():
    mounted = re.findall(r'"\./(monitoring/[^:]+):', COMPOSE)
    assert len(mounted) == 3
    assert all((ROOT / path).is_dir() for path in mounted)
    dashboards = (ROOT / "monitoring" / "grafana" / "provisioning" / "dashboards" / "keyedwm.yml").read_text()
    assert re.search(r"path: (.*)", dashboards)[1] in COMPOSE


def test_every_command_of_the_profile_is_one_that_the_image_knows():
    known = set(re.findall(r"^  ([a-z-]+)\) ", ENTRYPOINT, re.MULTILINE)) | set(
        re.findall(r"^  ([a-z-]+)\)$", ENTRYPOINT, re.MULTILINE)
    )
    commands = re.findall(r'^ +command: \["([a-z-]+)"', COMPOSE, re.MULTILINE)
    assert set(commands) == known == {"master", "worker", "object-store"}


def test_the_image_installs_what_is_locked_and_the_store_with_hashes():
    assert "--constraint" in DOCKERFILE
    assert "--require-hashes --no-deps --target /opt/object-store" in DOCKERFILE
    assert re.search(r"^FROM python:3\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    allowed = set((ROOT / ".dockerignore").read_text().split())
    for copied in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE):
        assert {f"!{name}" for name in copied.split()} <= allowed
