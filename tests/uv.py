"""uv, the installer that `make lock` uses, for commands that make environments of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOME = ROOT / "build" / "uv"


def uv() -> Path:
    """The program, of the version that the Makefile names; installed at the first call."""
    if not (HOME / "bin" / "uv").exists():
        (package,) = re.findall(r"^UV := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        must(sys.executable, "-m", "venv", HOME)
        must(HOME / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", package)
    return HOME / "bin" / "uv"


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command, by default in the repository; returns what it prints, too."""
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=cwd)


def must(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command; returns its output, or ends the program with its error."""
    done = run(*command, cwd=cwd)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
