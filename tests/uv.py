"""uv, the installer that `make lock` uses, for commands that make environments of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
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


def python(release: str) -> Path | None:
    """A Python of this feature release that lies on this machine, None if there is none.

    uv asks the programs on the path. Those of pyenv there run the chosen releases only.
    """
    found = run(uv(), "python", "find", "--system", "--no-python-downloads", release)
    if found.returncode == 0:
        return Path(found.stdout.strip())
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    return next(iter(sorted(pyenv.glob(f"versions/{release}.*/bin/python{release}"))), None)


def run(
    *command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command, by default in the repository and with this environment; returns what it prints, too."""
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=cwd, env=env)


def must(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command; returns its output, or ends the program with its error."""
    done = run(*command, cwd=cwd)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
