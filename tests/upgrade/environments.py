"""The versions that are upgraded, each as a wheel built from its commit, in an environment of its own.

Rule: an environment has the packages that the version's own requirements.lock pins. It stays in build/upgrade.
"""

from __future__ import annotations

import re
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.uv import ROOT, must, uv

HOME = ROOT / "build" / "upgrade"
# No commit has 0.2.0: the history goes from 0.1.0 to 0.3.0 in one step. Its fixtures are in tests/compat.
COMMITS = {"0.3.0": "94cc0c7066", "0.4.0": "e0d6335950"}
_CHECK = "import keyedwm; print(keyedwm.__version__, keyedwm.__file__)"


def python_of(version: str) -> Path:
    """The interpreter of the environment in which this version is installed; built and warmed at the first call."""
    home = HOME / version
    python = home / "bin" / "python"
    if not (home / ".installed").exists():
        with tempfile.TemporaryDirectory() as sources:
            wheel = _wheel(version, Path(sources))
            _install(wheel, Path(sources) / "requirements.lock", home)
        must(home / "bin" / "keyedwm", "warm", cwd=home)  # else each of the hundred Python processes compiles
        (home / ".installed").touch()
    name, file = must(python, "-c", _CHECK, cwd=home).split()
    if name != version or not Path(file).is_relative_to(home):
        raise SystemExit(f"{python} imports keyedwm {name} of {file}, not {version} of its own environment")
    return python


def _wheel(version: str, sources: Path) -> Path:
    """The wheel of a version's commit. sources: an empty directory, which gets the commit's files."""
    archive = sources / "archive.tar"
    must("git", "archive", "--output", archive, COMMITS[version])
    with tarfile.open(archive) as files:
        files.extractall(sources, filter="data")
    archive.unlink()
    must(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", sources / "wheels", cwd=sources)
    (wheel,) = (sources / "wheels").glob(f"keyedwm-{version}-*.whl")
    return wheel


def _install(wheel: Path, lock: Path, home: Path) -> None:
    """Install a wheel with what its lock pins."""
    pins = re.findall(r"^[A-Za-z0-9].*?(?= \\$|$)", lock.read_text(), re.MULTILINE)
    constraints = lock.with_name("constraints.txt")
    constraints.write_text("\n".join(pins) + "\n")
    must(uv(), "venv", "--quiet", "--clear", "--python", sys.executable, home)
    python = home / "bin" / "python"
    must(uv(), "pip", "install", "--quiet", "--python", python, "-c", constraints, f"{wheel}[iceberg]")
