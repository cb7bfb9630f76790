"""HDFS and YARN on this machine, from Hadoop's own jars, and Hadoop's native library, which no registry has in binary.

Rule: one process holds all daemons; it ends with its standard input, so with the process that started it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from keyedwm.testing.java import find_java
from tests.platforms.parts import CACHE, NotServedError, maven_folder
from tests.support.standalone import spark_home

VERSION = "3.5.0"  # of the Hadoop that PySpark 4.3.0 has
# The last three are what the tests of Hadoop have beside the minicluster.
JARS = [
    f"org.apache.hadoop:hadoop-client-minicluster:{VERSION}",
    "org.junit.jupiter:junit-jupiter-api:5.13.4",
    "org.bouncycastle:bcprov-jdk18on:1.82",
    "org.bouncycastle:bcpkix-jdk18on:1.82",
]
# The C sources of libhdfs, in a crate of others; its build links to the JVM.
CRATE, CRATE_VERSION = "hdfs-sys", "0.3.1"
SOURCES = "libhdfs/hdfs_3_3"
SETTINGS = {
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "2048",  # for two containers: three need both
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    # A lost NodeManager is reported after ten minutes otherwise.
    "yarn.nm.liveness-monitor.expiry-interval-ms": "10000",
}
START_LIMIT_S, END_LIMIT_S = 600.0, 60.0
LOOK_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container of YARN. folder: its logs. attempt: of the application, from 1. number: 1 is the master's."""

    folder: Path
    application: str
    node: int
    attempt: int
    number: int

    @classmethod
    def of(cls, folder: Path) -> Container:
        """Read the numbers in the folder's path."""
        *_, attempt, number = folder.name.split("_")
        node = folder.parents[1].name.rpartition("-")[2].partition("_")[0]
        application = folder.parent.name
        return cls(folder=folder, application=application, node=int(node), attempt=int(attempt), number=int(number))

    @property
    def is_master(self) -> bool:
        """Whether the container runs the application master, in cluster mode with the driver."""
        return self.number == 1

    @property
    def log(self) -> str:
        """Everything that the container's processes wrote."""
        return "".join(file.read_text(errors="replace") for file in sorted(self.folder.glob("std*")))


class Hadoop:
    """A running HDFS and YARN. `conf` is the value of HADOOP_CONF_DIR, `hdfs` the address of the NameNode."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder, self.conf = folder, folder / "conf"
        folder.mkdir(parents=True)
        spark = spark_home() / "jars"
        logging = [*spark.glob("*log4j*.jar"), *spark.glob("slf4j-api*.jar")]
        jars = maven_folder("hadoop", JARS)
        classes = CACHE / "hadoop" / "classes"
        path = ":".join([str(classes), *map(str, logging), f"{jars}/*"])
        source = Path(__file__).with_name("MiniCluster.java")
        java = Path(find_java())
        subprocess.run([java.with_name("javac"), "-cp", path, "-d", classes, source], check=True)
        settings = [f"{name}={value}" for name, value in SETTINGS.items()]
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [java, "-Xmx768m", "-XX:TieredStopAtLevel=1", "-cp", path, "MiniCluster", folder, str(nodes), *settings],
            cwd=folder, env=os.environ | {"JAVA_HOME": str(java_home())}, stdin=subprocess.PIPE, stdout=self._log,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    @property
    def log(self) -> str:
        """Everything that the daemons logged."""
        return (self.folder / "log").read_text(errors="replace")

    @property
    def hdfs(self) -> str:
        """The address of the file system, without a slash at its end."""
        return next(line for line in self.log.splitlines() if line.startswith("hdfs://"))

    def library_variables(self, native: Path) -> dict[str, str]:
        """Return the variables of a process that reaches HDFS by libhdfs in the folder `native`."""
        return {
            "JAVA_HOME": str(java_home()),
            "ARROW_LIBHDFS_DIR": str(native),
            "CLASSPATH": f"{self.conf}:{spark_home()}/jars/*",
        }

    def containers(self) -> list[Container]:
        """Return the containers of the application that was submitted last, in the order of their numbers."""
        folders = self.folder.glob("data/*/*/*-logDir-nm-*/application_*/container_*")
        all_of = [Container.of(folder) for folder in folders]
        newest = max((one.application for one in all_of), default="")
        return sorted((one for one in all_of if one.application == newest), key=lambda one: one.folder.name)

    def stop_node(self, number: int) -> None:
        """Stop a NodeManager and its containers."""
        assert self._process.stdin
        self._process.stdin.write(f"stop {number}\n")
        self._process.stdin.flush()
        self.wait_for("stopped")

    def wait_for(self, line: str) -> None:
        """Return when the process has written this line."""
        limit = time.monotonic() + START_LIMIT_S
        while line not in self.log.splitlines():
            assert self._process.poll() is None, f"Hadoop ended by itself: {self.log[-2_000:]}"
            assert time.monotonic() < limit, f"Hadoop did not write {line!r} in {START_LIMIT_S:g} s"
            time.sleep(LOOK_S)

    def end(self) -> None:
        """End all daemons and containers, which only a NodeManager that ends by itself ends."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


@contextmanager
def hadoop(folder: Path, nodes: int) -> Iterator[Hadoop]:
    """Run HDFS and YARN with so many NodeManagers for the time of the `with`."""
    running = Hadoop(folder, nodes)
    try:
        running.wait_for("ready")
        yield running
    finally:
        running.end()


def java_home() -> Path:
    """Return the value of JAVA_HOME for the Java of the tests."""
    return Path(find_java()).resolve().parents[1]


def native_folder() -> Path:
    """Return a folder with libhdfs.so, which Arrow loads for addresses in HDFS (ARROW_LIBHDFS_DIR).

    Raises NotServedError if cargo cannot get the sources, or no compiler builds them.
    """
    folder = CACHE / "libhdfs"
    if (folder / "libhdfs.so").exists():
        return folder
    cargo, compiler = shutil.which("cargo"), shutil.which("gcc")
    if not cargo or not compiler:
        raise NotServedError("libhdfs: cargo and gcc are needed to build it")
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "src" / "lib.rs").touch()
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "native"\nversion = "0.1.0"\n[workspace]\n[dependencies]\n'
        f'{CRATE} = {{ version = "={CRATE_VERSION}", features = ["vendored"] }}\n'
    )
    result = subprocess.run([cargo, "vendor"], cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        raise NotServedError(f"cargo could not get the sources of libhdfs in {CRATE} {CRATE_VERSION}")
    sources = folder / "vendor" / CRATE / SOURCES
    (folder / "config.h").touch()
    home = java_home()
    include = [folder, sources, sources / "include", sources / "os", sources / "os/posix", home / "include"]
    files = [*sources.glob("*.c"), *(sources / "os" / "posix").glob("*.c")]
    virtual_machine = home / "lib" / "server"
    command = [
        compiler, "-O2", "-fPIC", "-shared", "-w", "-o", folder / "libhdfs.so", *files,
        *(f"-I{place}" for place in (*include, home / "include" / "linux")),
        f"-L{virtual_machine}", "-ljvm", f"-Wl,-rpath,{virtual_machine}",
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise NotServedError(f"libhdfs does not compile: {result.stderr.splitlines()[0]}")
    return folder
