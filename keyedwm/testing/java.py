"""Finds the Java that Spark and the local Kafka need.

Rule: JAVA_HOME comes before PATH, as for Spark itself. If Java is missing or wrong, one sentence names the version to
install. `python -m keyedwm.testing.java` prints this sentence and exits 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from keyedwm.core.errors import KeyedwmError

VERSIONS = (17, 21, 25)
_INSTALL = "install a Java 17, 21 or 25 runtime (for example openjdk-17-jre-headless) and point JAVA_HOME or PATH at it"

_INSTALLED = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines", "/opt/java")
_QUARKUS_HEAD = re.compile(r"^.* ERROR \[[\w.]+\] \([^)]*\) ")
_CAUSE = re.compile(rf"Exception: |module not found|^Unrecognized |{_QUARKUS_HEAD.pattern}")
# A program of Quarkus throws this if it ends before it has started, whatever the cause.
_CONSEQUENCE = "No CDI container is available"


class JavaError(KeyedwmError):
    """Java is missing or has a version that Spark does not run on."""

    advice = "install Java 17, 21 or 25"


def find_java() -> Path:
    """Return the `java` program to use; raises JavaError if there is none of a supported version."""
    home = os.environ.get("JAVA_HOME")
    program = Path(home) / "bin" / "java" if home else shutil.which("java")
    if program is None:
        raise JavaError(f"found no java on PATH and JAVA_HOME is not set: {_INSTALL}")
    java = Path(program)
    if not os.access(java, os.X_OK):
        raise JavaError(f"JAVA_HOME={home} holds no bin/java: {_INSTALL}")
    version = java_version(java)
    if version not in VERSIONS:
        raise JavaError(f"found Java {version or 'of an unknown version'} at {java}: {_INSTALL}")
    return java


def find_newer_java(least: int, who: str, folders: Sequence[str] = _INSTALLED) -> Path:
    """Return a `java` program of version `least` or newer: that of JAVA_HOME or PATH, else one in `folders`.

    who: the program that needs Java, for the JavaError if there is none. folders: each has a directory per Java.
    """
    home = os.environ.get("JAVA_HOME")
    places = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    places += [Path(on_path)] if on_path else []
    places += sorted(path for root in folders for path in Path(root).glob("*/bin/java"))
    for java in places:
        if os.access(java, os.X_OK) and (java_version(java) or 0) >= least:
            return java
    raise JavaError(
        f"found no Java of version {least} or newer in JAVA_HOME, on PATH or in {', '.join(folders)}, "
        f"which {who} needs: install one (for example openjdk-{least}-jre-headless, or Temurin); another one may stay"
    )


def java_version(java: Path) -> int | None:
    """Return the feature version that a program reports (8 for `1.8.0_372`), None if it reports none."""
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


def complaint(output: str) -> str:
    """Return the cause of a Java program's failure: its first exception or error of Quarkus, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.search(line) and _CONSEQUENCE not in line]
    return _QUARKUS_HEAD.sub("", (causes or lines[-1:] or ["it said nothing"])[0])


def main() -> int:
    """Return exit code 0; or print the error and return 1."""
    try:
        find_java()
    except JavaError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
