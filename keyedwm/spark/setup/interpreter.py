"""The Python that Spark starts: the one that runs this session, if it is not too late to set.

Rule: Spark reads two environment variables when its JVM starts. It looks `format("keyedwm")` up with
PYSPARK_DRIVER_PYTHON (else PYSPARK_PYTHON, else `python3`) and runs its workers with PYSPARK_PYTHON (else `python3`).
Any other Python does not have this package, and Spark then says DATA_SOURCE_NOT_FOUND. So the import of `keyedwm.spark`
sets what is unset, PYSPARK_DRIVER_PYTHON only where PYSPARK_PYTHON is not this very environment: workers read a source
by the path that looked it up. If the JVM runs already, a variable names another Python, or PYSPARK_PYTHON leads
nowhere on this host, the import warns in one sentence.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

WORKERS = "PYSPARK_PYTHON"
LOOKUP = "PYSPARK_DRIVER_PYTHON"
_DEFAULT = "python3"  # what Spark runs where neither variable is set
_GATEWAY = "PYSPARK_GATEWAY_PORT"  # spark-submit and the pyspark shell hand it to the Python that they start
_ANSWER_LIMIT_S = 20
_WHO = (
    "import importlib.util, os, sys; own = importlib.util.find_spec('keyedwm'); "
    "print(os.path.realpath(sys.prefix), own and own.origin, sep='\\n')"
)


def use_this_python() -> None:
    """Set the two variables where they are unset and still count; warn where Spark will start another Python."""
    if _is_spark_worker():
        return
    running = _variables_of_jvm()
    if running is None:
        # Workers read a source by the path that looked it up, so one that is right here and there must be the only one.
        if not (WORKERS in os.environ and _same(os.environ[WORKERS])):
            os.environ.setdefault(LOOKUP, sys.executable)
        os.environ.setdefault(WORKERS, sys.executable)
    sentence = complaint(running or os.environ.get, too_late=running is not None)
    if sentence:
        warnings.warn(sentence, RuntimeWarning, stacklevel=3)


def complaint(variable: Callable[[str], str | None], *, too_late: bool) -> str | None:
    """Say in one sentence that Spark starts another Python than this one; None if it does not."""
    workers = variable(WORKERS) or _DEFAULT
    lookup = variable(LOOKUP) or workers
    if not _same(lookup):
        problem = f"Spark looks data sources up with {_described(lookup)}"
    elif shutil.which(workers) is None and variable(WORKERS):
        # It may be right on workers, for functions; what reads and writes there runs by the path that looked it up.
        return (
            f"{WORKERS} names {_described(workers)}, so Spark looks data sources up with {lookup!r} and workers read "
            f"and write by that path of the driver: let {WORKERS} lead to {sys.prefix} from here, too, by a link"
        )
    elif not _same(workers):
        problem = f"Spark runs its workers with {_described(workers)}"
    else:
        return None
    fix = f"set {WORKERS} and {LOOKUP} to {sys.executable} before Spark starts"
    if lookup == workers and not Path(workers).is_absolute() and shutil.which(workers) is None:
        fix = f"let {WORKERS} lead to {sys.prefix} from here, too, by a link, before Spark starts"
    elif too_late and not variable(WORKERS) and not os.environ.get(_GATEWAY):
        fix += ", or import keyedwm.spark before the session is created"
    return f'{problem}, so format("keyedwm") will not work: {fix}'


def _described(python: str) -> str:
    """Say what is wrong with a Python that is not this session's."""
    if shutil.which(python) is None:
        where = "" if Path(python).is_absolute() else f" (its working directory is {Path.cwd()})"
        return f"{python!r}, which is no program on this host{where}"
    return f"{python!r}, another Python than this session's"


def _is_spark_worker() -> bool:
    """Whether Spark started this process: it imports keyedwm.spark to run an operator, not to start a session."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and (spec.name.startswith("pyspark.") or spec.name == "keyedwm.daemon")


def _variables_of_jvm() -> Callable[[str], str | None] | None:
    """Return how to ask the running JVM for a variable, None if no JVM runs yet."""
    context = sys.modules.get("pyspark.core.context")
    gateway = context and context.SparkContext._gateway  # noqa: SLF001 - PySpark has no public name for it
    if gateway is not None:
        return gateway.jvm.System.getenv
    # Started by the JVM and not connected to it yet: this process inherited the JVM's variables.
    return os.environ.get if _GATEWAY in os.environ else None


def _same(python: str) -> bool:
    """Whether this program is a Python of this very environment, with this very package."""
    path = shutil.which(python)
    if path is None:
        return False
    if Path(path).absolute() == Path(sys.executable):
        return True
    try:
        child = subprocess.run(
            [path, "-c", _WHO], capture_output=True, text=True, check=False, timeout=_ANSWER_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    own = importlib.util.find_spec("keyedwm")
    return child.returncode == 0 and child.stdout.split("\n")[:2] == [
        os.path.realpath(sys.prefix),
        str(own and own.origin),
    ]
