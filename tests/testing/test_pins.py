"""What is fetched from outside is pinned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from keyedwm.testing.container import published_on

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_the_tool_that_pins_the_dependencies_is_pinned_itself():
    assert re.search(r"^UV := uv==\d+\.\d+\.\d+$", MAKEFILE, re.MULTILINE)
    assert re.findall(r"pip install (?!.*(--require-hashes|\$\(UV\)|--no-deps)).*", MAKEFILE) == []


@pytest.mark.parametrize("name", ["requirements.lock", "requirements.demo.lock"])
def test_every_dependency_is_pinned_with_a_hash(name):
    lock = (ROOT / name).read_text()
    entries = re.split(r"\n(?=[a-zA-Z0-9])", lock.strip())
    assert len(entries) > 40
    assert [one for one in entries if not re.match(r"[\w.\-]+==\S+", one) or "--hash=sha256:" not in one] == []


def test_the_demo_installs_the_versions_of_the_tests():
    both = [
        set(re.findall(r"^[\w.\-]+==\S+", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.demo.lock", "requirements.lock")
    ]
    assert both[0] <= both[1]


def test_a_container_publishes_its_port_on_one_address():
    assert published_on("127.0.0.1") == "127.0.0.1"
    assert published_on("localhost") == "127.0.0.1"
