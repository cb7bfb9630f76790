"""Other versions of Kafka than the usual one, for the contract tests: KEYEDWM_KAFKA_VERSION names it.

Rule: a jar has the SHA-256 that stands in kafka_jars.txt. Versions before 3.3 and 4.4 format their directory otherwise.
"""

from __future__ import annotations

from pathlib import Path

from keyedwm.testing.local import Release

VARIABLE = "KEYEDWM_KAFKA_VERSION"
_JARS = Path(__file__).parent / "kafka_jars.txt"


def release(version: str) -> Release:
    """A version of Kafka whose jars are known."""
    lines = _JARS.read_text(encoding="utf-8").splitlines()
    hashes = {name: digest for digest, name in (line.split() for line in lines)}
    if f"kafka_2.13-{version}.jar" not in hashes:
        raise ValueError(f"{VARIABLE}={version}: the jars of this version are not in {_JARS.name}")
    return Release(version, hashes)
