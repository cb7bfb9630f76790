"""Run the trials of platforms (`make platforms`): all modules beside this one, or those named.

A module offers `run(folder)`. `run` returns one line that says what the trial proved and with
which versions, raises `NotServedError` for a part that the machine cannot get, and any other exception
for a failure.
"""

import argparse
import importlib
import pkgutil
import sys
import tempfile
import time
import traceback
from enum import Enum
from pathlib import Path

import tests.platforms
from tests.platforms.parts import NotServedError


class Outcome(Enum):
    """How a trial ended."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"


HELPERS = frozenset({"hadoop", "parts", "yarn_job"})  # modules that hold no trial


def names() -> list[str]:
    """Return the names of all trials, sorted."""
    modules = (module.name for module in pkgutil.iter_modules(tests.platforms.__path__))
    return sorted(name for name in modules if not name.startswith("__") and name not in HELPERS)


def run_trial(name: str) -> tuple[Outcome, str]:
    """Run the trial `name` in a folder of its own; return its outcome and one line about it."""
    trial = importlib.import_module(f"tests.platforms.{name}")
    with tempfile.TemporaryDirectory(prefix=f"platform-{name}-", ignore_cleanup_errors=True) as place:
        try:
            return Outcome.PASSED, trial.run(Path(place))
        except NotServedError as error:
            return Outcome.SKIPPED, str(error)
        except Exception as error:  # noqa: BLE001 - one trial's failure must not hide the others
            traceback.print_exc()
            return Outcome.FAILED, f"{type(error).__name__}: {error}".splitlines()[0]


def main() -> int:
    """Run the trials that the arguments name; return 1 if one failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.platforms", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*names(), []], help="trials; default: all")
    trials = parser.parse_args().names or names()
    outcomes = []
    for name in trials:
        start = time.monotonic()
        print(f"{name}: started", flush=True)
        outcome, line = run_trial(name)
        print(f"{name}: {outcome.value} in {time.monotonic() - start:.0f} s: {line}", flush=True)
        outcomes.append(outcome)
    return int(Outcome.FAILED in outcomes)


if __name__ == "__main__":
    sys.exit(main())
