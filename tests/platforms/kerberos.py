"""A login by Kerberos at a real KDC and a real Kafka: what fails, a job with a restart, a ticket that expires.

Debian's packages krb5-kdc and krb5-user bring the KDC, libkrb5-dev and a C compiler build the package gssapi.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from keyedwm.testing.local import JAVA_OPTIONS, KAFKA_VERSION, LocalBroker, free_ports, local_broker
from tests.platforms.parts import CACHE, NotServedError
from tests.sink.conftest import records_of
from tests.support import kdc
from tests.tools import Record, make_topic, produce

PACKAGES = ("gssapi==1.12.0", "decorator==5.3.1")
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
LIFE_S = 20  # of a ticket of `orders`
SESSION_MS = 5_000  # after which the broker asks for a login again
ROOT = Path(__file__).parents[2]
WINDOW_MS = 10_000


def run(folder: Path) -> str:
    """Raise an error for the first claim that is wrong."""
    missing = kdc.missing_programs()
    if missing:
        raise NotServedError(f"Debian's krb5-kdc and krb5-user are not installed: no {', '.join(missing)}")
    library = library_folder()
    (folder / "realm").mkdir()
    with kdc.realm(folder / "realm") as realm, kerberos_broker(realm) as (broker, address):
        trial = _Trial(folder, realm, address, library)
        topics = [make_topic(broker.bootstrap, name, 2) for name in ("orders", "windows")]
        sentences(trial)
        for half, variables in enumerate(({"KRB5_CLIENT_KTNAME": str(trial.keytab)}, {})):
            produce(broker.bootstrap, topics[0], records(half))
            trial.ask("job", 900, variables, jaas={} if variables else trial.keytab_entry())
        rows = Counter(record[2] for record in records_of(broker.bootstrap, topics[1]))
        expected = windows([*records(0), *records(1)])
        if rows != expected:
            raise AssertionError(f"missing: {expected - rows}; not expected: {rows - expected}")
        trial.ask("expiry", 120, {"KRB5_CLIENT_KTNAME": str(trial.keytab)})
    return (
        f"MIT Kerberos, Kafka {KAFKA_VERSION}, {PACKAGES[0]}: {rows.total()} windows exact over a restart, "
        f"tickets of {LIFE_S} s renewed, 5 wrong logins are one sentence each"
    )


def library_folder() -> Path:
    """Return the folder with the package gssapi, built if it is not there."""
    folder = CACHE / f"gssapi-{sys.version_info.major}.{sys.version_info.minor}"
    if not (folder / "complete").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", folder]
        result = subprocess.run([*command, *PACKAGES], capture_output=True, text=True, check=False)
        if result.returncode:
            raise NotServedError(f"pip could not build {PACKAGES[0]} (is libkrb5-dev installed?)")
        (folder / "complete").touch()
    return folder


@contextmanager
def kerberos_broker(realm: kdc.Realm) -> Iterator[tuple[LocalBroker, str]]:
    """Run a Kafka that everybody may use without a login, and `orders` with one; the address of the login is second."""
    port, open_port, controller_port = free_ports(3)
    keytab = realm.add("kafka/localhost")
    listeners = f"PLAINTEXT://127.0.0.1:{open_port},KERBEROS://localhost:{port}"
    entry = f'{KRB5} useKeyTab=true storeKey=true keyTab="{keytab}" principal="kafka/localhost@{kdc.REALM}";'
    extra = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@localhost:{controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KERBEROS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.kerberos.sasl.kerberos.service.name": "kafka",
        "listener.name.kerberos.gssapi.sasl.jaas.config": entry,
        "listener.name.kerberos.gssapi.connections.max.reauth.ms": str(SESSION_MS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:orders",
    }
    java = f"-Djava.security.krb5.conf={realm.settings}"
    with patch.dict(os.environ, {JAVA_OPTIONS: java}), local_broker(extra=extra) as running:
        running.bootstrap = f"127.0.0.1:{open_port}"
        yield running, f"localhost:{port}"


class _Trial:
    """The realm with its principals, and programs that log in at the broker."""

    def __init__(self, folder: Path, realm: kdc.Realm, address: str, library: Path) -> None:
        self.folder, self.realm, self._address, self._library = folder, realm, address, library
        self.keytab = realm.add("orders", f'-maxlife "{LIFE_S} seconds"')
        self.guest = realm.add("guest")

    def keytab_entry(self, principal: str = "orders", keytab: Path | None = None) -> dict[str, str]:
        """Return the login of a Java client with a key tab."""
        entry = f'{KRB5} useKeyTab=true storeKey=true keyTab="{keytab or self.keytab}" principal="{principal}";'
        return {"sasl.jaas.config": entry}

    def ask(
        self,
        part: str,
        limit_s: float,
        variables: dict[str, str] | None = None,
        *,
        jaas: dict[str, str] | None = None,
        library: bool = True,
    ) -> None:
        """Run a part of this module as a program of its own; raises AssertionError with its last lines."""
        options = {
            "kafka.bootstrap.servers": self._address,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "GSSAPI",
        } | {f"kafka.{name}": value for name, value in (jaas or {}).items()}
        path = os.pathsep.join([str(ROOT), *([str(self._library)] if library else [])])
        environment = os.environ | {"PYTHONPATH": path} | self.realm.environment(**(variables or {}))
        command = [sys.executable, "-W", "ignore", "-m", __name__, part, json.dumps(options), str(self.folder)]
        result = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=limit_s
        )
        if result.returncode:
            raise AssertionError(f"{part}: {(result.stdout + result.stderr)[-3_000:]}")
        self.printed = result.stdout

    def expect(self, sentence: str, variables: dict[str, str] | None = None, **how: object) -> None:
        """Check that a reader of the topic's end prints one line, which has `sentence`."""
        self.ask("ends", 60, variables, **how)  # type: ignore[arg-type]
        if sentence not in self.printed or len(self.printed.splitlines()) != 1:
            raise AssertionError(f"{sentence!r} is expected, not {self.printed!r}")


def sentences(trial: _Trial) -> None:
    """Check the error of each wrong login, and that the right ones succeed."""
    keytab = {"KRB5_CLIENT_KTNAME": str(trial.keytab)}
    right = "ends of orders: 0, 0"
    trial.expect(right, keytab)
    trial.expect(right, jaas=trial.keytab_entry())
    trial.expect("pip install 'keyedwm[kerberos]'", keytab, library=False)
    trial.expect("No Kerberos credentials available")
    trial.expect("nobody/localhost", keytab, jaas={"sasl.kerberos.service.name": "nobody"})
    trial.expect("somebody", jaas=trial.keytab_entry("somebody"))
    trial.expect("orders", jaas=trial.keytab_entry("guest", trial.guest))


def records(half: int) -> list[Record]:
    """Return records of two keys on two partitions, one a second, of which the second half is later."""
    start_ms = 1_700_000_000_000 + half * 100_000
    return [
        Record(part, start_ms + second * 1_000, str(second).encode(), f"k{second % 2}".encode())
        for second in range(100)
        for part in (0, 1)
    ]


def windows(rows: list[Record]) -> Counter[bytes]:
    """Return the sums of all windows that both partitions have passed, as the job writes them."""
    passed_ms = max(row.timestamp_ms for row in rows)
    sums: Counter[tuple[str, int]] = Counter()
    for row in rows:
        end_ms = row.timestamp_ms // WINDOW_MS * WINDOW_MS + WINDOW_MS
        if end_ms <= passed_ms:
            sums[row.key.decode(), end_ms] += int(row.value)
    texts = ({"k": key, "ms": ms, "total": total} for (key, ms), total in sums.items())
    return Counter(json.dumps(text, separators=(",", ":")).encode() for text in texts)


def _ends(options: dict[str, str], _folder: Path) -> None:
    """Print the end offsets of the topic, or the sentence of the error."""
    from keyedwm.core.errors import KeyedwmError

    try:
        print("ends of orders:", ", ".join(map(str, _end_offsets(options))))
    except KeyedwmError as error:
        print(error)


def _end_offsets(options: dict[str, str]) -> list[int]:
    from keyedwm.kafka.client.config import ClientConfig
    from keyedwm.kafka.requests.cluster import Cluster

    properties = {name.removeprefix("kafka."): value for name, value in options.items()}
    cluster = Cluster.connect(ClientConfig.from_options(properties), 20_000)
    try:
        return list(cluster.latest([("orders", 0), ("orders", 1)]).values())
    finally:
        cluster.close()


def _expiry(options: dict[str, str], _folder: Path) -> None:
    """Ask again over one connection and over new ones, until the first ticket and many sessions are over."""
    from keyedwm.kafka.client.config import ClientConfig
    from keyedwm.kafka.requests.cluster import Cluster

    properties = {name.removeprefix("kafka."): value for name, value in options.items()}
    cluster = Cluster.connect(ClientConfig.from_options(properties), 20_000)
    deadline_s = time.monotonic() + 2.5 * LIFE_S
    while time.monotonic() < deadline_s:
        assert len(cluster.latest([("orders", 0), ("orders", 1)])) == 2
        assert len(_end_offsets(options)) == 2
        time.sleep(1)
    cluster.close()


def _job(options: dict[str, str], folder: Path) -> None:
    """Sum windows of `orders` into `windows` in Kafka, exactly once, and stop at the logs' ends."""
    from pyspark.sql import SparkSession

    from keyedwm.spark import aggregate, session_conf, tumbling
    from keyedwm.spark import sum as sum_of

    spark = SparkSession.builder.master("local[2]").config(map=session_conf(cores=2)).getOrCreate()
    rows = (
        spark.readStream.format("keyedwm")
        .options(**options, subscribe="orders", startingOffsets="earliest", idleTimeout="none")
        .load()
        .selectExpr("*", "cast(key as string) k", "cast(cast(value as string) as bigint) v")
    )
    sums = aggregate(rows, "k", tumbling(f"{WINDOW_MS} milliseconds"), {"total": sum_of("v")}, name="sums")
    text = "to_json(struct(k, unix_millis(window.end) AS ms, total)) value"
    writer = sums.selectExpr(text, "watermark", "control").writeStream.format("keyedwm")
    writer = writer.options(**options, topic="windows", checkpointLocation=str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    _, _part, _options, _folder = sys.argv
    {"ends": _ends, "expiry": _expiry, "job": _job}[_part](json.loads(_options), Path(_folder))
