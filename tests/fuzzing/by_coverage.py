"""Bytes from outside, made up by coverage: `make fuzz SECONDS=600`.

Each target runs in a process of its own under libFuzzer (through atheris), which changes what it has and keeps what
reaches new code. It starts from the samples of `targets` and from the corpus, and what it kept becomes the new corpus.
Compiled functions (the record decoder, the JSON and time scanners) show it no coverage: there `targets` compares with
a plain reader instead.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzzing import corpus

ROOT = Path(__file__).parents[2]
MEASURED = ["keyedwm", "pyspark_wm_source", "pyspark_wm_sink", "json"]
# numba compiles the functions as they are written, not as they are measured.
COMPILED = [
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for path in (ROOT / "keyedwm").rglob("*.py")
    if "keyedwm.runtime.compiled import" in path.read_text()
]
_LONGEST_BYTES = 4_096
_SLOW_S = 20
_COVERED = re.compile(r"cov: (\d+) ft: (\d+)")
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


def run(target: str, seconds: int) -> tuple[int, int, int, int]:
    """Fuzz one target; gives executions, branches and features reached, and the size of the new corpus."""
    from tests.fuzzing.targets import TARGETS

    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        before, after = home / "before", home / "after"
        before.mkdir()
        after.mkdir()
        for number, data in enumerate([*TARGETS[target][1], *corpus.kept(target)]):
            (before / str(number)).write_bytes(data)
        said = _fuzz(target, home, f"-max_total_time={seconds}", "-print_final_stats=1", str(before))
        _fuzz(target, home, "-merge=1", str(after), str(before))
        corpus.keep(target, [path.read_bytes() for path in after.iterdir()])
        covered, features = [("0", "0"), *_COVERED.findall(said)][-1]
        executed = _EXECUTED.search(said)
        assert executed is not None
        return int(executed[1]), int(covered), int(features), len(list(after.iterdir()))


def _fuzz(target: str, home: Path, *words: str) -> str:
    limits = (f"-max_len={_LONGEST_BYTES}", f"-timeout={_SLOW_S}", f"-artifact_prefix={home}/found-")
    program = home / "fuzz"  # libFuzzer starts itself again by this name when it merges
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m tests.fuzzing.by_coverage --as {program} --target "{target}" "$@"\n'
    )
    program.chmod(0o700)
    done = subprocess.run([program, *limits, *words], capture_output=True, text=True, errors="replace", check=False)
    found = sorted(home.glob("found-*"))
    if done.returncode or found:
        inputs = [path.read_bytes().hex() for path in found]
        raise SystemExit(f"target {target!r} failed on {inputs}:\n{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}")
    return done.stderr


def fuzz(target: str, program: str, words: list[str]) -> None:
    """Be the process of one target; libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=MEASURED, exclude=COMPILED):
        from tests.fuzzing.targets import TARGETS

    act = TARGETS[target][0]
    for data in TARGETS[target][1]:
        act(data)  # compiles, once
    atheris.Setup([program, *words], lambda data: act(bytes(data)))
    atheris.Fuzz()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=int, default=600, help="for all targets together")
    options.add_argument("--target", help="one target alone")
    options.add_argument("--as", dest="program", help=argparse.SUPPRESS)
    given, rest = options.parse_known_args()
    if given.program:
        fuzz(given.target, given.program, rest)
    from tests.fuzzing.targets import TARGETS

    names = [given.target] if given.target else list(TARGETS)
    for name in names:
        executed, covered, features, size = run(name, max(given.seconds // len(names), 1))
        print(f"{name}: {executed} executions, {covered} branches, {features} features, {size} inputs kept, no finding")


if __name__ == "__main__":
    main()
