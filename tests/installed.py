"""The wheel of this checkout in an environment of its own, as a user has it: no checkout on the path."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATIENCE_S = 600


def built_wheel(home: Path) -> Path:
    """Build the wheel by the tools that requirements.lock pins."""
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home))
    (wheel,) = home.glob("*.whl")
    return wheel


def environment_of(wheel: Path, home: Path) -> Path:
    """Install the wheel without dependencies, which the environment of the tests lends; returns the Python."""
    venv.create(home, with_pip=False, symlinks=True)
    _run(
        sys.executable, "-m", "pip", "--python", str(home), "install", "--no-deps", "--no-index", "--quiet", str(wheel)
    )
    # Read as a plain directory: its own `.pth` files, an editable keyedwm among them, do not count.
    (libraries_of(home) / "a_lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "python"


def libraries_of(home: Path) -> Path:
    """Where the packages of an environment are."""
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))


def _run(*command: str) -> None:
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0, ran.stderr
