"""Parts that several trials of platforms share: downloads that outlive a run, and their absence."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / "build" / "platforms"


class NotServedError(Exception):
    """A part of a trial cannot be had here; the message names the part and its version."""


def maven_folder(name: str, coordinates: list[str]) -> Path:
    """Return a folder of `CACHE` with the jars of `coordinates` and of what they depend on.

    Args:
        name: The folder's name; a folder that is complete is used again.
        coordinates: `group:artifact:version` each.

    Raises:
        NotServedError: Maven could not resolve them.
    """

    def fill(folder: Path) -> None:
        (folder / "pom.xml").write_text(_pom(name, coordinates))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        check_download(result, result.stdout, "[ERROR]", f"Maven could not resolve {', '.join(coordinates)}")

    return complete_folder(name, fill)


def pip_folder(name: str, requirements: list[str]) -> Path:
    """Return a folder of `CACHE` with Python packages that this environment does not have.

    Args:
        name: The folder's name; a folder that is complete is used again.
        requirements: `name==version --hash=sha256:...` each.

    Raises:
        NotServedError: pip could not install them.
    """

    def fill(folder: Path) -> None:
        (folder / "requirements.txt").write_text("\n".join(requirements))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--target", str(folder), "-r", str(folder / "requirements.txt")]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        check_download(result, result.stderr, "ERROR", f"pip could not install {', '.join(requirements)}")

    return complete_folder(f"python-{name}", fill)


def complete_folder(name: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder of `CACHE` that `fill` has filled, now or in an earlier run."""
    folder = CACHE / name
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        fill(folder)
        (folder / "complete").touch()
    return folder


def check_download(result: subprocess.CompletedProcess[str], output: str, mark: str, problem: str) -> None:
    """Raise NotServedError with the first text behind `mark` in a failed command's output."""
    if result.returncode:
        reasons = (line.partition(mark)[2].strip(" :") for line in output.splitlines())
        raise NotServedError(f"{problem}: {next(filter(None, reasons), 'no reason')}")


def _pom(name: str, coordinates: list[str]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in (each.split(":") for each in coordinates)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>platforms</groupId>"
        f"<artifactId>{name}</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
