"""The CDS archive of the driver's JVM, written by a session that runs a query's first batches and ends.

Rule: the archive appears under its name when it is complete and on the disk. A session that starts meanwhile runs
without it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from keyedwm.core.text import words_of
from keyedwm.runtime import private_dirs
from keyedwm.spark.setup.cds_archive import (
    archive_name,
    complete_archive,
    configuration,
    file_name,
    has_files,
    java_program,
    other_archives,
    own_options,
    spark_home,
    usable_places,
)
from keyedwm.testing.guard import Guard
from keyedwm.testing.java import JavaError, complaint, find_java

_LIMIT_S = 1_200
_NEW = "new-"
# Each of them changes the class path, names an archive of its own, or starts another Spark.
_UNSET = ("SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
# Before the JVM's last line, which is the same for all reasons.
_JAVAS_REASON = re.compile(
    r"(?:An error has occurred while processing the shared archive file\.|Error occurred during initialization of VM)"
    r"\n(.*)|\[error\].*?\] (.*)"
)


@dataclass(frozen=True)
class Outcome:
    """What `write_archive` has done. failed: the archive should be there and is not."""

    text: str
    failed: bool = False


def write_archive() -> Outcome:
    """Write the archive for sessions of this environment, unless there is one or cannot be one."""
    if (reason := _obstacle()) is not None:
        return Outcome(f"none, {reason}")
    place = next((one for one in usable_places(os.environ) if private_dirs.unsafe(one) is None), None)
    name = archive_name(os.environ)
    if place is None or name is None:
        return Outcome(
            "none, no private directory without a colon is writable: set XDG_CACHE_HOME to one with mode 0700"
        )
    _remove_leftovers(place)
    if (present := complete_archive(place, name)) is not None:
        return Outcome(f"was in {present}")
    print("CDS archive of the driver's JVM: running a first query (half a minute; minutes on a busy host)", flush=True)
    with TemporaryDirectory(prefix=_NEW, dir=place) as directory:
        new, class_path = Path(directory, "classes.jsa"), Path(directory, "class_path")
        if (problem := _run_session(new, class_path) or _check(new, class_path)) is not None:
            return Outcome(problem, failed=True)
        size = new.stat().st_size
        file = place / file_name(name, size)
        try:
            with new.open("rb") as data:
                os.fsync(data.fileno())
            new.replace(file)
        except OSError as error:
            return Outcome(f"{file} cannot be written: {words_of(error)}", failed=True)
    for other in other_archives(file):
        other.unlink(missing_ok=True)  # a JVM that uses it keeps it until it ends
    return Outcome(f"{size / 1e6:.0f} MB in {file}")


def _remove_leftovers(place: Path) -> None:
    """Remove the directories of commands that were killed together with their guard."""
    for directory in place.glob(f"{_NEW}*"):
        with suppress(FileNotFoundError):  # another command has removed it
            if time.time() - directory.stat().st_mtime > 2 * _LIMIT_S:
                shutil.rmtree(directory, ignore_errors=True)


def _obstacle() -> str | None:
    """Return why sessions of this environment can have no archive; None if they can."""
    try:
        find_java()
    except JavaError as error:
        return error.message
    if not (spark_home(os.environ) / "jars").is_dir():
        return f"{spark_home(os.environ)} has no jars: the JVM runs elsewhere"
    if archive_name(os.environ) is None:
        return f"{java_program(os.environ)} is a script: set JAVA_HOME to the Java that it starts"
    if (option := own_options(os.environ)) is not None:
        return f"{option} is set, and a JVM uses one archive: remove this option to have keyedwm's"
    place = configuration(os.environ)
    if has_files(place):
        return f"{place} has files, and Java archives no classes then: move the settings into the session's builder"
    return None


def _run_session(archive: Path, class_path: Path) -> str | None:
    """Run the session, wait until its JVM has ended, which writes the archive; return what went wrong, else None."""
    environment = {name: value for name, value in os.environ.items() if name not in _UNSET}
    command = [sys.executable, "-W", "ignore", "-m", "keyedwm.cli.warm.first_query", str(archive), str(class_path)]
    session = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    # If this command is killed, the guard ends the session and its JVM.
    with session as process, Guard("process", str(process.pid), str(archive.parent)):
        try:
            # The JVM holds the output open, so this waits for it, too.
            output, _ = process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"the session has not ended after {_LIMIT_S} seconds"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        return f"the first query failed: {_reason(output)}"
    return None if archive.is_file() else f"Java wrote no file: {_reason(output)}"


def _check(archive: Path, class_path: Path) -> str | None:
    """Let a JVM of this class path read and sum the whole archive; return its complaint, None if it has none."""
    command = [str(find_java()), "-Xshare:on", "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={archive}"]
    process = subprocess.run(
        [*command, "-cp", class_path.read_text(), "-version"], cwd=archive.parent, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", check=False, timeout=_LIMIT_S,
    )  # fmt: skip
    if process.returncode == 0:
        return None
    return f"Java rejects the archive that it wrote (exit code {process.returncode}): {_reason(process.stdout)}"


def _reason(output: str) -> str:
    """Return Java's reason for an archive that it neither wrote nor read; else the complaint of a program."""
    match = _JAVAS_REASON.search(output)
    return match[match.lastindex or 0].strip() if match else complaint(output)
