"""Parts that several trials of platforms share: downloads that outlive a run, and their absence."""

import subprocess
import sys
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
    folder = CACHE / name
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_pom(name, coordinates))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        line = next((x for x in result.stdout.splitlines() if x.startswith("[ERROR]")), "no output")
        raise NotServedError(f"Maven could not resolve {', '.join(coordinates)}: {line}")
    (folder / "complete").touch()
    return folder


def pip_folder(name: str, requirements: list[str]) -> Path:
    """Return a folder of `CACHE` with Python packages that this environment does not have.

    Args:
        name: The folder's name; a folder that is complete is used again.
        requirements: `name==version --hash=sha256:...` each.

    Raises:
        NotServedError: pip could not install them.
    """
    folder = CACHE / f"python-{name}"
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "requirements.txt").write_text("\n".join(requirements))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--target", folder]
    result = subprocess.run([*command, "-r", folder / "requirements.txt"], capture_output=True, text=True, check=False)
    if result.returncode:
        line = next((x for x in result.stderr.splitlines() if x.startswith("ERROR")), "no output")
        raise NotServedError(f"pip could not install {', '.join(requirements)}: {line}")
    (folder / "complete").touch()
    return folder


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
