"""`make release-check`: what a release would be, built and looked at; ends with 1 if something is wrong with it.

Run: python -m tests.packaging.release [CHECK ...]   (all, unless some are named; `built` makes the files of the others)

Rule: a check that could not be made is said, and fails nothing; the next one is made all the same. The files are of
the last commit, and lie in build/release/dist.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.packaging import conda
from tests.packaging.installs import PYTHONS, last_line, trials
from tests.packaging.licences import by_licence, not_allowed
from tests.uv import must, uv

ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "release"
DIST = HOME / "dist"
SBOM, SUMS = HOME / "sbom.json", HOME / "SHA256SUMS"
LOCK = ROOT / "requirements.lock"
IMPORTED = ("keyedwm", "keyedwm.spark", "keyedwm.plugin")
ROUNDS = 3
EXTRAS = "iceberg,otel,plot,prometheus"  # kerberos is compiled against a library of the machine


@dataclass(frozen=True, slots=True)
class Found:
    """What a check says, in lines; passed: None if it could not be made."""

    passed: bool | None
    lines: tuple[str, ...]


def called(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in the repository; what it prints is kept."""
    return subprocess.run(list(map(str, command)), cwd=ROOT, text=True, capture_output=True, check=False)


def tool(name: str) -> Path:
    """A tool of the release's own environment."""
    return HOME / "bin" / name


def said(done: subprocess.CompletedProcess[str]) -> Found:
    """What a command says by its exit code, with its last lines if it failed."""
    if done.returncode == 0:
        return Found(passed=True, lines=())
    return Found(passed=False, lines=tuple((done.stdout + done.stderr).strip().splitlines()[-20:]))


def build() -> Found:
    """Wheel and sdist of the last commit, twice, in two places; their bytes must be equal."""
    shutil.rmtree(DIST, ignore_errors=True)
    commit, moment = must("git", "log", "-1", "--format=%h %ct").split()
    with tempfile.TemporaryDirectory() as home:
        found = said(built(Path(home), moment, DIST))
        again = Path(home) / "again"
        found = said(built(Path(home) / "deeper" / "tree", moment, again)) if found.passed else found
        digests = [{path.name: digest(path) for path in sorted(place.glob("*"))} for place in (DIST, again)]
    if found.passed is False:
        return found
    lines = [
        f"{path.name}: {path.stat().st_size / 1000:,.0f} kB, sha256 {digest(path)}" for path in sorted(DIST.glob("*"))
    ]
    if called("git", "status", "--porcelain", "--untracked-files=no").stdout:
        lines.append("changes that are not committed are not in it")
    SUMS.write_text("".join(f"{hexadecimal}  {name}\n" for name, hexadecimal in digests[0].items()))
    is_same = digests[0] == digests[1]
    lines.append(f"commit {commit}: two builds have {'equal' if is_same else 'DIFFERENT'} bytes")
    return Found(passed=is_same and len(digests[0]) == 2, lines=tuple(lines))


def built(tree: Path, moment: str, dist: Path) -> subprocess.CompletedProcess[str]:
    """Build from a clean tree of the last commit, whose files have this time (seconds)."""
    tree.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile() as archive:
        subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=archive, check=True)
        archive.seek(0)
        with tarfile.open(fileobj=archive) as files:
            files.extractall(tree, filter="data")
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(dist)], cwd=tree,
        env={**os.environ, "SOURCE_DATE_EPOCH": moment}, text=True, capture_output=True, check=False,
    )  # fmt: skip


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def metadata() -> Found:
    """As the package index would take it."""
    return said(called(tool("twine"), "check", "--strict", *sorted(DIST.glob("*"))))


def contents() -> Found:
    """What a wheel holds by mistake: tests, byte code, modules that nobody meant."""
    return said(called(tool("check-wheel-contents"), *DIST.glob("*.whl")))


def vulnerabilities() -> Found:
    """Known ones of everything that requirements.lock pins."""
    done = called(tool("pip-audit"), "--requirement", LOCK, "--require-hashes", "--disable-pip", "--format", "json")
    return audited(done.stdout, done.stderr)


def audited(stdout: str, stderr: str) -> Found:
    """What pip-audit found. Without an answer of the index nothing was audited, which is no fault of the release."""
    try:
        dependencies = json.loads(stdout)["dependencies"]
    except (ValueError, KeyError):
        last = next(reversed(stderr.strip().splitlines()), "it said nothing")
        return Found(
            passed=None, lines=(f"not audited, since pip-audit got no answer of the package index: {last[:200]}",)
        )
    known = [
        f"{one['name']} {one['version']}: {fault['id']}, fixed in {', '.join(fault['fix_versions']) or 'none yet'}"
        for one in dependencies
        for fault in one.get("vulns", ())
    ]
    return Found(passed=not known, lines=(*known, f"{len(dependencies)} packages"))


def licences() -> Found:
    """The bill of materials of the wheel with its extras, and whether each licence of it is allowed."""
    python = HOME / "user" / "bin" / "python"
    (wheel,) = DIST.glob("*.whl")
    must(uv(), "venv", "--quiet", "--clear", "--python", sys.executable, HOME / "user")
    pins = HOME / "pins.txt"
    pins.write_text("".join(f"{line[:-2]}\n" for line in LOCK.read_text().splitlines() if line[:1].isalnum()))
    must(uv(), "pip", "install", "--quiet", "--python", python, "-c", pins, f"{wheel}[{EXTRAS}]")
    project = HOME / "pyproject.toml"  # cyclonedx-py takes the version from it, and no dynamic one
    version = f'version = "{wheel.name.split("-")[1]}"'
    project.write_text((ROOT / "pyproject.toml").read_text().replace('dynamic = ["version"]', version))
    told = said(
        called(
            tool("cyclonedx-py"), "environment", python, "--pyproject", project, "--mc-type", "library",
            "--output-reproducible", "--output-format", "JSON", "-o", SBOM,
        )
    )  # fmt: skip
    if told.passed is False:
        return told
    bill = json.loads(SBOM.read_text())
    components = [one for one in bill["components"] if one["name"] != "keyedwm"]
    wrong = not_allowed(components)
    wrong += [] if "version" in bill["metadata"]["component"] else [f"{SBOM} has no version of keyedwm"]
    lines = (*wrong, *by_licence(components), f"{len(components)} packages, the CycloneDX file: {SBOM}")
    return Found(passed=not wrong, lines=lines)


def installs() -> Found:
    """Wheel and sdist in empty environments."""
    pythons = os.environ.get("PYTHONS", "").split() or PYTHONS
    results = []
    for passed, line in trials(sorted(DIST.glob("*"), reverse=True), pythons):
        print(line, file=sys.stderr, flush=True)  # some minutes each
        results.append((passed, line))
    return Found(passed=all(passed is not False for passed, _ in results), lines=tuple(line for _, line in results))


def recipe() -> Found:
    """The recipe of conda-forge: by rattler-build, and its own commands in an environment of pip."""
    with tempfile.TemporaryDirectory(prefix="keyedwm-conda-") as home:
        done = called(tool("python"), Path(__file__).with_name("rattler.py"), conda.RECIPE, home)
    lines = [last_line(done)]
    faults = conda.faults()
    lines += faults or ["its build command and its tests succeed in an environment of pip"]
    is_wrong = bool(faults) or done.returncode not in {0, conda.NO_CHANNEL}
    return Found(passed=False if is_wrong else True if done.returncode == 0 else None, lines=tuple(lines))


def import_times() -> Found:
    """CPU seconds of Python processes that import a module and end; the least of some."""
    empty_s = least_s("pass")
    lines = [f"import {module}: {least_s(f'import {module}') - empty_s:.2f} CPU s" for module in IMPORTED]
    return Found(passed=True, lines=tuple(lines))


def least_s(code: str) -> float:
    """User and system seconds of a process that runs this code."""
    took = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(took)


CHECKS: Mapping[str, Callable[[], Found]] = {
    "built": build,
    "metadata": metadata,
    "contents": contents,
    "vulnerabilities": vulnerabilities,
    "licences": licences,
    "installs": installs,
    "recipe": recipe,
    "times": import_times,
}
WORDS = {True: "ok", False: "WRONG", None: "not checked"}


def main() -> int:
    """Make the checks and tell of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"of {', '.join(CHECKS)}")
    chosen = parser.parse_args().checks or list(CHECKS)
    if unknown := sorted(set(chosen) - set(CHECKS)):
        parser.error(f"{', '.join(unknown)}: no such check; there are {', '.join(CHECKS)}")
    wrong = 0
    for name in chosen:
        found = CHECKS[name]()
        wrong += found.passed is False
        print(f"{name}: {WORDS[found.passed]}", flush=True)
        for line in found.lines:
            print(f"    {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
