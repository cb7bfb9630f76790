"""The CDS archive of the driver's JVM: its file, and the setting of Spark that names it.

Rule: a JVM maps the classes of a class data sharing (CDS) archive into memory (JEP 350); without one it reads, checks
and links each class of Spark's jars. `keyedwm warm` writes the archive, and `session_conf` names it if it is there. The
file's name is a digest of what the classes depend on. A JVM rejects an archive of another Java or class path, and
starts without it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from keyedwm.runtime import private_dirs

# Spark keeps `extraJavaOptions` for the user, and starts the JVM with both.
SETTING = "spark.driver.defaultJavaOptions"
PURPOSE = "classes"  # of the private directory
# A JVM that rejects an archive is silent, also about a Java agent and a longer class path.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_DIGITS = 12
# A JVM does not start with an archive of ours and most of a user's own options for archives (JEP 350, JEP 483).
_OWN_OPTIONS = re.compile(
    r"-Xshare\S*|-XX:\+?(?:SharedArchiveFile|ArchiveClassesAtExit|AutoCreateSharedArchive|AOT)\S*"
)
_JAVAS_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


def archive_setting(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the setting that names the archive for a session of these variables; empty if there is no such archive."""
    variables = os.environ if variables is None else variables
    with suppress(OSError):  # a directory that this user cannot read: the session starts without an archive
        return _setting(variables)
    return {}


def _setting(variables: Mapping[str, str]) -> dict[str, str]:
    name = archive_name(variables)
    # Java would reject the archive, and the setting would replace the one of spark-defaults.conf.
    if name is None or own_options(variables) or has_files(configuration(variables)):
        return {}
    for place in usable_places(variables):
        file = complete_archive(place, name)
        # The file is code, so it is used only from a directory of this user alone.
        if file is not None and private_dirs.unsafe(place) is None:
            return {SETTING: f"{_SILENT} -XX:SharedArchiveFile={quoted(file)}"}
    return {}


def archive_name(variables: Mapping[str, str]) -> str | None:
    """Return the first part of the file's name, `spark-PLACE-CONTENT`; None without Java, or without jars of Spark.

    None also for a Java that is a script: which Java it starts is not known. PLACE stands for the paths of Java, Spark
    and its configuration, CONTENT for the versions found there.
    """
    java, jars = java_program(variables), spark_home(variables) / "jars"
    if java is None or not jars.is_dir():
        return None
    program = java.resolve()
    runtime = program.parent.parent / "lib" / "modules"
    if not runtime.is_file():
        return None
    place = (str(program), str(jars), str(configuration(variables)))
    content = tuple(_stamp(file) for file in (runtime, *sorted(jars.iterdir())))
    return f"spark-{_digest(place)}-{_digest(content)}"


def complete_archive(place: Path, name: str) -> Path | None:
    """Return the archive NAME-SIZE.jsa of this size in a directory: Java 17 crashes with a file that was cut."""
    try:
        files = sorted(place.glob(f"{name}-*.jsa"))
    except PermissionError:  # the cache of another user, as after `su`
        return None
    return next((file for file in files if file.name == file_name(name, _stamp(file)[1])), None)


def file_name(name: str, size: int) -> str:
    """Return the name of an archive's file. size: in bytes."""
    return f"{name}-{size}.jsa"


def other_archives(file: Path) -> list[Path]:
    """Return the archives of the same paths with other versions, or older ones: nothing uses them any more.

    Another command may have written a newer one of this version meanwhile.
    """
    _, place, content, _ = file.name.split("-")
    written_ns = _stamp(file)[2]
    others = (one for one in sorted(file.parent.glob(f"spark-{place}-*.jsa")) if one != file)
    return [one for one in others if one.name.split("-")[2] != content or _stamp(one)[2] < written_ns]


def usable_places(variables: Mapping[str, str]) -> list[Path]:
    """Return the directories for archives; Java takes a path with a colon for two archives."""
    places = private_dirs.places(variables, PURPOSE)
    return [place for place in places if os.pathsep not in str(place) and str(place).isprintable()]


def own_options(variables: Mapping[str, str]) -> str | None:
    """Return a variable and the option for archives that Java reads from it, `NAME=OPTION`; None without such one."""
    for name in _JAVAS_VARIABLES:
        if match := _OWN_OPTIONS.search(variables.get(name, "")):
            return f"{name}={match[0]}"
    return None


def java_program(variables: Mapping[str, str]) -> Path | None:
    """Return the program that Spark starts its JVM with; its version is not checked."""
    home = variables.get("JAVA_HOME")
    program = shutil.which(str(Path(home, "bin", "java")) if home else "java", path=variables.get("PATH"))
    return None if program is None else Path(program)


def spark_home(variables: Mapping[str, str]) -> Path:
    """Return the directory of Spark: SPARK_HOME, else PySpark's own."""
    if home := variables.get("SPARK_HOME"):
        return Path(home)
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()


def configuration(variables: Mapping[str, str]) -> Path:
    """Return the directory that Spark puts first on the JVM's class path. Java archives no classes if it has files."""
    return Path(variables.get("SPARK_CONF_DIR") or spark_home(variables) / "conf")


def has_files(directory: Path) -> bool:
    """Return whether there is a directory that is not empty."""
    return directory.is_dir() and any(directory.iterdir())


def quoted(path: Path) -> str:
    """Return a path as Spark's launcher reads it from a list of options."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _stamp(file: Path) -> tuple[str, int, int]:
    """Return what a JVM compares of a file: name, size, time of change; 0 if there is no such file (any more)."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return file.name, 0, 0
    return file.name, status.st_size, status.st_mtime_ns


def _digest(value: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:_DIGITS]
