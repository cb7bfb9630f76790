"""Hadoop's own YARN and HDFS run the commands of docs/how-to/cluster-managers.md, with all durable files in HDFS.

In cluster mode the driver is killed in a batch, and YARN restarts it. In client mode a NodeManager is lost.
Not tried: a second NameNode, Kerberos, and several machines.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import time
import venv
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from keyedwm.testing.local import KAFKA_VERSION, local_broker
from tests.cluster.outputs import copied, counted
from tests.installed import ROOT, built_wheel
from tests.platforms.hadoop import LOOK_S, VERSION, Hadoop, hadoop, native_folder
from tests.platforms.parts import check_download, complete_folder
from tests.platforms.yarn_job import ENDED, Job
from tests.support.standalone import spark_home
from tests.tools import Record, make_topic, produce

PYTHON = "./environment/bin/python"
PACKER = "venv-pack==0.2.0"
PARTITIONS, EVENTS, END_MS = 3, 1_500, 10_000_000
NODES = 2
LIMIT_S = 1_500.0
EVENT_BATCH = 2  # the driver dies, or a NodeManager is lost, after this batch
NOT_INHERITED = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")
RESOURCES = ("--num-executors", "2", "--driver-memory", "512m", "--executor-memory", "512m")
SETTINGS = {
    "spark.yarn.am.memory": "512m",
    "spark.yarn.maxAppAttempts": "2",
    "spark.yarn.jars": f"local:{spark_home()}/jars/*",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}


@dataclass(frozen=True)
class Feed:
    """What is in the topic: the values, and how often each name is in each second."""

    values: Counter
    seconds: Counter


def run(folder: Path) -> str:
    """Run one application in cluster mode and one in client mode; raise if a row is lost or duplicated."""
    environment = environment_folder(folder)
    native = native_folder()
    with local_broker() as kafka, hadoop(folder / "hadoop", NODES) as cluster:
        yarn = Yarn(cluster, native, environment, folder)
        yarn.put_archive()
        for mode, submit in (("cluster", yarn.run_in_cluster_mode), ("client", yarn.run_in_client_mode)):
            feed = fill_topic(kafka.bootstrap, mode)
            job = Job(bootstrap=kafka.bootstrap, topic=mode, place=f"{cluster.hdfs}/{mode}")
            submit(job)
            check(job, feed)
    return (
        f"Hadoop {VERSION}, Kafka {KAFKA_VERSION}, {PACKER}: cluster mode with a killed driver and client mode with a "
        "lost NodeManager; windows in Delta and a copy in Kafka are exact, checkpoints, ledger and table are in HDFS"
    )


def environment_folder(folder: Path) -> Path:
    """Return an environment with the wheel of this checkout, and with the locked versions of what the wheel needs."""
    wheel = built_wheel(folder)

    def pip(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [home / "bin" / "python", "-m", "pip", "install", "--quiet", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def fill(home: Path) -> None:
        venv.create(home, with_pip=True, clear=True)
        lock = (ROOT / "requirements.lock").read_text()
        pins = folder / "pins.txt"
        pins.write_text("\n".join(re.findall(r"^[\w.-]+==[^\\\n]+", lock, re.MULTILINE)))
        # venv-pack imports pkg_resources.
        result = pip(home, "--constraint", pins, wheel, PACKER, "setuptools<81")
        check_download(result, result.stderr, "ERROR", "pip could not install what the wheel needs")

    home = complete_folder("environment", fill)
    pip(home, "--force-reinstall", "--no-deps", "--no-index", wheel).check_returncode()
    return home


def fill_topic(bootstrap: str, topic: str) -> Feed:
    """Fill the topic with events in order of time, and with a record on each partition that closes all windows."""
    make_topic(bootstrap, topic, PARTITIONS)
    make_topic(bootstrap, f"{topic}-out", PARTITIONS)
    chance = random.Random(topic)
    seconds: Counter = Counter()
    records = []
    for number in range(EVENTS):
        partition, name, ms = chance.randrange(PARTITIONS), chance.choice("abcd"), 20 * number
        records.append(Record(partition, ms, b"%d" % number, name.encode()))
        seconds[name, ms // 1_000 * 1_000] += 1
    records += [Record(partition, END_MS, b"end-%d" % partition, b"end") for partition in range(PARTITIONS)]
    produce(bootstrap, topic, records)
    return Feed(Counter(record.value for record in records), seconds)


def check(job: Job, feed: Feed) -> None:
    """Compare the copy and the table with the topic."""
    rows = Counter(value for values in copied(job.bootstrap, f"{job.topic}-out") for value in values)
    assert rows == feed.values, f"{job.topic}: the copy has {rows.total()} rows of {feed.values.total()}"
    windows = counted(job.place)
    assert windows == feed.seconds, f"{job.topic}: {windows.total()} events in windows of {feed.seconds.total()}"


@dataclass(frozen=True)
class Yarn:
    """Submits the job to a cluster without keyedwm, by the commands of docs/how-to/cluster-managers.md."""

    cluster: Hadoop
    native: Path
    environment: Path
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """The environment of spark-submit: no variable leads to this checkout."""
        own = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        return own | {"HADOOP_CONF_DIR": str(self.cluster.conf)}

    def put_archive(self) -> None:
        """Pack the environment by the command of docs/how-to/cluster.md, and copy the archive to HDFS."""
        archive = self.folder / "environment.tar.gz"
        pack = [self.environment / "bin" / "venv-pack", "-q", "--exclude", "*/site-packages/pyspark/*", "-o", archive]
        subprocess.run(pack, env=os.environ | {"VIRTUAL_ENV": str(self.environment)}, check=True)
        command = [spark_home() / "bin" / "spark-class", "org.apache.hadoop.fs.FsShell", "-put", archive, "hdfs:///"]
        subprocess.run(command, env=self.variables, check=True)

    def run_in_cluster_mode(self, job: Job) -> None:
        """Run the job to its end; the driver of the first attempt dies."""
        # YARN sets CLASSPATH of a container.
        driver = {"PYSPARK_PYTHON": PYTHON, "ARROW_LIBHDFS_DIR": str(self.native)}
        settings = {f"spark.yarn.appMasterEnv.{name}": value for name, value in driver.items()}
        settings["spark.executorEnv.PYSPARK_PYTHON"] = PYTHON
        self._submit("cluster", replace(job, dies_at=EVENT_BATCH), settings, self.variables, lambda _: None)
        drivers = [each for each in self.cluster.containers() if each.is_master]
        attempts = [(each.attempt, ENDED in each.log) for each in drivers]
        assert attempts == [(1, False), (2, True)], f"YARN started the attempts {attempts}"

    def run_in_client_mode(self, job: Job) -> None:
        """Run the job to its end; a NodeManager with executors and without the application master is lost."""
        nodes: list[int] = []

        def lose_a_node(output: str) -> None:
            if not nodes and f"batch {EVENT_BATCH}\n" in output:
                containers = self.cluster.containers()
                masters = {each.node for each in containers if each.is_master}
                nodes.append(next(each.node for each in containers if each.node not in masters))
                self.cluster.stop_node(nodes[0])

        driver = {"PYSPARK_PYTHON": PYTHON, **self.cluster.library_variables(self.native)}
        self._submit("client", job, {}, self.variables | driver, lose_a_node)
        assert nodes, "the queries ended before a NodeManager was stopped"

    def _submit(
        self,
        mode: str,
        job: Job,
        settings: Mapping[str, str],
        variables: Mapping[str, str],
        meanwhile: Callable[[str], None],
    ) -> None:
        """Run spark-submit to its end. meanwhile: is called with its output again and again."""
        directory = self.folder / mode
        directory.mkdir()
        if mode == "client":
            (directory / "environment").symlink_to(self.environment)
        program = shutil.copy(Path(__file__).with_name("yarn_job.py"), directory)
        log = directory / "log"
        command = [
            spark_home() / "bin" / "spark-submit", "--master", "yarn", "--deploy-mode", mode, *RESOURCES,
            "--archives", "hdfs:///environment.tar.gz#environment",
            *(word for each in {**SETTINGS, **settings}.items() for word in ("--conf", "=".join(each))),
            program, json.dumps(asdict(job)),
        ]  # fmt: skip
        with log.open("w") as out:
            process = subprocess.Popen(
                command, cwd=directory, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        try:
            limit = time.monotonic() + LIMIT_S
            while process.poll() is None and time.monotonic() < limit:
                meanwhile(log.read_text(errors="replace"))
                time.sleep(LOOK_S)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, f"{mode} mode: {self._output(log)}"

    def _output(self, log: Path) -> str:
        """Return the ends of what spark-submit and each container wrote."""
        logs = {"spark-submit": log.read_text(errors="replace")}
        logs |= {each.folder.name: each.log for each in self.cluster.containers()}
        return "".join(f"\n--- {name}\n{text[-3_000:]}" for name, text in logs.items())
