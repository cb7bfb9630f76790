"""Hazelcast's own classes, live: a small JVM with the published jar, spoken to over py4j."""

from __future__ import annotations

import glob
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from keyedwm.core.errors import UnavailableError
from keyedwm.testing.ivy import cache_dir
from keyedwm.testing.java import find_java

VERSION = "5.5.0"
NONE = -(2**63)
IDLE = 2**63 - 1
# The jar alone: reading its POM would draw in hundreds of others, for nothing that is used here.
SETTINGS = """<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>"""


def pyspark_jar(pattern: str) -> str:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return glob.glob(str(Path(spec.origin).parent / "jars" / pattern))[0]  # noqa: PTH207  py4j takes a string


def hazelcast_jar() -> Path:
    """The jar, fetched once by the Ivy in PySpark and kept. Raises UnavailableError where that cannot be."""
    home = cache_dir() / "jars" / f"hazelcast-{VERSION}"
    jar = home / f"hazelcast-{VERSION}.jar"
    if jar.exists():
        return jar
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home) as work_dir:
        work = Path(work_dir)
        (work / "settings.xml").write_text(SETTINGS)
        command = [
            find_java(), "-cp", pyspark_jar("ivy-*.jar"), "org.apache.ivy.Main", "-settings", work / "settings.xml",
            "-cache", work / "cache", "-dependency", "com.hazelcast", "hazelcast", VERSION, "-confs", "default",
            "-types", "jar", "-retrieve", work / "[artifact]-[revision].[ext]",
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=300, cwd=work)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"the Maven registry did not give hazelcast {VERSION} within 300 s") from None
        if done.returncode or not (work / jar.name).exists():
            raise UnavailableError(f"the Maven registry gave no hazelcast {VERSION}")
        (work / jar.name).rename(jar)
    return jar


class Hazelcast:
    """Makers of Jet's objects; package-private members are reached by reflection."""

    def __init__(self, gateway: object) -> None:
        self.gateway = gateway
        self.jvm = gateway.jvm
        self._classes = {}

    def class_of(self, name: str) -> object:
        if name not in self._classes:
            self._classes[name] = self.jvm.java.lang.Class.forName(f"com.hazelcast.jet.{name}")
        return self._classes[name]

    def array(self, *values: object) -> object:
        array = self.gateway.new_array(self.jvm.java.lang.Object, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def coalescer(self, queues: int) -> object:
        return self.jvm.com.hazelcast.jet.impl.execution.WatermarkCoalescer.create(queues)

    def keyed_coalescer(self, queues: int) -> object:
        constructor = self.class_of("impl.execution.KeyedWatermarkCoalescer").getDeclaredConstructors()[0]
        constructor.setAccessible(True)
        return constructor.newInstance(self.array(queues))

    def watermark(self, time_ms: int, key: int = 0) -> object:
        boxed = self.jvm.java.lang.Byte.valueOf(str(key))
        return self.jvm.com.hazelcast.jet.core.Watermark(self.long(time_ms), boxed)

    def long(self, number: int) -> object:
        return self.jvm.java.lang.Long.valueOf(str(number))

    def mapper(self, lag_ms: int, frame_ms: int, offset_ms: int, timeout_ms: int, partitions: int) -> object:
        core = self.jvm.com.hazelcast.jet.core
        policy = core.EventTimePolicy.eventTimePolicy(
            None, core.WatermarkPolicy.limitingLag(lag_ms), frame_ms, offset_ms, timeout_ms
        )
        mapper = core.EventTimeMapper(policy)
        add = next(
            method
            for method in self.class_of("core.EventTimeMapper").getDeclaredMethods()
            if method.getName() == "addPartitions" and method.getParameterCount() == 2
        )
        add.setAccessible(True)
        add.invoke(mapper, self.array(self.long(0), partitions))
        return mapper


@contextmanager
def hazelcast() -> Iterator[Hazelcast]:
    """A JVM with Hazelcast on its classpath, ended with the block."""
    import py4j.java_gateway
    import py4j.protocol
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    # A Spark session in this process patches py4j: every Java exception is taken for one of its own.
    patched = py4j.java_gateway.get_return_value
    py4j.java_gateway.get_return_value = py4j.protocol.get_return_value
    port, process = launch_gateway(
        jarpath=pyspark_jar("py4j-*.jar"),
        classpath=os.pathsep.join([str(hazelcast_jar())]),
        java_path=str(find_java()),
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield Hazelcast(gateway)
    finally:
        py4j.java_gateway.get_return_value = patched
        gateway.shutdown()
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None
