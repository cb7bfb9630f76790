"""Which ports and networks the registry of a machine listens on."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyedwm.testing import registry
from keyedwm.testing.container import LOOPBACK


def test_two_registries_of_a_machine_share_no_port_and_listen_on_loopback_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Quarkus has a second listener, the management interface: by default port 9000 of every network."""
    commands: list[list[str]] = []
    monkeypatch.setattr(registry, "find_newer_java", lambda *_: Path("java"))
    monkeypatch.setattr(registry, "fetch_archive", lambda *_: tmp_path)
    monkeypatch.setattr(
        registry, "ServerProcess", lambda _home, _name, command: commands.append(list(map(str, command)))
    )
    for _ in range(2):
        registry.LocalRegistry(tmp_path, None)
    settings = [
        dict(word[2:].split("=", 1) for word in command if word.startswith("-Dquarkus.")) for command in commands
    ]
    ports = [values[f"quarkus.{listener}.port"] for values in settings for listener in ("http", "management")]
    assert len(set(ports)) == 4
    assert {values[f"quarkus.{listener}.host"] for values in settings for listener in ("http", "management")} == {
        LOOPBACK
    }
