"""`make release-check`: what a release would be, built and looked at; ends with 1 if something is wrong with it.

Rule: a check that could not be made is said, and fails nothing; the next one is made all the same.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "release"
DIST = HOME / "dist"
SBOM = HOME / "sbom.json"
LOCK = ROOT / "requirements.lock"
IMPORTED = ("keyedwm", "keyedwm.spark", "keyedwm.plugin")
ROUNDS = 3


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
    """Wheel and sdist, from this checkout by the tools that requirements.lock pins."""
    shutil.rmtree(DIST, ignore_errors=True)
    found = said(called(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", DIST))
    sizes = tuple(f"{path.name}: {path.stat().st_size / 1000:,.0f} kB" for path in sorted(DIST.glob("*")))
    return found if found.passed is False else Found(passed=len(sizes) == 2, lines=sizes)


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
    """The bill of materials of the environment, and the packages under each licence."""
    found = said(called(tool("cyclonedx-py"), "environment", sys.executable, "--output-format", "JSON", "-o", SBOM))
    if found.passed is False:
        return found
    return Found(passed=True, lines=(*by_licence(json.loads(SBOM.read_text())["components"]), f"all: {SBOM}"))


def by_licence(components: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each licence of a bill of materials, with the packages under it."""
    packages = defaultdict(list)
    for one in components:
        packages[" and ".join(sorted(map(name_of, one.get("licenses", ())))) or "none is said"].append(one["name"])
    return [f"{licence}: {', '.join(sorted(names))}" for licence, names in sorted(packages.items())]


def name_of(licence: Mapping[str, Any]) -> str:
    """The licence's identifier, expression or first line."""
    told = licence.get("license", {})
    return (licence.get("expression") or told.get("id") or told.get("name") or "none is said").splitlines()[0][:60]


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
    "metadata (twine check)": metadata,
    "contents (check-wheel-contents)": contents,
    "vulnerabilities (pip-audit)": vulnerabilities,
    "licences": licences,
    "import times": import_times,
}
WORDS = {True: "ok", False: "WRONG", None: "not checked"}


def main() -> int:
    """Make every check and tell of each."""
    wrong = 0
    for name, check in CHECKS.items():
        found = check()
        wrong += found.passed is False
        print(f"{name}: {WORDS[found.passed]}", flush=True)
        for line in found.lines:
            print(f"    {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
